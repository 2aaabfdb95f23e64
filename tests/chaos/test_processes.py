"""Processes of a local cluster die, hang and come back under a run."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from t1.cluster.crew import Crew
from t1.cluster.engines import PlacedEngines
from t1.cluster.local import LocalCluster
from t1.cluster.posts import Needs
from t1.cluster.ranks import open_ranks
from t1.cluster.roster import Care, Roster
from t1.errors import InfrastructureError
from t1.rollouts import LoopThread
from t1.testing.posts import EVERY, adder, scripted_engine, scripted_worker
from t1.testing.tasks import example_task
from t1.testing.waiting import eventually

from .campaigns import Campaign

CARE = Care(beat_s=0.2, silent_s=2.0, start_s=60.0, stop_s=10.0, backoff_s=0.1)
ONE = Needs(cpus=1)
WEIGHTS = {"w": np.ones(8, dtype=np.float32)}


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    made = LocalCluster()
    yield made
    await made.close()


def campaign() -> Campaign:
    return Campaign([example_task(name) for name in "abcd"])


async def crew_on(cluster: LocalCluster, *, engines: PlacedEngines | None = None, number: int = 2) -> Crew:
    recipe = partial(scripted_worker, engines=engines, trial_s=0.2, turns=3, max_attempts=20)
    roster = Roster(cluster, {f"worker-{i}": recipe for i in range(number)}, ONE, care=CARE)
    await roster.open()
    return Crew(roster, trials_per_worker=3, max_attempts=5)


def signal_to(cluster: LocalCluster, crew: Crew, step: int, number: int) -> None:
    """Send a signal to the worker whose turn it is, if it is in use."""
    member = crew.roster.members[step % len(crew.roster.members)]
    if member.post is not None:
        os.kill(cluster.pid(member.name), number)


@pytest.mark.fault("worker killed, one in every step", bound_s=60)
async def test_workers_are_killed(cluster: LocalCluster, account, tmp_path: Path) -> None:
    """Cases F1, F5, B1."""
    run, crew = campaign(), await crew_on(cluster)

    async def kill(step: int) -> None:
        await asyncio.sleep(0.1)
        signal_to(cluster, crew, step, signal.SIGKILL)

    await run.run(crew, tmp_path / "ledger.sqlite", during=kill)
    await crew.roster.close()
    assert run.relaunched > 0
    account.settle(run.expected, run.trained, relaunched=run.relaunched)


@pytest.mark.fault("worker hangs (stopped)", bound_s=60)
async def test_a_worker_hangs(cluster: LocalCluster, account, tmp_path: Path) -> None:
    """Case F6: its pulse is missed, it is killed, its trials run elsewhere."""
    run, crew = campaign(), await crew_on(cluster)

    async def stop(step: int) -> None:
        await asyncio.sleep(0.1)
        if step == 1:
            signal_to(cluster, crew, step, signal.SIGSTOP)

    await run.run(crew, tmp_path / "ledger.sqlite", during=stop)
    await crew.roster.close()
    assert crew.failures["ProcessLost"] > 0
    account.settle(run.expected, run.trained, relaunched=run.relaunched)


@pytest.mark.fault("engine killed, one of two", bound_s=60)
async def test_an_engine_is_killed(cluster: LocalCluster, account, tmp_path: Path) -> None:
    """It comes back with the run's weights; no token is of weights that the run did not have."""
    recipes = {f"engine-{i}": partial(scripted_engine, delay_s=0.02) for i in range(2)}
    engines = PlacedEngines(cluster, recipes, ONE, version=0, max_context=4096, care=CARE)
    await engines.open()
    run, crew = campaign(), await crew_on(cluster, engines=engines)

    async def kill(step: int) -> None:
        await asyncio.sleep(0.05)
        name = f"engine-{step % 2}"
        if any(member.name == name for member in engines.roster.in_use):
            os.kill(cluster.pid(name), signal.SIGKILL)

    async def publish(step: int) -> None:
        await engines.publish(WEIGHTS, step + 1)

    version = lambda: engines.version  # noqa: E731
    await run.run(crew, tmp_path / "ledger.sqlite", version=version, during=kill, after=publish)
    await crew.roster.close()
    await eventually(lambda: len(engines.roster.in_use) == 2)
    versions = [await member.post.call("pulse") for member in engines.roster.in_use if member.post is not None]
    assert versions == [run.num_steps] * 2 and engines.roster.num_lost > 0
    await engines.aclose()
    for number, rollout in enumerate(run.rollouts):
        assert {int(v) for turn in rollout.turns for v in turn.versions} == {number // run.batch}
    account.settle(run.expected, run.trained, relaunched=run.relaunched)


@pytest.mark.fault("publish interrupted: engine killed half-way", bound_s=60)
async def test_an_engine_is_killed_while_it_loads(cluster: LocalCluster, account, tmp_path: Path) -> None:
    """The publish goes through with the other engine; the one that died gets the same weights before it samples."""
    recipes = {f"engine-{i}": partial(scripted_engine, load_s=0.5) for i in range(2)}
    engines = PlacedEngines(cluster, recipes, ONE, version=0, max_context=4096, care=CARE)
    await engines.open()
    run, crew = campaign(), await crew_on(cluster, engines=engines)

    async def publish(step: int) -> None:
        publishing = asyncio.create_task(engines.publish(WEIGHTS, step + 1))
        await asyncio.sleep(0.2)
        name = f"engine-{step % 2}"
        if any(member.name == name for member in engines.roster.in_use):
            os.kill(cluster.pid(name), signal.SIGKILL)
        await publishing

    await run.run(crew, tmp_path / "ledger.sqlite", version=lambda: engines.version, after=publish)
    await crew.roster.close()
    await engines.aclose()
    assert engines.roster.num_lost > 0
    for number, rollout in enumerate(run.rollouts):
        assert {int(v) for turn in rollout.turns for v in turn.versions} == {number // run.batch}
    account.settle(run.expected, run.trained, relaunched=run.relaunched)


@pytest.mark.parametrize(("call", "complaint"), [("fall", "rank 1 .* was lost"), ("disagree", "rank 1 disagrees")])
@pytest.mark.fault("trainer rank lost, or of another mind", bound_s=90)
def test_a_trainer_rank_is_lost(account, tmp_path: Path, call: str, complaint: str) -> None:
    """The others do not wait for it in a collective; a new group goes on from what was saved."""
    runner = LoopThread()

    async def made() -> LocalCluster:
        return LocalCluster()

    cluster = runner.run(made())
    steps: list[int] = []

    def opened() -> object:
        return runner.run(open_ranks(cluster, adder, num_ranks=2, needs=ONE, runner=runner, start_s=60, step_s=60))

    trainer = opened()
    steps.append(trainer.step([((), 1.0)]) and 0)
    trainer.save(tmp_path / "saved")
    with pytest.raises((InfrastructureError, ValueError), match=complaint):
        trainer.tell(call, 1)
    trainer.close()
    again = opened()
    again.load(tmp_path / "saved")
    steps.append(again.num_steps)
    assert again.step([((), 1.0)])["total"] == 6.0
    again.close()
    runner.run(cluster.close())
    runner.close()
    account.settle([0, 1], steps, relaunched=1)


@pytest.mark.fault("trainer rank late", bound_s=60)
def test_a_trainer_rank_is_late(account) -> None:
    """Case F6: every rank is ended at the bound, and the late ones are named."""
    runner = LoopThread()

    async def made() -> LocalCluster:
        return LocalCluster()

    cluster = runner.run(made())
    trainer = runner.run(open_ranks(cluster, adder, num_ranks=2, needs=ONE, runner=runner, start_s=60, step_s=1.0))
    with pytest.raises(InfrastructureError, match=r"ranks \[0, 1\] were not done"):
        trainer.tell("linger", EVERY, 600.0)
    trainer.close()
    runner.run(cluster.close())
    runner.close()
    account.settle([], [])
