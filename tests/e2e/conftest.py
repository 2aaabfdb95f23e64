"""What all end-to-end tests need."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def sandboxes() -> Iterator[Path]:
    """A directory for sandboxes that other uids can pass through; pytest's own are closed to them."""
    path = Path(tempfile.mkdtemp(prefix="t1-e2e-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)
