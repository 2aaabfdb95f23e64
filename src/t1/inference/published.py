"""A version of the policy on a disk, as the mapping of weights that a Sampler's `publish` takes.

What travels between processes is the path; an embedded engine reads the tensors where it is, and an engine that loads
checkpoints by itself is told the directory. Boundary: it reads; whoever wrote the directory keeps it long enough.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

VERSION = re.compile(r"v\d+")


class PublishedWeights(Mapping[str, Any]):
    """Name in the model → tensor, read from a Hugging Face directory when the first is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[type[PublishedWeights], tuple[Path]]:
        return PublishedWeights, (self.path,)

    def __getitem__(self, name: str) -> Any:
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)

    @cached_property
    def _read(self) -> Mapping[str, Tensor]:
        """All of them, in float32."""
        from t1.inference.models import load_model

        state: Mapping[str, Tensor] = load_model(self.path).state_dict()
        return state


def version_path(directory: Path, version: int) -> Path:
    """Where a version's directory belongs."""
    return directory / f"v{version}"


def forget_old(directory: Path, *, keep: int) -> None:
    """Remove all but the newest `keep` versions, by the time that they were written."""
    versions = (path for path in directory.glob("v*") if VERSION.fullmatch(path.name))
    for old in sorted(versions, key=lambda path: path.stat().st_mtime_ns)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
