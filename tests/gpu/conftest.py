"""Tests of this folder need CUDA devices and say aloud when there are none: `make test-gpu`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say aloud what was not tested."""
    if torch.cuda.is_available():
        return
    build = "sees no CUDA device" if torch.version.cuda else "is a build without CUDA"
    mark = pytest.mark.skip(reason=f"NOTHING WAS TESTED ON A GPU: this torch ({torch.__version__}) {build}")
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(mark)
