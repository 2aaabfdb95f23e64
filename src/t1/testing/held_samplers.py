"""A Sampler that answers only when it is told to: for tests of what happens meanwhile."""

from __future__ import annotations

import asyncio

from t1.testing.samplers import ScriptedSampler
from t1.types import IntArray, Sample, SamplingParams


class HeldSampler(ScriptedSampler):
    """A ScriptedSampler whose every call waits for `release`."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._permits = asyncio.Semaphore(0)
        self._arrivals = asyncio.Semaphore(0)
        self.num_cancelled = 0

    def release(self, number: int = 1) -> None:
        """Let so many calls go on."""
        for _ in range(number):
            self._permits.release()

    async def arrived(self, number: int = 1) -> None:
        """Wait until so many more calls have come."""
        for _ in range(number):
            await asyncio.wait_for(self._arrivals.acquire(), 10)

    async def sample(self, prompt: IntArray, params: SamplingParams, *, session: str, routing_start: int = 0) -> Sample:
        """The next completion of the script, once released."""
        self._arrivals.release()
        try:
            await self._permits.acquire()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        return await super().sample(prompt, params, session=session, routing_start=routing_start)
