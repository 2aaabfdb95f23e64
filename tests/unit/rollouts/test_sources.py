"""Sources: which task comes when, and that no rollout of a step is lost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1.errors import InfrastructureError, RunError, SandboxUnavailable, SandboxVanished
from t1.rollouts import (
    Admission,
    Bounds,
    Collector,
    DemotionPolicy,
    Demotions,
    Lockstep,
    Lookahead,
    LoopThread,
    Rule,
    TaskStream,
    collect_all,
)
from t1.testing.harnesses import ScriptedHarness
from t1.testing.samplers import ScriptedSampler
from t1.testing.sandboxes import FakeSandbox, FakeSandboxProvider
from t1.testing.tasks import example_task
from t1.testing.verifiers import FakeVerifier, verdict_of
from t1.types import RewardSource, RolloutId, TamperEvidence, Task, Verdict

TASKS = [example_task(name) for name in "abcdefg"]


def full_score(verdict: Verdict) -> tuple[float, RewardSource]:
    return float(verdict.solved), RewardSource.ASSERTIONS


def collector_of(
    provider: FakeSandboxProvider | None = None,
    *,
    harness: ScriptedHarness | None = None,
    sampler: ScriptedSampler | None = None,
    max_attempts: int = 1,
) -> Collector:
    return Collector(
        harness=harness or ScriptedHarness(),
        provider=provider or FakeSandboxProvider(),
        verifier=FakeVerifier(verdict_of(True)),
        sampler=sampler or ScriptedSampler(lambda prompt: [5, 1]),
        scorer=full_score,
        bounds=Bounds(max_attempts=max_attempts),
    )


def launches(names: str) -> list[tuple[Task, RolloutId, int | None]]:
    return [(example_task(name), RolloutId(name, 0, 0), index) for index, name in enumerate(names)]


@given(seed=st.integers(0, 2**32), size=st.integers(1, 7), start=st.integers(0, 5))
def test_every_epoch_holds_each_task_once(seed: int, size: int, start: int) -> None:
    stream = TaskStream(TASKS[:size], seed=seed)
    epoch = [stream.at(position).id for position in range(start * size, (start + 1) * size)]
    assert sorted(epoch) == [task.id for task in TASKS[:size]]


@given(seed=st.integers(0, 2**32), num_tasks=st.integers(1, 20), step=st.integers(0, 9))
def test_a_step_is_a_function_of_seed_and_position_alone(seed: int, num_tasks: int, step: int) -> None:
    """Case B1: a resumed run needs no state to ask for the same tasks."""
    expected = [TaskStream(TASKS, seed=seed).at(step * num_tasks + index) for index in range(num_tasks)]
    assert TaskStream(TASKS, seed=seed).step(step, num_tasks) == expected


def test_epochs_differ_and_seeds_differ() -> None:
    stream, other = TaskStream(TASKS, seed=0), TaskStream(TASKS, seed=1)
    assert stream.step(0, 7) != stream.step(1, 7)
    assert stream.step(0, 7) != other.step(0, 7)


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(RunError, match="empty"):
        TaskStream([], seed=0)


async def test_results_stand_in_launch_order_whatever_finishes_first() -> None:
    class Uneven(ScriptedSampler):
        async def sample(self, prompt, params, *, session, routing_start=0):
            await asyncio.sleep({"a": 0.03, "b": 0.0, "c": 0.01}[session[0]])
            return await super().sample(prompt, params, session=session, routing_start=routing_start)

    finished: list[tuple[int, int]] = []
    collector = collector_of(sampler=Uneven(lambda prompt: [5, 1]))
    found = await collect_all(
        collector, launches("abc"), max_concurrent=3, progress=lambda done, total: finished.append((done, total))
    )
    assert [rollout.id.task for rollout in found] == ["a", "b", "c"]
    assert finished == [(1, 3), (2, 3), (3, 3)]


async def test_no_more_than_max_concurrent_are_under_way() -> None:
    peak = 0

    def watch(sandbox: FakeSandbox, command: str) -> None:
        nonlocal peak
        peak = max(peak, len(provider.live))

    provider = FakeSandboxProvider(watch)
    sampler = ScriptedSampler(lambda prompt: [5, 1], delay_s=0.001)
    assert len(await collect_all(collector_of(provider, sampler=sampler), launches("abcdefg"), max_concurrent=3)) == 7
    assert peak == 3


async def test_a_rollout_that_fails_costs_its_siblings_nothing() -> None:
    """Case F1."""

    def vanish(sandbox: FakeSandbox, command: str) -> None:
        if sandbox is provider.opened[1]:
            raise SandboxVanished("gone")

    provider = FakeSandboxProvider(vanish)
    found = await collect_all(collector_of(provider), launches("abcd"), max_concurrent=4)
    failed = [rollout.id.task for rollout in found if rollout.outcome.failure is not None]
    assert failed == ["b"]
    assert [rollout.outcome.reward for rollout in found] == [1.0, None, 1.0, 1.0]


async def test_what_no_attempt_can_survive_is_raised_as_itself_and_everything_is_closed() -> None:
    provider = FakeSandboxProvider(failures=[SandboxUnavailable("no namespaces")])
    sampler = ScriptedSampler(lambda prompt: [5, 1], delay_s=60)
    with pytest.raises(SandboxUnavailable, match="no namespaces"):
        await collect_all(collector_of(provider, sampler=sampler), launches("abc"), max_concurrent=3)
    assert not provider.live


async def test_the_watchdog_names_the_oldest_pending_attempt() -> None:
    """Case F6."""
    provider = FakeSandboxProvider()
    sampler = ScriptedSampler(lambda prompt: [5, 1], delay_s=60)
    with pytest.raises(InfrastructureError, match=r"the oldest, a/0/0, is in stage 'run' .*\(2 pending\)"):
        await collect_all(collector_of(provider, sampler=sampler), launches("abc"), max_concurrent=2, watchdog_s=0.05)
    assert not provider.live


async def test_nothing_to_collect_is_nothing() -> None:
    assert await collect_all(collector_of(), [], max_concurrent=2) == []


@pytest.fixture
def runner() -> Iterator[LoopThread]:
    with closing(LoopThread()) as made:
        yield made


def source_of(collector: Collector, runner: LoopThread, *, kind: type = Lockstep, **changed: Any) -> Any:
    options: dict[str, Any] = {
        "rule": Rule(Admission.CARRY, num_needed=10, max_lag=1),
        "num_tasks": 5,
        "group_size": 2,
        "max_concurrent": 4,
        "seed": 3,
        "version": lambda: 0,
        "watchdog_s": 5.0,
    }
    return kind(collector, TaskStream(TASKS, seed=3), runner=runner, **(options | changed))


def test_a_step_of_lockstep_is_every_member_of_every_group_in_order(runner: LoopThread) -> None:
    found = source_of(collector_of(), runner, first_step=2).next(2)
    tasks = TaskStream(TASKS, seed=3).step(2, 5)
    assert [r.id for r in found] == [RolloutId(t.id, 10 + i, m) for i, t in enumerate(tasks) for m in (0, 1)]


def test_lockstep_returns_failures_with_the_rest(runner: LoopThread) -> None:
    provider = FakeSandboxProvider(failures=[SandboxVanished("gone")])
    found = source_of(collector_of(provider), runner).next(0)
    assert Counter(rollout.outcome.failure is None for rollout in found) == {True: 9, False: 1}


def test_every_draw_has_its_own_seed_and_another_run_the_same_ones(runner: LoopThread) -> None:
    seeds = []
    for _ in range(2):
        harness = ScriptedHarness()
        source = source_of(collector_of(harness=harness), runner)
        for step in (0, 1):
            source.next(step)
        seeds.append(harness.seeds)
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0].values())) == 20


def test_lockstep_has_a_watchdog_too(runner: LoopThread) -> None:
    """Case F6."""
    provider = FakeSandboxProvider()
    sampler = ScriptedSampler(lambda prompt: [5, 1], delay_s=60)
    source = source_of(collector_of(provider, sampler=sampler), runner, watchdog_s=0.05)
    with pytest.raises(InfrastructureError, match=r"completed for 0\.05 s; the oldest, ./0/0, is in stage 'run'"):
        source.next(0)
    source.close()
    assert not provider.live


def test_lookahead_collects_while_the_trainer_works(runner: LoopThread) -> None:
    harness = ScriptedHarness()
    source = source_of(collector_of(harness=harness), runner, kind=Lookahead)
    source.next(0)
    deadline = time.monotonic() + 10
    while len(harness.seeds) < 20 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert len(harness.seeds) == 20, "one step ahead, and no further"
    assert source.next(1)
    source.close()


def test_lockstep_launches_nothing_while_the_trainer_works(runner: LoopThread) -> None:
    harness = ScriptedHarness()
    source = source_of(collector_of(harness=harness), runner)
    source.next(0)
    time.sleep(0.05)
    assert len(harness.seeds) == 10
    source.close()


def test_lookahead_without_lag_is_refused(runner: LoopThread) -> None:
    with pytest.raises(ValueError, match="Lockstep"):
        source_of(collector_of(), runner, kind=Lookahead, rule=Rule(Admission.CARRY, 10, 0))


@pytest.mark.parametrize("kind", [Lockstep, Lookahead])
def test_a_demoted_task_gets_no_more_draws_and_a_resumed_run_agrees(runner: LoopThread, kind: type) -> None:
    demotions = Demotions(DemotionPolicy(min_attempts=2, tampered_share=0.5))
    source = source_of(collector_of(), runner, kind=kind, demotions=demotions)
    first = source.next(0)
    bad = first[0].id.task
    verdict = replace(verdict_of(True), tamper=(TamperEvidence("forged-result", "/logs/verifier/reward.txt"),))
    tampered = [replace(r, outcome=replace(r.outcome, verdict=verdict)) for r in first if r.id.task == bad]
    since = -(-source.pool.next_position // 2)
    demotions.count(1, tampered, next_draw=since)
    later = [source.launch_at(position) for position in range(2 * since, 2 * since + 40)]
    assert bad not in {launch.rollout.task for launch in later}
    assert all(one.task is other.task for one, other in zip(later[::2], later[1::2], strict=True))
    assert source.launch_at(0).rollout == first[0].id
    assert source.metrics()["demoted_tampering"] == 1.0
    source.close()
