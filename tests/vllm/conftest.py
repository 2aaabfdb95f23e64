"""Tests of this folder need the environment that `make test-vllm` builds, and say aloud when it is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PYTHON = os.environ.get("T1_VLLM_PYTHON", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say aloud what was not tested."""
    if not PYTHON:
        mark = pytest.mark.skip(reason="REAL vLLM WAS NOT TESTED: run make test-vllm")
        for item in items:
            if item.path.parent == Path(__file__).parent:
                item.add_marker(mark)
