"""A collector whose trials only pass time: what they take and how they end is given, nothing is sampled or run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from t1.types import Outcome, RewardSource, Rollout, RolloutId, RolloutTimings, StopReason, Task, Verdict


@dataclass(frozen=True, slots=True)
class Fate:
    """How a trial goes."""

    seconds: float
    solved: bool = True


class TimedCollector:
    """Trials that take `fate_of(rollout)`. Its clock is the event loop's."""

    def __init__(self, fate_of: Callable[[RolloutId], Fate]) -> None:
        self._fate_of = fate_of
        self.pending: Mapping[RolloutId, tuple[str, float]] = {}
        self.started: list[RolloutId] = []
        self.cancelled: list[RolloutId] = []

    async def collect(self, task: Task, rollout: RolloutId, *, seed: int | None = None) -> Rollout:
        """See `Collector.collect`."""
        fate = self._fate_of(rollout)
        self.started.append(rollout)
        try:
            await asyncio.sleep(fate.seconds)
        except asyncio.CancelledError:
            self.cancelled.append(rollout)
            raise
        verdict = Verdict((), solved=fate.solved)
        outcome = Outcome(StopReason.SUBMITTED, verdict, float(fate.solved), RewardSource.ASSERTIONS)
        return Rollout(rollout, task.digest, (), outcome, RolloutTimings(wall_s=fate.seconds))
