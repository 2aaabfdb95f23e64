"""One attempt at one task, from an open sandbox to a scored Rollout.

The only place that turns exceptions into data (design law 6): an InfrastructureError becomes a typed Failure without
a reward and the attempt is launched again, up to a limit; everything else is a broken program and crashes. What the
policy spoils is scored like any other outcome.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from t1.errors import (
    EngineTimeout,
    InfrastructureError,
    RolloutDropped,
    SandboxTimeout,
    SandboxUnavailable,
    TaskError,
    VerifierError,
)
from t1.protocols import Harness, Sampler, Sandbox, SandboxProvider, Verifier
from t1.rollouts.breaker import CircuitBreaker
from t1.types import (
    Episode,
    Failure,
    IntArray,
    Outcome,
    RewardSource,
    Rollout,
    RolloutId,
    RolloutTimings,
    Sample,
    SamplingParams,
    StopReason,
    Task,
    Turn,
    Verdict,
)

T = TypeVar("T")

Scorer = Callable[[Verdict], tuple[float, RewardSource]]
"""Verdict to (reward, where it came from)."""
TurnsCheck = Callable[[RolloutId, tuple[Turn, ...]], None]
"""Raises RoutingError (infrastructure) when a capture breaks its contract, before anything is trained."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long an attempt may wait beyond the task's own limits, and how often it is launched."""

    max_attempts: int = 3
    open_s: float = 60.0
    """Beyond the time that the task's environment may take to build."""
    run_s: float = 60.0
    """Beyond the time that the task gives the agent."""
    verify_s: float = 60.0
    """Beyond the time that the task gives its verifier."""
    close_s: float = 30.0
    """For a session and for a sandbox."""
    backoff_s: float = 0.1
    """Before the second launch; doubled for each one after it, and drawn between half of that and all of it."""
    max_backoff_s: float = 30.0

    def longest_s(self, task: Task) -> float:
        """How long all launches of one rollout may take together: what a watchdog must grant."""
        one = task.environment.build_timeout_s + task.limits.agent_timeout_s + task.verifier.timeout_s
        margins = self.open_s + self.run_s + self.verify_s + 2 * self.close_s
        return self.max_attempts * (one + margins + self.max_backoff_s)

    def pause_s(self, attempt: int) -> float:
        """Wait after the failed launch number `attempt`. Jittered, so that siblings do not return all at once."""
        longest = min(self.max_backoff_s, self.backoff_s * 2.0 ** (attempt - 1))
        return longest * random.uniform(0.5, 1.0)


class _Overheard:
    """A sampler that keeps what it was asked and said, for the turns of episodes that do not come back."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._samples: dict[str, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
        """Rollout → session → samples: what one attempt forgets is not looked for among thousands of others."""

    @property
    def version(self) -> int:
        return self._sampler.version

    @property
    def max_context(self) -> int:
        return self._sampler.max_context

    async def sample(self, prompt: IntArray, params: SamplingParams, *, session: str, routing_start: int = 0) -> Sample:
        sample = await self._sampler.sample(prompt, params, session=session, routing_start=routing_start)
        # The caller's own prompt, where it is the same: a copy a turn would grow with the square of the turns.
        echoed = np.array_equal(sample.prompt, prompt)
        if echoed:
            sample = replace(sample, prompt=prompt)
        self._samples[_owner(session)][session].append(sample)
        return sample

    async def close_session(self, session: str) -> None:
        await self._sampler.close_session(session)

    async def publish(self, weights: Mapping[str, Any], version: int) -> None:
        await self._sampler.publish(weights, version)

    async def aclose(self) -> None:
        await self._sampler.aclose()

    def forget(self, session: str) -> tuple[Turn, ...]:
        """What the attempt `session` sampled, under its own name or names that begin with it; then it is forgotten."""
        owned = self._samples.get(_owner(session), {})
        names = [name for name in owned if name.startswith(session)]
        samples = [sample for name in names for sample in owned.pop(name)]
        if not owned:
            self._samples.pop(_owner(session), None)
        return tuple(
            Turn(
                prompt=sample.prompt,
                completion=sample.completion,
                logprobs=sample.logprobs,
                versions=sample.versions,
                finish=sample.finish,
                routing=sample.routing,
                routing_start=sample.routing_start,
                timings=sample.timings,
            )
            for sample in samples
        )


def _owner(session: str) -> str:
    """What the sessions of a rollout's attempts begin with: they are called rollout#attempt, and more after it."""
    return session.partition("#")[0]


