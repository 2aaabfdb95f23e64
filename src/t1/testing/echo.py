"""The simplest object for a post, with its recipes: what tests of a cluster start in processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from t1.errors import SandboxUnavailable, TaskError


class Echo:
    """Says what it is asked to, and dies or hangs on request."""

    def __init__(self, marks: Path | None) -> None:
        self._marks = marks

    async def say(self, value: Any) -> Any:
        """The value itself."""
        return value

    async def total(self, weights: dict[str, Any]) -> float:
        """The sum of arrays."""
        return float(sum(np.sum(array) for array in weights.values()))

    def pid(self) -> int:
        """Of its process."""
        return os.getpid()

    async def complain(self, path: Path) -> None:
        """Raise an error whose constructor takes more than a message."""
        raise TaskError(path, "is broken", key="some.key")

    async def wait(self, seconds: float, mark: str) -> str:
        """Pass time; a mark is left where it was cancelled, after some cleaning up."""
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
            self._mark(f"{mark} was cancelled")
            raise
        return mark

    async def die(self, last_words: str = "") -> None:
        """Be gone, with no more than these words."""
        os.write(2, last_words.encode())
        os.kill(os.getpid(), signal.SIGKILL)

    def pulse(self) -> int:
        """Its process."""
        return os.getpid()

    async def aclose(self) -> None:
        """Leave a mark."""
        self._mark("closed")

    def _mark(self, what: str) -> None:
        if self._marks is not None:
            (self._marks / what).write_text(str(time.time()), encoding="utf-8")


async def echo(marks: Path | None = None) -> Echo:
    """The recipe of an Echo; `marks`: a directory that it leaves its marks in."""
    return Echo(marks)


async def refuse() -> Echo:
    """A recipe that fails."""
    raise SandboxUnavailable("no sandboxes here")
