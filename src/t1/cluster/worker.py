"""What a rollout worker's process holds: sandboxes, harness, verifier and reward, and a way to the engines.

Boundary: it collects what it is told to and keeps no record; admission, ledger and circuit breaker are the driver's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from t1.protocols import Harness, Sampler, SandboxProvider, Verifier
from t1.rollouts.breaker import CircuitBreaker
from t1.rollouts.collect import Bounds, Collector, Scorer, TurnsCheck
from t1.types import Rollout, RolloutId, Task


@dataclass(frozen=True, slots=True)
class Collected:
    """A rollout, and what became of each of its launches."""

    rollout: Rollout
    attempts: tuple[str, ...]
    """The failure of each launch; empty where it was none of the infrastructure's."""

    def counted(self, lost: int) -> Rollout:
        """The rollout, with the launches that ended with their worker among its attempts."""
        return replace(self.rollout, attempts=self.rollout.attempts + lost)


class _Record(CircuitBreaker):
    """Never opens; keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts: list[str] = []

    def ended(self, failure: str = "") -> None:
        """Note it."""
        self.attempts.append(failure)


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """What a worker collects with."""

    harness: Harness
    provider: SandboxProvider
    verifier: Verifier
    sampler: Sampler
    scorer: Scorer
    check_turns: TurnsCheck | None = None
    bounds: Bounds = field(default_factory=Bounds)


class RolloutWorker:
    """The object of a rollout worker's post."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._pending: dict[RolloutId, Callable[[], str]] = {}

    async def collect(self, task: Task, rollout: RolloutId, seed: int | None) -> Collected:
        """See `Collector.collect`."""
        parts, record = self._parts, _Record()
        collector = Collector(
            harness=parts.harness,
            provider=parts.provider,
            verifier=parts.verifier,
            sampler=parts.sampler,
            scorer=parts.scorer,
            check_turns=parts.check_turns,
            bounds=parts.bounds,
            breaker=record,
        )
        self._pending[rollout] = lambda: collector.pending.get(rollout, ("launch", 0.0))[0]
        try:
            collected = await collector.collect(task, rollout, seed=seed)
        finally:
            self._pending.pop(rollout, None)
        return Collected(collected, tuple(record.attempts))

    async def pulse(self) -> dict[RolloutId, str]:
        """Stage of every attempt under way."""
        return {rollout: stage() for rollout, stage in self._pending.items()}

    async def aclose(self) -> None:
        """Leave no sandbox behind."""
        await asyncio.gather(self._parts.provider.close(), self._parts.sampler.aclose())