class Collector:
    """Runs attempts with one harness, one kind of sandbox, one verifier and one reward."""

    def __init__(
        self,
        *,
        harness: Harness,
        provider: SandboxProvider,
        verifier: Verifier,
        sampler: Sampler,
        scorer: Scorer,
        check_turns: TurnsCheck | None = None,
        bounds: Bounds = Bounds(),
        breaker: CircuitBreaker | None = None,
    ) -> None:
        self._harness = harness
        self._provider = provider
        self._verifier = verifier
        self._sampler = _Overheard(sampler)
        self._scorer = scorer
        self._check_turns = check_turns
        self._bounds = bounds
        self._breaker = breaker
        self.failures: Counter[str] = Counter()
        """Infrastructure failures by kind, relaunched ones included."""
        self.pending: dict[RolloutId, tuple[str, float]] = {}
        """Stage and start (monotonic seconds) of every attempt under way: what a watchdog names."""

    async def collect(self, task: Task, rollout: RolloutId, *, seed: int | None = None) -> Rollout:
        """One rollout of `task`; its outcome holds a failure only after `max_attempts` launches.

        Raises TaskError for a multi-step task: a score of its first instruction alone would mean nothing, and
        InfrastructureDown where the run's circuit breaker opens.
        """
        if task.steps:
            raise TaskError(task.path / "task.toml", "multi-step tasks can be read but not run yet", key="steps")
        try:
            for attempt in range(1, self._bounds.max_attempts + 1):
                # A relaunch must not replay the very draw that failed.
                drawn = None if seed is None else seed + (attempt - 1) * 1_000_003
                result = await self._attempt(task, rollout, f"{rollout}#{attempt}", drawn)
                failure = result.outcome.failure
                dropped = failure is not None and failure.kind == RolloutDropped.__name__
                if self._breaker is not None:
                    self._breaker.ended("" if failure is None or dropped else failure.kind)
                if failure is not None:
                    self.failures[failure.kind] += 1
                if failure is None or dropped:
                    break
                if attempt < self._bounds.max_attempts:
                    await asyncio.sleep(self._bounds.pause_s(attempt))
            return replace(result, attempts=attempt)
        finally:
            self.pending.pop(rollout, None)

    async def _attempt(self, task: Task, rollout: RolloutId, session: str, seed: int | None) -> Rollout:
        started = time.monotonic()
        turns: tuple[Turn, ...] = ()
        verifier_s = 0.0
        try:
            self._enter(rollout, "open")
            async with self._sandbox(task) as sandbox:
                self._enter(rollout, "run")
                async with self._session(session):
                    episode = await self._run(task, sandbox, session, seed)
                turns = episode.turns
                if self._check_turns is not None:
                    self._check_turns(rollout, turns)
                self._enter(rollout, "verify")
                verifying = time.monotonic()
                verdict = await self._verify(task, sandbox)
                verifier_s = time.monotonic() - verifying
            outcome = self._outcome(episode.stop, verdict)
        except SandboxUnavailable:
            raise  # no attempt on this host can succeed
        except InfrastructureError as error:
            failure = Failure(type(error).__name__, str(error), where=self.pending[rollout][0])
            outcome = Outcome(StopReason.FAILED, None, None, RewardSource.NONE, failure)
            turns = turns or self._sampler.forget(session)
        finally:
            self._sampler.forget(session)
        timings = RolloutTimings(
            wall_s=time.monotonic() - started,
            queue_s=sum(turn.timings.queue_s for turn in turns),
            engine_s=sum(turn.timings.prefill_s + turn.timings.decode_s for turn in turns),
            sandbox_s=sum(turn.sandbox_s for turn in turns),
            verifier_s=verifier_s,
        )
        return Rollout(rollout, task.digest, turns, outcome, timings)

    def _outcome(self, stop: StopReason, verdict: Verdict) -> Outcome:
        """The score, or none where the run's policy drops the attempt; the evidence is kept in any case."""
        try:
            reward, source = self._scorer(verdict)
        except RolloutDropped as error:
            return Outcome(stop, verdict, None, RewardSource.NONE, Failure(type(error).__name__, str(error), "score"))
        return Outcome(stop, verdict, reward, source)

    def _enter(self, rollout: RolloutId, stage: str) -> None:
        self.pending[rollout] = (stage, time.monotonic())

    @asynccontextmanager
    async def _sandbox(self, task: Task) -> AsyncIterator[Sandbox]:
        bound = task.environment.build_timeout_s + self._bounds.open_s
        sandbox = await _bounded(self._provider.open(task), bound, SandboxTimeout, "opening a sandbox")
        try:
            yield sandbox
        finally:
            await self._settle(asyncio.shield(sandbox.close()), SandboxTimeout, "closing a sandbox")

    @asynccontextmanager
    async def _session(self, session: str) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self._settle(self._sampler.close_session(session), EngineTimeout, "closing a session")

    async def _run(self, task: Task, sandbox: Sandbox, session: str, seed: int | None) -> Episode:
        running = self._harness.run(task, sandbox, self._sampler, session=session, seed=seed)
        bound = task.limits.agent_timeout_s + self._bounds.run_s
        return await _bounded(running, bound, SandboxTimeout, "running the agent")

    async def _verify(self, task: Task, sandbox: Sandbox) -> Verdict:
        bound = task.verifier.timeout_s + self._bounds.verify_s
        return await _bounded(self._verifier.verify(task, sandbox), bound, VerifierError, "verifying")

    async def _settle(self, closing: Awaitable[None], miss: type[InfrastructureError], what: str) -> None:
        """Close something. A failure to is counted and changes nothing else: neither a score nor a cancellation."""
        try:
            await _bounded(closing, self._bounds.close_s, miss, what)
        except InfrastructureError as error:
            self.failures[type(error).__name__] += 1


def spoiled(task: Task, rollout: RolloutId, error: InfrastructureError, *, where: str, attempts: int) -> Rollout:
    """The rollout of which nothing came but a typed failure, for attempts that ended with the process they ran in."""
    failure = Failure(type(error).__name__, str(error), where)
    outcome = Outcome(StopReason.FAILED, None, None, RewardSource.NONE, failure)
    return Rollout(rollout, task.digest, (), outcome, attempts=attempts)


async def _bounded(awaitable: Awaitable[T], seconds: float, miss: type[InfrastructureError], what: str) -> T:
    """Await with a bound; passing it raises `miss`, which names what was waited for."""
    bound = asyncio.timeout(seconds)
    try:
        async with bound:
            return await awaitable
    except TimeoutError as error:
        if not bound.expired():
            raise  # a time-out of its own, from within
        raise miss(f"{what} took longer than {seconds:g} s") from error
