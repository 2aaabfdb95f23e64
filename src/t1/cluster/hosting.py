"""The inside of a post: one object, calls to its methods, each with a name by which it can be cancelled.

Boundary: values in and out; how they travel is the cluster's. An error travels as its class, its arguments and its
attributes, and is raised again on the other side with the far traceback as a note.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
import traceback
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from t1.errors import ProcessLost, T1Error

CANCEL_S = 60.0
"""How long a cancelled call may take to clean up behind itself."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a call."""

    value: Any = None
    error: tuple[type[BaseException], tuple[Any, ...], dict[str, Any]] | None = None
    trace: str = ""

    def unwrap(self) -> Any:
        """The value, or the error raised."""
        if self.error is None:
            return self.value
        kind, arguments, attributes = self.error
        error = kind.__new__(kind, *arguments)
        error.args = arguments
        error.__dict__.update(attributes)
        if self.trace:
            error.add_note(self.trace)
        raise error


def failed(error: BaseException) -> Reply:
    """The reply of a call that raised."""
    trace = "".join(traceback.format_exception(error))
    carried = (type(error), error.args, {k: v for k, v in error.__dict__.items() if k != "__notes__"})
    try:
        pickle.loads(pickle.dumps(carried))
    except Exception:
        return Reply(error=(T1Error, (f"{type(error).__name__}: {error}",), {}), trace=trace)
    return Reply(error=carried, trace=trace)


_CANCELLED = Reply(error=(ProcessLost, ("the call was cancelled where it ran",), {}))


@dataclass(slots=True)
class Host:
    """Answers calls to `target`. Lives in one event loop."""

    target: Any
    _calls: dict[str, asyncio.Task[Any]] = field(default_factory=dict)
    _cancelled: deque[str] = field(default_factory=lambda: deque(maxlen=1024))
    """Cancellations that overtook their calls, or came too late."""

    async def invoke(self, call: str, method: str, arguments: tuple[Any, ...]) -> Reply:
        """Call a public method; shared values among the arguments are loaded first."""
        if call in self._cancelled:
            return _CANCELLED
        task = asyncio.create_task(self._do(method, arguments), name=f"{method} {call}")
        self._calls[call] = task
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            await self.cancel(call)
            raise
        finally:
            self._calls.pop(call, None)
        if task.cancelled():
            return _CANCELLED
        error = task.exception()
        return Reply(task.result()) if error is None else failed(error)

    async def cancel(self, call: str) -> None:
        """Cancel a call; returns when it has ended or its bound is over. One that is not known yet will not begin."""
        task = self._calls.get(call)
        if task is None:
            self._cancelled.append(call)
            return
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_S)

    async def close(self) -> None:
        """Cancel every call, then close the object."""
        tasks = list(self._calls.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_S)
        await self.target.aclose()

    async def _do(self, method: str, arguments: tuple[Any, ...]) -> Any:
        if method.startswith("_"):
            raise AttributeError(f"{method}: only public methods can be called from afar")
        loaded = [await a.load() if hasattr(a, "load") and hasattr(a, "forget") else a for a in arguments]
        function = getattr(self.target, method)
        if inspect.iscoroutinefunction(function):
            return await function(*loaded)
        return await asyncio.to_thread(function, *loaded)
