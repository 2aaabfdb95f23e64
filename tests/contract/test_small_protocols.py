"""What every Verifier, Source and Tracker keeps, the fakes and the real ones alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from t1.errors import VerifierError
from t1.protocols import Source, Tracker, Verifier
from t1.rollouts import Collector, Lockstep, TaskStream
from t1.testing.harnesses import ScriptedHarness
from t1.testing.samplers import ScriptedSampler
from t1.testing.sandboxes import FakeSandboxProvider
from t1.testing.sources import ListSource
from t1.testing.tasks import example_task
from t1.testing.trackers import MemoryTracker
from t1.testing.verifiers import FakeVerifier, verdict_of
from t1.tracking import JsonLinesTracker, Trackers, read_metrics
from t1.types import RewardSource, Verdict
from t1.verification import PristineVerifier

# --------------------------------------------------------------------------------------------------------------------
# Verifier


@pytest.fixture(params=["fake", "pristine"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def verifier_of(kind: str, *passed: bool, broken: bool = False) -> tuple[Verifier, FakeSandboxProvider]:
    """A verifier whose task has these assertions, and the provider of its sandboxes."""
    tests = [{"name": str(i), "status": "passed" if flag else "failed"} for i, flag in enumerate(passed)]
    report = json.dumps({"results": {"tests": tests}}).encode()
    provider = FakeSandboxProvider(verify=lambda _: {} if broken else {"/logs/verifier/ctrf.json": report})
    if kind == "pristine":
        return PristineVerifier(provider), provider
    return FakeVerifier(verdict_of(*passed), failures=[VerifierError("broken")] * broken), provider


async def judge(kind: str, *passed: bool, broken: bool = False) -> Verdict:
    verifier, provider = verifier_of(kind, *passed, broken=broken)
    sandbox = await provider.open(example_task())
    try:
        return await verifier.verify(example_task(), sandbox)
    finally:
        assert sandbox.stopped, "nothing of the agent may run while its work is judged (case F4)"
        assert list(provider.live) == [sandbox.id], "the verifier closes its own sandbox and only that"


async def test_a_verdict_counts_what_passed(kind: str) -> None:
    assert (await judge(kind, True, False, True)).num_passed == 2


async def test_solved_is_everything_passed(kind: str) -> None:
    assert [(await judge(kind, True, True)).solved, (await judge(kind, True, False)).solved] == [True, False]


async def test_where_no_verdict_can_be_had_there_is_an_error(kind: str) -> None:
    """Case V6."""
    with pytest.raises(VerifierError):
        await judge(kind, broken=True)


# --------------------------------------------------------------------------------------------------------------------
# Source


def lockstep(runner: asyncio.Runner) -> Lockstep:
    """Two tasks a step, two rollouts a task."""
    collector = Collector(
        harness=ScriptedHarness(), provider=FakeSandboxProvider(), verifier=FakeVerifier(),
        sampler=ScriptedSampler(lambda prompt: [5, 6, 1]), scorer=lambda verdict: (1.0, RewardSource.ASSERTIONS),
    )  # fmt: skip
    tasks = TaskStream([example_task(name) for name in "abc"], seed=0)
    return Lockstep(collector, tasks, runner=runner, num_tasks=2, group_size=2, max_concurrent=4, seed=0)


@pytest.fixture(params=["list", "lockstep"])
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    with asyncio.Runner() as runner:
        real = lockstep(runner)
        made: Source = real if request.param == "lockstep" else ListSource([real.next(0), real.next(1)])
        yield made
        made.close()


def test_no_rollout_of_any_step_has_the_id_of_another(source: Source) -> None:
    ids = [rollout.id for step in (0, 1) for rollout in source.next(step)]
    assert len(ids) == len(set(ids)) == 8


def test_a_step_may_be_asked_for_again(source: Source) -> None:
    """A resumed run asks for the step at which it was killed."""
    first, again = source.next(1), source.next(1)
    assert [rollout.id for rollout in first] == [rollout.id for rollout in again]


# --------------------------------------------------------------------------------------------------------------------
# Tracker


@pytest.fixture(params=["memory", "json lines", "several"])
def tracker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tracker]:
    lines, memory = JsonLinesTracker(tmp_path / "metrics.jsonl"), MemoryTracker()
    made: dict[str, Tracker] = {"memory": memory, "json lines": lines, "several": Trackers([lines, memory])}
    yield made[request.param]
    lines.close()


def records(tracker: Tracker, tmp_path: Path) -> list[dict[str, object]]:
    return tracker.records if isinstance(tracker, MemoryTracker) else read_metrics(tmp_path / "metrics.jsonl")


def test_records_are_kept_in_order_and_as_they_were(tracker: Tracker, tmp_path: Path) -> None:
    record: dict[str, object] = {"stage": "rl", "step": 0, "reward": 0.5, "stops": {"submitted": 2}}
    tracker.log(record)
    kept = dict(record)
    record["step"] = 1
    tracker.log(record)
    assert records(tracker, tmp_path) == [kept, record]


def test_closing_twice_is_safe_and_keeps_the_records(tracker: Tracker, tmp_path: Path) -> None:
    tracker.log({"step": 0})
    tracker.close()
    tracker.close()
    assert records(tracker, tmp_path) == [{"step": 0}]
