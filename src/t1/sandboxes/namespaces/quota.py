"""How much a sandbox has written: looked at during a long command and after a short one, for a bounded share of time.

Boundary: counts and says so; what follows is the caller's.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from t1.sandboxes.places import used_bytes

FIRST_LOOK_S = 0.25
"""Into a command; each later look waits twice as long, up to LONGEST_S."""
LONGEST_S = 2.0
SHARE = 20
"""Counting takes at most one part of so many of the time."""
INLINE_ENTRIES = 500
"""A tree of so many entries is counted at once (a millisecond or two); a larger one in a thread."""
MAX_ENTRIES = 5_000_000
RESERVE_BYTES = 512 << 20
"""Free space below which commands are stopped, whoever filled the disk."""
RESERVE_FILES = 0.02
"""The same for the file system's inodes, as a part of all."""


class Quota:
    """The files of one sandbox against what it may keep."""

    def __init__(self, places: Sequence[Path], max_bytes: int) -> None:
        self._places = places
        self._max_bytes = max_bytes
        self._due = 0.0
        self._small = True
        self.exceeded = False
        """What the last look found."""

    async def look(self) -> bool:
        """Count now."""
        began = time.monotonic()
        used, self._small = used_bytes(self._places, INLINE_ENTRIES)
        if not self._small and used <= self._max_bytes:
            used, _ = await asyncio.to_thread(used_bytes, self._places, MAX_ENTRIES)
        self.exceeded = used > self._max_bytes or _runs_out(self._places[0])
        now = time.monotonic()
        self._due = now + SHARE * (now - began)
        return self.exceeded

    async def look_if_due(self) -> bool:
        """Count, unless that would take more than its share of the time. Who has just made room finds it at once, where
        little is left to be counted.
        """
        due = time.monotonic() >= self._due or (self.exceeded and self._small)
        return await self.look() if due else self.exceeded

    @property
    def pause_s(self) -> float:
        """How long to wait before the next look, at least."""
        return max(0.0, self._due - time.monotonic())


def _runs_out(place: Path) -> bool:
    """True when the host's file system is nearly full."""
    try:
        state = os.statvfs(place)
    except FileNotFoundError:
        return False  # the sandbox is gone; whoever uses it next finds out
    few_files = state.f_files > 0 and state.f_favail < RESERVE_FILES * state.f_files
    return state.f_bavail * state.f_frsize < RESERVE_BYTES or few_files


class Watch:
    """Looks at a quota while a command runs; calls `then` once when it is exceeded."""

    def __init__(self, quota: Quota, then: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._quota, self._then = quota, then
        self._wait_s = FIRST_LOOK_S
        self._timer = self._loop.call_later(self._wait_s, self._begin)
        self._looking: asyncio.Task[None] | None = None

    def _begin(self) -> None:
        self._looking = self._loop.create_task(self._look())

    async def _look(self) -> None:
        if await self._quota.look():
            self._then()
            return
        self._wait_s = max(self._quota.pause_s, min(2 * self._wait_s, LONGEST_S))
        self._timer = self._loop.call_later(self._wait_s, self._begin)

    def cancel(self) -> None:
        """Look no more."""
        self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
