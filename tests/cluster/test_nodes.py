"""Nodes of a real Ray cluster are killed under a run: their trials run elsewhere, each is used once, nothing hangs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t1.cluster.crew import Crew
from t1.cluster.engines import PlacedEngines
from t1.cluster.posts import Cluster, Needs
from t1.cluster.ranks import open_ranks
from t1.cluster.roster import Care, Roster
from t1.errors import InfrastructureError
from t1.rollouts import Admission, Ledger, LoopThread, Rule
from t1.rollouts.pool import Launch, Pool
from t1.testing.posts import EVERY, adder, scripted_engine, scripted_worker
from t1.testing.tasks import example_task
from t1.types import RolloutId

pytestmark = pytest.mark.ray

CARE = Care(beat_s=0.5, silent_s=10.0, start_s=60.0, stop_s=10.0, backoff_s=0.2)
TASKS = [example_task(name) for name in "abcd"]
NUM_STEPS, BATCH = 4, 8
NOTICE_S = 30.0


def launch_at(position: int) -> Launch:
    task = TASKS[position % len(TASKS)]
    return Launch(task, RolloutId(task.id, position // len(TASKS), 0), position)


@pytest.fixture
def doomed(nodes: Any, request: pytest.FixtureRequest) -> Any:
    """A node more, to be killed."""
    node = nodes.add_node(**request.getfixturevalue("node_options"))
    nodes.wait_for_nodes()
    yield node
    if node in nodes.list_all_nodes():
        nodes.remove_node(node, allow_graceful=False)


async def kill(nodes: Any, node: Any) -> None:
    """kill -9, of the node and all that runs on it."""
    await asyncio.to_thread(nodes.remove_node, node, allow_graceful=False)


@pytest.fixture
async def cluster(nodes: Any) -> AsyncIterator[Cluster]:
    """The nodes as our cluster; a test that fails leaves no process on them."""
    from t1.cluster.ray import RayCluster

    made = RayCluster()
    yield made
    await asyncio.wait_for(made.close(), 30)


@pytest.fixture
async def ending() -> AsyncIterator[AsyncExitStack]:
    """What a test opened is closed, also when it fails."""
    async with AsyncExitStack() as stack:
        yield stack


async def test_a_node_is_killed_under_a_run(
    nodes: Any, doomed: Any, cluster: Cluster, ending: AsyncExitStack, tmp_path: Path
) -> None:
    """Cases F5, B1: eight workers and two engines on three nodes, one node dies in the middle of a step."""
    engine_recipes = {f"engine-{i}": partial(scripted_engine, delay_s=0.05) for i in range(2)}
    engines = PlacedEngines(cluster, engine_recipes, Needs(cpus=1), version=0, max_context=4096, care=CARE)
    ending.push_async_callback(engines.aclose)
    await engines.open()
    recipe = partial(scripted_worker, engines=engines, trial_s=0.4, marks=tmp_path, turns=2)
    roster = Roster(cluster, {f"worker-{i}": recipe for i in range(8)}, Needs(cpus=1, memory_mb=64), care=CARE)
    ending.push_async_callback(roster.close)
    await roster.open()
    crew = Crew(roster, trials_per_worker=2, max_attempts=4)
    rule = Rule(Admission.CARRY, num_needed=BATCH, max_lag=1, oversample=1.5)
    admitted: list[RolloutId] = []
    with closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
        pool = Pool(
            crew, launch_at, rule, version=lambda: engines.version, max_concurrent=16, watchdog_s=120, ledger=ledger
        )
        for step in range(NUM_STEPS):
            batch = asyncio.create_task(pool.next(step))
            if step == 1:
                await asyncio.sleep(0.3)
                await kill(nodes, doomed)
            rollouts = await asyncio.wait_for(batch, 120)
            assert all(rollout.outcome.solved for rollout in rollouts)
            admitted += [rollout.id for rollout in rollouts]
            await engines.publish({"w": np.ones(8, dtype=np.float32)}, step + 1)
        await pool.close()
        counts = ledger.counts()
        assert counts["admitted"] == len(admitted)
    assert max(Counter(admitted).values()) == 1
    async with asyncio.timeout(NOTICE_S):  # the others may have done all the work before anybody noticed
        while roster.num_lost + engines.roster.num_lost == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def test_a_node_is_killed_under_a_trainer(nodes: Any, doomed: Any) -> None:
    """The ranks' group cannot go on without one: all end within the bound, and a new group starts on what is left."""
    from t1.cluster.ray import RayCluster

    runner = LoopThread()

    async def made() -> RayCluster:
        return RayCluster()

    cluster = runner.run(made())
    wide = Needs(cpus=3)  # one a node: some rank is on the doomed one, or all three nodes are not used

    def opened(num_ranks: int) -> Any:
        return runner.run(
            open_ranks(cluster, adder, num_ranks=num_ranks, needs=wide, runner=runner, start_s=90, step_s=90)
        )

    trainer = opened(3)
    assert trainer.step([((), 1.0)])["world"] == 3.0

    async def die() -> None:
        await asyncio.sleep(0.5)
        await kill(nodes, doomed)

    dying = runner.start(die())
    with pytest.raises(InfrastructureError, match=r"was lost during 'linger'.*--resume"):
        trainer.tell("linger", EVERY, 60.0)
    dying.result(60)
    trainer.close()
    again = opened(2)
    assert again.step([((), 1.0)])["world"] == 2.0
    again.close()
    runner.run(cluster.close())
    runner.close()


async def test_what_does_not_fit_is_refused_within_its_bound(cluster: Cluster) -> None:
    assert cluster.room(Needs(cpus=3)) == 2
    with pytest.raises(InfrastructureError, match="has no room for 9 processes"):
        await cluster.reserve(9, Needs(cpus=2), timeout_s=2)
    with pytest.raises(InfrastructureError, match="had room for"):
        await cluster.start("wide", scripted_engine, Needs(cpus=64), timeout_s=2)
