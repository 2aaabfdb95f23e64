"""Engines in posts as one sampler: sessions stay where their cache is, what was lost comes back with its weights."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial

import numpy as np
import pytest

from t1.cluster.engines import EngineSeat, PlacedEngines
from t1.cluster.local import LocalCluster
from t1.cluster.posts import Cluster, Needs
from t1.cluster.roster import Care
from t1.errors import EngineUnavailable
from t1.protocols import Sampler
from t1.testing.posts import scripted_engine
from t1.testing.samplers import ScriptedSampler
from t1.testing.waiting import eventually
from t1.types import SamplingParams

PROMPT = np.array([2, 3], dtype=np.int32)
PARAMS = SamplingParams(max_tokens=8, stop_ids=(1,))
CARE = Care(beat_s=0.1, silent_s=2.0, start_s=60.0, stop_s=10.0, backoff_s=0.1)
WEIGHTS = {"w": np.ones(4, dtype=np.float32)}


async def open_engines(cluster: Cluster, number: int) -> PlacedEngines:
    recipes = {f"engine-{i}": partial(scripted_engine, version=3) for i in range(number)}
    engines = PlacedEngines(cluster, recipes, Needs(cpus=1), version=3, max_context=4096, care=CARE)
    await engines.open()
    return engines


@pytest.fixture
async def local() -> AsyncIterator[LocalCluster]:
    cluster = LocalCluster()
    yield cluster
    await cluster.close()


async def test_engines_are_a_sampler_wherever_they_are(cluster: Cluster) -> None:
    engines = await open_engines(cluster, 2)
    assert isinstance(engines, Sampler) and (engines.version, engines.max_context) == (3, 4096)
    sample = await engines.sample(PROMPT, PARAMS, session="a", routing_start=1)
    assert (sample.prompt.tolist(), sample.completion.tolist(), sample.versions.tolist()) == ([2, 3], [5, 1], [3, 3])
    assert sample.routing_start == 1
    await engines.publish(WEIGHTS, 4)
    assert engines.version == 4
    assert (await engines.sample(PROMPT, PARAMS, session="a")).versions.tolist() == [4, 4]
    with pytest.raises(ValueError, match="prompt"):
        await engines.sample(PROMPT[:0], PARAMS, session="a")
    await engines.close_session("a")
    await engines.aclose()


async def test_an_engine_that_dies_is_started_anew_with_the_weights_of_the_run(local: LocalCluster) -> None:
    engines = await open_engines(local, 1)
    await engines.publish(WEIGHTS, 4)
    os.kill(local.pid("engine-0"), signal.SIGKILL)
    with pytest.raises(EngineUnavailable, match="engine-0"):
        for _ in range(1000):
            await engines.sample(PROMPT, PARAMS, session="a")
    await eventually(lambda: engines.roster.members[0].starts == 2 and engines.roster.in_use)
    assert (await engines.sample(PROMPT, PARAMS, session="a")).versions.tolist() == [4, 4]
    await engines.aclose()


async def test_the_sessions_of_a_dead_engine_move_and_the_others_stay(local: LocalCluster) -> None:
    engines = await open_engines(local, 2)
    names = [f"session {i}" for i in range(40)]
    homes = {name: engines.home(name) for name in names}
    assert min(Counter(homes.values()).values()) > 8
    os.kill(local.pid("engine-1"), signal.SIGKILL)
    for name in names:
        await engines.sample(PROMPT, PARAMS, session=name)
    assert {engines.home(name) for name in names if homes[name] == "engine-0"} == {"engine-0"}
    await engines.aclose()


async def test_a_publish_goes_through_while_one_engine_is_lost(local: LocalCluster) -> None:
    engines = await open_engines(local, 2)
    os.kill(local.pid("engine-1"), signal.SIGKILL)
    await engines.publish(WEIGHTS, 4)
    await eventually(lambda: len(engines.roster.in_use) == 2)
    versions = [(await engines.sample(PROMPT, PARAMS, session=f"{i}")).versions[0] for i in range(12)]
    assert versions == [4] * 12
    await engines.aclose()


async def test_an_engine_that_was_started_anew_samples_nothing_before_it_has_its_weights() -> None:
    seat = EngineSeat(ScriptedSampler(lambda prompt: [5, 1]))
    with pytest.raises(EngineUnavailable, match="waits for the run's weights"):
        await seat.sample(PROMPT, PARAMS, "a", 0)
    await seat.publish(WEIGHTS, 7)
    assert (await seat.sample(PROMPT, PARAMS, "a", 0)).versions.tolist() == [7, 7]


async def test_a_publish_that_was_overtaken_changes_nothing() -> None:
    seat = EngineSeat(ScriptedSampler(lambda prompt: [5, 1]))
    await seat.publish(WEIGHTS, 7)
    await seat.publish(WEIGHTS, 6)
    assert await seat.pulse() == 7


async def test_workers_do_not_publish(local: LocalCluster) -> None:
    import pickle

    engines = await open_engines(local, 1)
    copy = pickle.loads(pickle.dumps(engines))
    assert (await copy.sample(PROMPT, PARAMS, session="a")).completion.tolist() == [5, 1]
    with pytest.raises(EngineUnavailable, match="driver"):
        await copy.publish(WEIGHTS, 4)
    await copy.aclose()
    await engines.aclose()
