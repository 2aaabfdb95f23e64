"""Rollout workers as one collector: attempts go to the worker with least to do, and to another one when it is lost.

It offers what a pool asks of a `Collector`, so that no source knows where trials run. Boundary: who does what; a trial
itself is the worker's, and a worker's life is the roster's.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from t1.cluster.roster import Member, Roster
from t1.cluster.worker import Collected
from t1.errors import ProcessLost, SandboxUnavailable
from t1.rollouts.breaker import CircuitBreaker
from t1.rollouts.collect import spoiled
from t1.types import Rollout, RolloutId, Task


class Crew:
    """Use from one event loop."""

    def __init__(
        self,
        roster: Roster,
        *,
        trials_per_worker: int,
        max_attempts: int = 3,
        wait_s: float = 600.0,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        """`max_attempts`: workers that one rollout may lose. `wait_s`: how long it waits while no worker is alive."""
        self.roster = roster
        self.failures: Counter[str] = Counter()
        """Infrastructure failures by kind, relaunched ones included."""
        self._trials_per_worker, self._max_attempts = trials_per_worker, max_attempts
        self._wait_s, self._breaker = wait_s, breaker
        self._places: dict[RolloutId, tuple[Member | None, float]] = {}

    @property
    def pending(self) -> Mapping[RolloutId, tuple[str, float]]:
        """Stage, with its worker, and start (monotonic seconds) of every attempt under way."""
        return {rollout: (_stage(rollout, member), since) for rollout, (member, since) in self._places.items()}

    async def collect(self, task: Task, rollout: RolloutId, *, seed: int | None = None) -> Rollout:
        """One rollout of `task`, wherever there is room. A lost worker costs an attempt, and its failure is typed.

        Raises what a worker's collector raises: broken programs crash.
        """
        attempts, lost = 0, ProcessLost("never launched")
        try:
            while attempts < self._max_attempts:
                try:
                    collected = await self._on_some_worker(task, rollout, seed)
                except ProcessLost as error:
                    attempts, lost = attempts + 1, error
                    self._count(type(error).__name__)
                    continue
                for kind in collected.attempts:
                    self._count(kind)
                return collected.counted(attempts)
            return spoiled(task, rollout, lost, where="worker", attempts=attempts)
        finally:
            self._places.pop(rollout, None)

    def _count(self, kind: str) -> None:
        """An attempt ended, spoiled by `kind` or whole."""
        if kind:
            self.failures[kind] += 1
        if self._breaker is not None:
            self._breaker.ended(kind)

    async def _on_some_worker(self, task: Task, rollout: RolloutId, seed: int | None) -> Collected:
        """One launch. A worker whose machine cannot open sandboxes is retired, and costs no attempt."""
        while True:
            async with self._seat(rollout) as member:
                post = member.post
                if post is None:
                    continue
                try:
                    collected: Collected = await post.call("collect", task, rollout, seed)
                    return collected
                except ProcessLost as error:
                    if member.retired:  # by a sibling that learned of it first
                        if self.roster.exhausted:
                            raise SandboxUnavailable(member.reason) from error
                        continue
                    await self.roster.lost(member, post, error)
                    raise
                except SandboxUnavailable as error:
                    await self.roster.retire(member, str(error))
                    if self.roster.exhausted:
                        raise

    @asynccontextmanager
    async def _seat(self, rollout: RolloutId) -> AsyncIterator[Member]:
        """A place on the worker with least to do."""
        member = self._free()
        since = time.monotonic()
        self._places[rollout] = (member, since)
        while member is None:
            await self._change(since)
            member = self._free()
        self._places[rollout] = (member, time.monotonic())
        member.running += 1
        try:
            yield member
        finally:
            member.running -= 1
            await self.roster.notify()

    async def _change(self, since: float) -> None:
        """Wait until a worker is free, perhaps; ProcessLost when none was alive for too long."""
        async with self.roster.changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.roster.changed.wait(), min(1.0, self._wait_s))
        if not self.roster.in_use and (self.roster.exhausted or time.monotonic() - since > self._wait_s):
            reasons = "; ".join(f"{m.name}: {m.reason}" for m in self.roster.members)
            raise ProcessLost(f"no rollout worker is alive ({reasons})")

    def _free(self) -> Member | None:
        free = [m for m in self.roster.in_use if m.running < self._trials_per_worker]
        return min(free, key=lambda m: m.running, default=None)


def _stage(rollout: RolloutId, member: Member | None) -> str:
    """Where a trial is, as far as its worker's last pulse says."""
    if member is None:
        return "wait for a worker"
    stages = member.pulse if isinstance(member.pulse, dict) else {}
    return f"{stages.get(rollout, 'launch')} on {member.name}"
