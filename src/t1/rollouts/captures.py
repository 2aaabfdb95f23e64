"""Captures of finished rollouts in files without names, so that a batch of them is not in a controller's memory.

Rows are appended to a spool: a mapped file that no directory lists any more. What a rollout keeps are views. The kernel
may drop their pages and read them again, and the disk is free once the last view is gone, however the process ends.
Boundary: routing rows in, the same rows out; the trajectories made of them are `t1.training.parallel.dataplane`'s.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from t1.errors import RunError, disk_reason
from t1.types import Rollout, RoutingArray

SPOOL_BYTES = 64 << 20
"""Of one file, and one open descriptor."""
SMALL_BYTES = 1 << 20
"""Captures of a rollout that stay where they are."""


class Captures:
    """Keeps what rollouts captured on the disk of `folder`."""

    def __init__(self, folder: Path, *, spool_bytes: int = SPOOL_BYTES, small_bytes: int = SMALL_BYTES) -> None:
        self._folder, self._spool_bytes, self._small_bytes = folder, spool_bytes, small_bytes
        self._spool: mmap.mmap | None = None
        self._used = 0

    def keep(self, rollout: Rollout) -> Rollout:
        """The same rollout; its turns' rows are views of a file, unless they are few. RunError: the disk is full."""
        captured = sum(turn.routing.nbytes for turn in rollout.turns if turn.routing is not None)
        if captured < self._small_bytes:
            return rollout
        turns = (
            turn if turn.routing is None else replace(turn, routing=self._put(turn.routing)) for turn in rollout.turns
        )
        return replace(rollout, turns=tuple(turns))

    def _put(self, rows: RoutingArray) -> RoutingArray:
        """A read-only view of equal rows."""
        start = -(-self._used // 8) * 8
        if self._spool is None or start + rows.nbytes > len(self._spool):
            self._spool, start = self._open(max(self._spool_bytes, rows.nbytes)), 0
        view: RoutingArray = np.ndarray(rows.shape, rows.dtype, buffer=self._spool, offset=start)
        view[...] = rows
        view.flags.writeable = False
        self._used = start + rows.nbytes
        return view

    def _open(self, size: int) -> mmap.mmap:
        """A new spool. Its bytes are reserved: writing to a mapping that the disk has no room for kills a process."""
        with tempfile.TemporaryFile(dir=self._folder) as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                raise RunError(
                    f"{self._folder}: no room for the routing of {size} bytes: {disk_reason(error)}"
                ) from error
            return mmap.mmap(file.fileno(), size)
