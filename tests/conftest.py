"""Settings that hold for every test, made before torch is imported."""

import os
import sys
import threading
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


@pytest.fixture(autouse=True, scope="module")
def no_thread_is_left() -> Iterator[None]:
    """An engine, a gateway or a page that a module's tests began has ended with them (its threads have our names)."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread.name.startswith("t1") and thread not in before]
    for thread in left:
        thread.join(5.0)
    assert not (still := [thread.name for thread in left if thread.is_alive()]), f"begun here and not closed: {still}"
