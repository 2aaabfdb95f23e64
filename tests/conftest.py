"""Settings that hold for every test, made before torch is imported."""

import os
import sys
from collections.abc import Iterator

import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # two workers with two threads each slow one another down tenfold
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long ones begin first: one that begins last keeps a worker from its end, and the other waits."""
    items.sort(key=lambda item: "long" not in item.keywords)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Whatever a test, or a command that it runs in this process, asked of torch ends with it."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)
