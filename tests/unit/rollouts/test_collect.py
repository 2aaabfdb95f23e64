"""Collecting: infrastructure failures are data and launched again, the policy's mistakes are scores, bugs crash."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from t1.errors import (
    EngineTimeout,
    IntegrityError,
    RoutingError,
    SandboxError,
    SandboxUnavailable,
    SandboxVanished,
    TaskError,
    VerifierError,
)
from t1.protocols import Harness
from t1.rollouts import Bounds, Collector
from t1.testing.harnesses import ScriptedHarness
from t1.testing.samplers import ScriptedSampler
from t1.testing.sandboxes import FakeSandbox, FakeSandboxProvider
from t1.testing.tasks import example_task
from t1.testing.verifiers import FakeVerifier, verdict_of
from t1.types import CommandResult, RewardSource, Rollout, RolloutId, Step, StopReason, Task, Turn, Verdict

ID = RolloutId("example", 0, 0)
TASK = example_task()


def passed_count(verdict: Verdict) -> tuple[float, RewardSource]:
    """The reward: how many assertions passed."""
    return float(verdict.num_passed or 0), RewardSource.ASSERTIONS


class Bench:
    """A collector over fakes, each of which can be replaced."""

    def __init__(self, *, harness: Harness | None = None, **replaced: Any) -> None:
        self.provider: FakeSandboxProvider = replaced.pop("provider", None) or FakeSandboxProvider()
        self.sampler: ScriptedSampler = replaced.pop("sampler", None) or ScriptedSampler(lambda prompt: [5, 6, 1])
        self.verifier: FakeVerifier = replaced.pop("verifier", None) or FakeVerifier(verdict_of(True, False))
        self.harness = harness or ScriptedHarness()
        replaced = {"scorer": passed_count, **replaced}
        self.collector = Collector(
            harness=self.harness, provider=self.provider, verifier=self.verifier, sampler=self.sampler, **replaced
        )

    async def collect(self, task: Task = TASK, *, seed: int | None = None) -> Rollout:
        return await self.collector.collect(task, ID, seed=seed)

    def left(self) -> tuple[list[str], set[str], list[RolloutId]]:
        """Open sandboxes, sessions that were used and not closed, pending attempts: all empty after any collect."""
        used = {asked.session for asked in self.sampler.asked}
        return list(self.provider.live), used - set(self.sampler.closed_sessions), list(self.collector.pending)


NOTHING = ([], set(), [])


async def test_a_rollout_has_its_turns_its_verdict_and_its_reward() -> None:
    bench = Bench(harness=ScriptedHarness(["echo hi", "true"]))
    rollout = await bench.collect()
    assert (rollout.id, rollout.task_digest, rollout.attempts) == (ID, TASK.digest, 1)
    assert [turn.action for turn in rollout.turns] == ["echo hi", "true"]
    outcome = rollout.outcome
    assert (outcome.stop, outcome.reward, outcome.reward_source) == (StopReason.SUBMITTED, 1.0, RewardSource.ASSERTIONS)
    assert not outcome.solved
    assert bench.left() == NOTHING


@pytest.mark.parametrize("stop", [StopReason.TURN_LIMIT, StopReason.TOKEN_LIMIT, StopReason.TIME_LIMIT])
async def test_what_the_policy_spoils_is_scored(stop: StopReason) -> None:
    bench = Bench(harness=ScriptedHarness(["no-such-command"], stop=stop), verifier=FakeVerifier(verdict_of(False)))
    outcome = (await bench.collect()).outcome
    assert (outcome.stop, outcome.reward, outcome.failure) == (stop, 0.0, None)
    assert not bench.collector.failures


def vanishing(times: int) -> FakeSandboxProvider:
    """Sandboxes that vanish at their first command, the first `times` of them."""
    left = iter(range(times))

    def script(sandbox: FakeSandbox, command: str) -> CommandResult | None:
        if next(left, None) is not None:
            raise SandboxVanished("gone")
        return None

    return FakeSandboxProvider(script)


async def test_a_vanished_sandbox_is_launched_again_elsewhere() -> None:
    """Case F5."""
    bench = Bench(provider=vanishing(2))
    rollout = await bench.collect()
    assert (rollout.outcome.failure, rollout.attempts) == (None, 3)
    assert len({sandbox.id for sandbox in bench.provider.opened}) == 3
    assert bench.collector.failures == {"SandboxVanished": 2}
    assert bench.left() == NOTHING


async def test_a_failure_is_final_after_the_last_launch_and_is_no_score() -> None:
    """Case F1: the rollout is data, with what failed and where."""
    bench = Bench(provider=vanishing(99), bounds=Bounds(max_attempts=2))
    rollout = await bench.collect()
    outcome = rollout.outcome
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.message, outcome.failure.where) == ("SandboxVanished", "gone", "run")
    assert (outcome.stop, outcome.reward, outcome.verdict) == (StopReason.FAILED, None, None)
    assert (rollout.attempts, bench.collector.failures) == (2, {"SandboxVanished": 2})
    assert bench.left() == NOTHING


async def test_a_verifier_that_could_not_run_is_no_score() -> None:
    """Case V6."""
    bench = Bench(verifier=FakeVerifier(failures=[VerifierError("hung")] * 3))
    rollout = await bench.collect()
    assert rollout.outcome.failure is not None
    assert (rollout.outcome.failure.where, rollout.outcome.reward) == ("verify", None)
    assert len(rollout.turns) == 1  # what was sampled is kept as data
    assert bench.left() == NOTHING


async def test_an_engine_failure_is_launched_again_under_a_fresh_session() -> None:
    bench = Bench(sampler=ScriptedSampler(lambda prompt: [5, 1], failures={0: EngineTimeout("late")}))
    assert (await bench.collect()).attempts == 2
    assert len({asked.session for asked in bench.sampler.asked}) == 2
    assert bench.left() == NOTHING


async def test_a_relaunch_draws_anew_but_by_the_same_seed() -> None:
    harness = ScriptedHarness()
    await Bench(harness=harness, provider=vanishing(1)).collect(seed=5)
    first, second = harness.seeds.values()
    again = ScriptedHarness()
    await Bench(harness=again, provider=vanishing(1)).collect(seed=5)
    assert first == 5 != second
    assert list(again.seeds.values()) == [first, second]


async def test_a_broken_capture_is_launched_again_before_anything_is_verified() -> None:
    """Cases R1 and R8."""
    complaints = iter([RoutingError("short")])

    def check(rollout: RolloutId, turns: Sequence[Turn]) -> None:
        if (error := next(complaints, None)) is not None:
            raise error

    bench = Bench(check_turns=check)
    assert (await bench.collect()).attempts == 2
    assert (bench.collector.failures, bench.verifier.verified) == ({"RoutingError": 1}, ["example"])


async def test_a_multi_step_task_is_refused_by_name_and_not_half_run() -> None:
    bench = Bench()
    step = Step("first", "Do this.", TASK.verifier, TASK.limits)
    with pytest.raises(TaskError, match="multi-step"):
        await bench.collect(replace(TASK, steps=(step,)))
    assert bench.provider.opened == []
    assert bench.left() == NOTHING


async def test_a_host_without_sandboxes_stops_at_once() -> None:
    bench = Bench(provider=FakeSandboxProvider(failures=[SandboxUnavailable("no namespaces")]))
    with pytest.raises(SandboxUnavailable):
        await bench.collect()
    assert (bench.provider.opened, bench.left()) == ([], NOTHING)


@pytest.mark.parametrize("bug", [ZeroDivisionError("bug"), IntegrityError("law"), TimeoutError("somebody's own")])
async def test_a_broken_program_crashes_and_leaves_nothing_open(bug: Exception) -> None:
    bench = Bench(verifier=FakeVerifier(failures=[bug]))
    with pytest.raises(type(bug), match=str(bug)):
        await bench.collect()
    assert bench.left() == NOTHING


class StuckSandbox(FakeSandbox):
    """Waits for ever at one kind of call, or fails to close."""

    at = ""

    async def run(self, command: str, *, timeout_s: float, max_output_bytes: int = 65536) -> CommandResult:
        await self._wait("run")
        return await super().run(command, timeout_s=timeout_s, max_output_bytes=max_output_bytes)

    async def close(self) -> None:
        await self._wait("close")
        await super().close()
        if self.at == "failing close":
            raise SandboxError("rm failed")

    async def _wait(self, where: str) -> None:
        if self.at == where:
            await asyncio.Event().wait()


class Stuck(FakeSandboxProvider):
    """Opens sandboxes that get stuck, or gets stuck itself."""

    def __init__(self, *, at: str) -> None:
        super().__init__()
        self.at = at

    async def open(self, task: Task) -> FakeSandbox:
        if self.at == "open":
            await asyncio.Event().wait()
        sandbox = StuckSandbox(f"stuck{len(self.opened)}", self, {}, pristine=False)
        sandbox.at = self.at
        self.live[sandbox.id] = sandbox
        self.opened.append(sandbox)
        return sandbox


FAST = Bounds(max_attempts=1, open_s=0.01, run_s=0.01, verify_s=0.01, close_s=0.01)
HASTY = example_task(build_timeout_s=0.01, agent_timeout_s=0.01, verifier_timeout_s=0.01)


@pytest.mark.parametrize(
    ("parts", "kind", "where"),
    [
        ({"provider": Stuck(at="open")}, "SandboxTimeout", "open"),
        ({"provider": Stuck(at="run")}, "SandboxTimeout", "run"),
        ({"verifier": FakeVerifier(delay_s=60)}, "VerifierError", "verify"),
    ],
    ids=["open", "run", "verify"],
)
async def test_every_wait_has_a_bound_and_says_what_it_was_for(parts: dict[str, Any], kind: str, where: str) -> None:
    failure = (await Bench(**parts, bounds=FAST).collect(HASTY)).outcome.failure
    assert failure is not None
    assert (failure.kind, failure.where) == (kind, where)
    assert "took longer than 0.02 s" in failure.message


async def test_an_environment_may_take_the_time_to_build_that_its_task_allows() -> None:
    failure = (await Bench(provider=Stuck(at="open"), bounds=FAST).collect(example_task(build_timeout_s=0.05))).outcome
    assert failure.failure is not None and "0.06 s" in failure.failure.message


@pytest.mark.parametrize(("at", "kind"), [("close", "SandboxTimeout"), ("failing close", "SandboxError")])
async def test_a_sandbox_that_does_not_close_is_counted_and_costs_no_score(at: str, kind: str) -> None:
    bench = Bench(provider=Stuck(at=at), bounds=FAST)
    rollout = await bench.collect()
    assert (rollout.outcome.reward, rollout.attempts) == (1.0, 1)
    assert bench.collector.failures == {kind: 1}


async def cancelled_in(bench: Bench, stage: str) -> None:
    """Cancel a rollout once it is in `stage`, and see that it ends as cancelled."""
    collecting = asyncio.create_task(bench.collect())
    for _ in range(1000):
        await asyncio.sleep(0)
        if bench.collector.pending.get(ID, ("", 0.0))[0] == stage:
            break
    else:
        pytest.fail(f"never reached stage {stage}")
    collecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(collecting, 10)


@pytest.mark.parametrize("at", ["nothing", "close", "failing close"])
async def test_a_cancelled_rollout_closes_its_sandbox_and_session_and_stays_cancelled(at: str) -> None:
    """Case F2: not even a sandbox that does not close turns a cancellation into a relaunch."""
    bench = Bench(provider=Stuck(at=at), sampler=ScriptedSampler([[5]], delay_s=60), bounds=FAST)
    await cancelled_in(bench, "run")
    (sandbox,) = bench.provider.opened
    assert sandbox.closed == (at != "close")
    assert bench.left()[1:] == NOTHING[1:]


async def test_a_cancel_does_not_wait_for_a_slow_verifier() -> None:
    """Case F2."""
    bench = Bench(verifier=FakeVerifier(delay_s=600))
    await cancelled_in(bench, "verify")
    assert bench.left() == NOTHING


async def test_what_was_sampled_before_the_infrastructure_failed_stays_with_the_failure() -> None:
    def vanish(sandbox: FakeSandbox, command: str) -> None:
        if command == "second":
            raise SandboxVanished("gone")

    collector = Collector(
        harness=ScriptedHarness(["first", "second"]),
        provider=FakeSandboxProvider(vanish),
        verifier=FakeVerifier(),
        sampler=ScriptedSampler(lambda prompt: [5, 6, 1]),
        scorer=passed_count,
        bounds=Bounds(max_attempts=1),
    )
    found = await collector.collect(TASK, ID)
    assert found.outcome.failure is not None and found.outcome.reward is None
    assert [turn.completion.tolist() for turn in found.turns] == [[5, 6, 1], [5, 6, 1]]


async def test_every_attempt_speaks_to_the_same_sampler() -> None:
    """A harness may keep what it built for a sampler, a server for instance."""
    seen = set()

    class Watching(ScriptedHarness):
        async def run(self, task, sandbox, sampler, *, session, seed=None):
            seen.add(id(sampler))
            return await super().run(task, sandbox, sampler, session=session, seed=seed)

    collector = Collector(
        harness=Watching(), provider=FakeSandboxProvider(), verifier=FakeVerifier(),
        sampler=ScriptedSampler(lambda prompt: [5, 6, 1]), scorer=passed_count,
    )  # fmt: skip
    for member in range(3):
        await collector.collect(TASK, RolloutId("example", 0, member))
    assert len(seen) == 1
