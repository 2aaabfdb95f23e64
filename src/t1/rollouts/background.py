"""An event loop in a thread of its own, so that rollouts go on while the trainer computes.

Boundary: threads and futures; it knows nothing of rollouts. Everything that lives in the loop (sandboxes, clients,
engine requests) is opened and closed in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")

CANCEL_TIMEOUT_S = 60.0
"""How long cancelled work may take to clean up behind itself."""


class LoopThread:
    """`run` from any one thread; `close` ends what is left and joins the thread."""

    def __init__(self, name: str = "t1-rollouts") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to its end. An interrupt of the waiting thread cancels it and waits for its clean-up."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            if not future.done():  # interrupted here, not failed there
                future.cancel()
                self._settle()
            raise

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin a coroutine; its end is the future's."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel what still runs, wait for it within a bound, stop the loop. Safe to call twice."""
        if self._loop.is_closed():
            return
        self._settle(cancel=True)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CANCEL_TIMEOUT_S)
        if not self._thread.is_alive():
            self._loop.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _settle(self, *, cancel: bool = False) -> None:
        """Wait until cancelled tasks have ended; `cancel` all of them first."""

        async def settle() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                if cancel:
                    task.cancel()
            ending = others if cancel else [task for task in others if task.cancelling()]
            if ending:
                await asyncio.wait(ending, timeout=CANCEL_TIMEOUT_S)

        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(settle(), self._loop).result(CANCEL_TIMEOUT_S + 5)
