"""Waiting, in tests, for what other processes do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

STEP_S = 0.05


async def eventually(holds: Callable[[], object], *, within_s: float = 60.0) -> None:
    """Return when the condition holds; AssertionError when it does not in time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if holds():
            return
        await asyncio.sleep(STEP_S)
    raise AssertionError(f"still not after {within_s:g} s")
