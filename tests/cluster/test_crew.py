"""Rollout workers as one collector: nothing is lost when workers are, nothing is used twice, nothing hangs."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from t1.cluster.crew import Crew
from t1.cluster.local import LocalCluster
from t1.cluster.posts import Cluster, Needs
from t1.cluster.roster import Care, Roster
from t1.errors import SandboxUnavailable
from t1.rollouts import CircuitBreaker
from t1.rollouts.breaker import InfrastructureDown
from t1.rollouts.pool import Launch
from t1.testing.posts import scripted_worker, unfit_worker
from t1.testing.tasks import example_task
from t1.testing.waiting import eventually
from t1.types import Rollout, RolloutId

CARE = Care(beat_s=0.2, silent_s=2.0, start_s=60.0, stop_s=10.0, backoff_s=0.1)
NEEDS = Needs(cpus=1)
TASKS = [example_task(name) for name in "abcd"]


def launch_at(position: int) -> Launch:
    task = TASKS[position % len(TASKS)]
    return Launch(task, RolloutId(task.id, position // len(TASKS), 0), position)


async def crew_of(cluster: Cluster, number: int = 2, *, trial_s: float = 0.0, marks: Path | None = None) -> Crew:
    recipe = partial(scripted_worker, trial_s=trial_s, marks=marks)
    roster = Roster(cluster, {f"worker-{i}": recipe for i in range(number)}, NEEDS, care=CARE)
    await roster.open()
    return Crew(roster, trials_per_worker=2)


async def collect(crew: Crew, number: int) -> list[Rollout]:
    launches = [launch_at(position) for position in range(number)]
    return list(await asyncio.gather(*(crew.collect(one.task, one.rollout, seed=one.seed) for one in launches)))


def trials(marks: Path) -> list[str]:
    """Task and process of every trial that has begun."""
    return (marks / "trials").read_text().splitlines() if (marks / "trials").exists() else []


async def test_trials_are_spread_over_the_workers_and_none_is_lost(cluster: Cluster, tmp_path: Path) -> None:
    crew = await crew_of(cluster, trial_s=0.1, marks=tmp_path)
    rollouts = await collect(crew, 8)
    assert [rollout.id for rollout in rollouts] == [launch_at(position).rollout for position in range(8)]
    assert all(rollout.outcome.solved and rollout.attempts == 1 for rollout in rollouts)
    assert len({line.split()[1] for line in trials(tmp_path)}) == 2
    assert crew.pending == {}
    await crew.roster.close()


async def test_a_worker_that_dies_is_replaced_and_its_trials_run_again(cluster: Cluster, tmp_path: Path) -> None:
    """Case F5."""
    crew = await crew_of(cluster, trial_s=0.5, marks=tmp_path)
    collecting = asyncio.create_task(collect(crew, 8))
    await eventually((tmp_path / "trials").exists)
    victim = int(trials(tmp_path)[0].split()[1])
    os.kill(victim, signal.SIGKILL)
    rollouts = await asyncio.wait_for(collecting, 60)
    assert len({rollout.id for rollout in rollouts}) == 8 and all(r.outcome.solved for r in rollouts)
    assert sum(rollout.attempts - 1 for rollout in rollouts) == crew.failures["ProcessLost"] > 0
    assert crew.roster.num_lost == 1
    await crew.roster.close()


async def test_a_rollout_that_loses_every_worker_is_a_typed_failure(tmp_path: Path) -> None:
    cluster = LocalCluster()
    crew = await crew_of(cluster, 1, trial_s=600.0, marks=tmp_path)
    collecting = asyncio.create_task(collect(crew, 1))
    for number in range(1, 4):
        await eventually(lambda n=number: len(trials(tmp_path)) >= n)
        os.kill(cluster.pid("worker-0"), signal.SIGKILL)
    (rollout,) = await asyncio.wait_for(collecting, 60)
    assert rollout.outcome.failure is not None and rollout.outcome.reward is None
    assert (rollout.outcome.failure.kind, rollout.attempts) == ("ProcessLost", 3)
    await crew.roster.close()
    await cluster.close()


async def test_a_worker_whose_machine_has_no_sandboxes_is_retired_and_the_others_go_on() -> None:
    cluster = LocalCluster()
    recipes = {"unfit": unfit_worker, "fit": scripted_worker}
    roster = Roster(cluster, recipes, NEEDS, care=CARE)
    await roster.open()
    rollouts = await collect(Crew(roster, trials_per_worker=2), 6)
    assert all(rollout.outcome.solved and rollout.attempts == 1 for rollout in rollouts)
    assert [(member.name, member.retired) for member in roster.members] == [("unfit", True), ("fit", False)]
    await roster.close()
    await cluster.close()


async def test_without_any_fit_worker_the_reason_is_raised() -> None:
    cluster = LocalCluster()
    roster = Roster(cluster, {"unfit": unfit_worker}, NEEDS, care=CARE)
    await roster.open()
    with pytest.raises(SandboxUnavailable, match="no user namespaces here"):
        await collect(Crew(roster, trials_per_worker=2), 1)
    await roster.close()
    await cluster.close()


async def test_the_watchdog_learns_stage_and_worker_of_what_is_pending(tmp_path: Path) -> None:
    """Case F6."""
    cluster = LocalCluster()
    crew = await crew_of(cluster, 1, trial_s=600.0, marks=tmp_path)
    collecting = asyncio.create_task(collect(crew, 3))
    await eventually(lambda: "verify on worker-0" in {stage for stage, _ in crew.pending.values()})
    assert sorted(stage for stage, _ in crew.pending.values())[-1] == "wait for a worker"
    collecting.cancel()
    await eventually(lambda: not crew.pending)
    await crew.roster.close()
    await cluster.close()


async def test_lost_workers_count_for_the_circuit_breaker() -> None:
    cluster = LocalCluster()
    roster = Roster(cluster, {"worker-0": partial(scripted_worker, trial_s=600.0)}, NEEDS, care=CARE)
    await roster.open()
    crew = Crew(roster, trials_per_worker=9, breaker=CircuitBreaker(min_failures=3))
    collecting = asyncio.create_task(collect(crew, 4))
    await asyncio.sleep(0.3)
    os.kill(cluster.pid("worker-0"), signal.SIGKILL)
    with pytest.raises(InfrastructureDown, match="ProcessLost"):
        await collecting
    await roster.close()
    await cluster.close()
