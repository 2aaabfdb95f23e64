"""An event loop whose clock jumps: hours of waiting take milliseconds, in the same order every time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Jumping(selectors.DefaultSelector):
    """Never waits: what would be waited for is added to the clock."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """What is ready; else the clock jumps by `timeout`."""
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("the simulation waits for something that no clock brings")
            self.now_s += timeout
        return ready


def simulate(work: Coroutine[Any, Any, Result]) -> tuple[Result, float]:
    """Run a coroutine to its end; returns its result and the simulated seconds. Threads and real I/O have no place."""
    selector = _Jumping()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now_s  # type: ignore[method-assign]
    try:
        return loop.run_until_complete(work), selector.now_s
    finally:
        loop.close()
