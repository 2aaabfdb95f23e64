"""A fleet keeps sessions where their cache is, loses an engine without losing a session, and never mixes versions."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from pathlib import Path

import pytest

from t1.errors import EngineError, EngineTimeout, EngineUnavailable
from t1.inference.fleet import Fleet
from t1.testing.engines import FakeEngine, Faults
from t1.testing.samplers import ScriptedSampler
from t1.types import SamplingParams

from .engines import PROMPT, checkpoint, client, fake, scripted

PARAMS = SamplingParams(max_tokens=8)


class Writer:
    """Stands where a CheckpointWriter stands, and writes no tensors."""

    def __init__(self, path: Path) -> None:
        self.path, self.written = path, 0

    def write(self, weights: object, version: int) -> Path:
        self.written += 1
        return checkpoint(self.path / f"v{version}")


def fleet_of(engines: list[FakeEngine], writer: Writer | None = None) -> Fleet:
    """A fleet that probes at once."""
    return Fleet([client(engine) for engine in engines], checkpoints=writer, probe_s=0.0)  # type: ignore[arg-type]


async def ask(fleet: Fleet, session: str) -> list[int]:
    """The versions of one request's tokens."""
    return (await fleet.sample(PROMPT, PARAMS, session=session)).versions.tolist()


async def test_sessions_are_spread_and_stay_where_they_are() -> None:
    engines = [fake("vllm"), fake("sglang"), fake("vllm")]
    fleet = fleet_of(engines)
    for _ in range(3):
        for session in range(9):
            await ask(fleet, str(session))
    assert [len(engine.asked) for engine in engines] == [9, 9, 9]
    homes = Counter(member.name for member in fleet.members for _ in member.sessions)
    assert sum(homes.values()) == 9
    await fleet.aclose()


async def test_closed_sessions_make_room() -> None:
    fleet = fleet_of([fake("vllm")])
    await ask(fleet, "a")
    await fleet.close_session("a")
    assert fleet.members[0].sessions == set()


async def test_sessions_move_when_their_engine_dies_and_no_request_fails() -> None:
    engines = [fake("vllm"), fake("sglang")]
    fleet = fleet_of(engines)
    for session in "abcd":
        await ask(fleet, session)
    engines[0].down = True
    assert [await ask(fleet, session) for session in "abcd"] == [[0] * 8] * 4
    assert fleet.num_moved == 2
    assert len(engines[1].asked) == 6
    await fleet.aclose()


async def test_a_dead_engine_is_asked_again_after_ever_longer_pauses() -> None:
    engines = [fake("vllm"), fake("vllm")]
    fleet = Fleet([client(engine) for engine in engines], probe_s=100.0, max_probe_s=400.0)
    engines[0].down = True
    await ask(fleet, "a")
    member = fleet.members[0]
    engines[0].down = False
    await ask(fleet, "b")
    assert member.down_since is not None, "its time has not come"
    pauses = [member.probe_at]
    for _ in range(3):
        fleet._quarantine(member, EngineUnavailable("still down"))
        pauses.append(member.probe_at)
    assert [round(later - sooner, -2) for sooner, later in itertools.pairwise(pauses)] == [100, 200, 0]
    await fleet.aclose()


async def test_an_engine_that_comes_back_gets_the_weights_that_it_missed(tmp_path: Path) -> None:
    engines = [fake("vllm"), fake("sglang")]
    writer = Writer(tmp_path)
    fleet = fleet_of(engines, writer)
    await ask(fleet, "a")
    engines[0].down = True
    await fleet.publish({}, 1)
    assert fleet.version == 1
    assert writer.written == 1
    engines[0].down = False
    while fleet.members[0].down_since is not None:
        await ask(fleet, "b")  # each request lets a due probe start
        await asyncio.sleep(0)
    assert engines[0].label == "1"
    assert fleet.members[0].sampler.version == 1
    await fleet.aclose()


async def test_an_engine_that_restarted_does_not_come_back_with_its_first_weights(tmp_path: Path) -> None:
    engines = [fake("vllm"), fake("vllm")]
    fleet = fleet_of(engines, Writer(tmp_path))
    await fleet.publish({}, 1)
    engines[0].down = True
    for session in "ab":
        await ask(fleet, session)
    engines[0].down = False
    engines[0].restart()
    while fleet.members[0].down_since is not None:
        await ask(fleet, "b")
        await asyncio.sleep(0)
    assert engines[0].label == "1"
    await fleet.aclose()


async def test_no_token_is_of_the_next_version_before_all_engines_have_it(tmp_path: Path) -> None:
    engines = [fake("vllm", step_s=0.005), fake("sglang", step_s=0.005)]
    fleet = fleet_of(engines, Writer(tmp_path))
    params = SamplingParams(max_tokens=60)
    pending = [asyncio.create_task(fleet.sample(PROMPT, params, session=str(i))) for i in range(6)]
    await asyncio.sleep(0.02)
    publishing = asyncio.create_task(fleet.publish({}, 1))
    late = [asyncio.create_task(fleet.sample(PROMPT, params, session=str(i))) for i in range(6, 10)]
    await publishing
    for task in pending:
        versions = (await task).versions.tolist()
        assert versions == sorted(versions)
        assert versions[0] == 0
        assert versions[-1] == 1
    for task in late:
        assert (await task).versions.tolist()[-1] == 1
    assert [engine.label for engine in engines] == ["1", "1"]
    await fleet.aclose()


async def test_an_engine_that_refuses_new_weights_is_out_of_use(tmp_path: Path) -> None:
    engines = [fake("vllm", faults=Faults(refuses_reload=True)), fake("vllm")]
    fleet = fleet_of(engines, Writer(tmp_path))
    await fleet.publish({}, 1)
    for session in "abc":
        assert await ask(fleet, session) == [1] * 8
    assert engines[0].asked == []
    await fleet.aclose()


async def test_a_publish_that_no_engine_takes_is_an_error(tmp_path: Path) -> None:
    fleet = fleet_of([fake("vllm", faults=Faults(refuses_reload=True)) for _ in range(2)], Writer(tmp_path))
    with pytest.raises(EngineUnavailable, match="no engine took version 1"):
        await fleet.publish({}, 1)
    with pytest.raises(EngineUnavailable, match="out of memory"):
        await ask(fleet, "a")
    await fleet.aclose()


async def test_engines_of_different_versions_are_no_fleet() -> None:
    with pytest.raises(ValueError, match=r"one weights version, got versions \[0, 3\]"):
        Fleet([scripted(), scripted(version=3)])


async def test_an_engine_whose_version_runs_ahead_is_not_used() -> None:
    samplers = [scripted(), scripted()]
    fleet = Fleet(samplers)
    await samplers[0].publish({}, 5)
    for session in "abc":
        assert await ask(fleet, session) == [0] * 8
    assert samplers[0].asked == []


async def test_only_a_dead_engine_is_a_reason_to_ask_another_one() -> None:
    """What the request or the answer does wrong would be wrong there too; a time-out was waited for once already."""
    for error in (EngineError("no sense"), EngineTimeout("too late"), ValueError("no")):
        samplers = [ScriptedSampler([[1]], failures={0: error}), ScriptedSampler([[1]])]
        with pytest.raises(type(error)):
            await ask(Fleet(samplers), "a")
        assert samplers[1].asked == []


async def test_without_any_engine_left_the_error_says_what_each_said() -> None:
    engines = [fake("vllm"), fake("sglang")]
    fleet = fleet_of(engines)
    for engine in engines:
        engine.down = True
    with pytest.raises(EngineUnavailable, match="is the server running"):
        await ask(fleet, "a")
    await fleet.aclose()
