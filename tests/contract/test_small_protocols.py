"""What every Verifier, Source, Tracker and Trainer keeps, the fakes and the real ones alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3Config

from t1.errors import VerifierError
from t1.inference import load_model
from t1.loop import train
from t1.protocols import Source, Tracker, Trainer, Verifier
from t1.rollouts import Admission, Collector, Ledger, Lockstep, LoopThread, Rule, TaskStream
from t1.testing.harnesses import ScriptedHarness
from t1.testing.samplers import ScriptedSampler
from t1.testing.sandboxes import FakeSandboxProvider
from t1.testing.sources import ListSource
from t1.testing.tasks import example_task
from t1.testing.trackers import MemoryTracker
from t1.testing.trainers import CountingTrainer
from t1.testing.verifiers import FakeVerifier, verdict_of
from t1.tracking import JsonLinesTracker, Trackers, read_metrics
from t1.training.config import PPOConfig
from t1.training.critic import Critic
from t1.training.experience import Experience
from t1.training.ppo import PPOTrainer
from t1.types import Boundary, Case, RewardSource, RolloutId, Trajectory, Verdict
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


def lockstep(runner: LoopThread, ledger: Ledger) -> Lockstep:
    """Two tasks a step, two rollouts a task."""
    collector = Collector(
        harness=ScriptedHarness(), provider=FakeSandboxProvider(), verifier=FakeVerifier(),
        sampler=ScriptedSampler(lambda prompt: [5, 6, 1]), scorer=lambda verdict: (1.0, RewardSource.ASSERTIONS),
    )  # fmt: skip
    tasks = TaskStream([example_task(name) for name in "abc"], seed=0)
    return Lockstep(
        collector, tasks, rule=Rule(Admission.ALL, num_needed=4, max_lag=0), runner=runner, num_tasks=2, group_size=2,
        max_concurrent=4, seed=0, version=lambda: 0, watchdog_s=5.0, ledger=ledger,
    )  # fmt: skip


@pytest.fixture(params=["list", "lockstep"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Source]]:
    """Opens a source as a run does that was killed and goes on."""
    runner = LoopThread()
    with closing(runner), closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
        if request.param == "lockstep":
            yield lambda: lockstep(runner, ledger)
        else:
            real = lockstep(runner, ledger)
            steps = [real.next(0), real.next(1)]
            yield lambda: ListSource(steps)


def test_no_rollout_of_any_step_has_the_id_of_another(reopen: Callable[[], Source]) -> None:
    source = reopen()
    ids = [rollout.id for step in (0, 1) for rollout in source.next(step)]
    assert len(ids) == len(set(ids)) == 8
    source.close()


def test_a_step_that_was_handed_over_is_handed_over_again_as_it_was(reopen: Callable[[], Source]) -> None:
    """A resumed run asks for the steps after its last checkpoint."""
    source = reopen()
    first = [list(source.next(0)), list(source.next(1))][1]
    source.close()
    again = reopen().next(1)
    assert [rollout.id for rollout in first] == [rollout.id for rollout in again]
    for before, after in zip(first, again, strict=True):
        assert [turn.completion.tolist() for turn in before.turns] == [turn.completion.tolist() for turn in after.turns]
        assert before.outcome == after.outcome


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


# --------------------------------------------------------------------------------------------------------------------
# Trainer


def trajectory(member: int) -> Trajectory:
    """Two tokens of context, two actions."""
    mask = np.array([False, False, True, True])
    zeros = np.zeros(4, dtype=np.int32)
    return Trajectory(
        rollout=RolloutId("t", 0, member),
        segment=0,
        tokens=np.array([1, 2, 3 + member, 4], dtype=np.int32),
        mask=mask,
        logprobs=np.where(mask, -1.0, 0.0).astype(np.float32),
        turn=zeros,
        version=zeros,
        routing=None,
        boundaries=(Boundary(0, Case.OPEN),),
    )


def ppo_trainer() -> PPOTrainer:
    """A dense policy of one layer."""
    torch.manual_seed(0)
    policy = load_model(
        Qwen3Config(
            vocab_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
            head_dim=16, intermediate_size=16, tie_word_embeddings=True, max_position_embeddings=64,
        )
    )  # fmt: skip
    return PPOTrainer(policy, Critic.from_policy(policy), PPOConfig(critic_warmup_steps=0, num_minibatches=1))


@pytest.fixture(params=["counting", "ppo"])
def new_trainer(request: pytest.FixtureRequest) -> Callable[[], Trainer]:
    return CountingTrainer if request.param == "counting" else ppo_trainer


BATCH = [((trajectory(member),), float(member)) for member in range(2)]


def same(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Equal weights, whatever they are made of."""
    return ours.keys() == theirs.keys() and all(
        torch.equal(torch.as_tensor(ours[name]), torch.as_tensor(theirs[name])) for name in ours
    )


def copied(weights: Mapping[str, Any]) -> dict[str, Any]:
    return {name: torch.as_tensor(weight).clone() for name, weight in weights.items()}


def test_a_step_changes_the_weights_and_tells_its_numbers(new_trainer: Callable[[], Trainer]) -> None:
    trainer = new_trainer()
    before = copied(trainer.weights())
    stats = trainer.step(BATCH)
    assert stats["num_actions"] == 4
    assert not same(before, trainer.weights())


def test_a_step_on_nothing_is_refused(new_trainer: Callable[[], Trainer]) -> None:
    with pytest.raises(ValueError, match="expected at least one"):
        new_trainer().step([])


def test_what_was_saved_is_what_is_loaded(new_trainer: Callable[[], Trainer], tmp_path: Path) -> None:
    trainer, other = new_trainer(), new_trainer()
    trainer.step(BATCH)
    trainer.save(tmp_path / "here")
    other.load(tmp_path / "here")
    assert same(copied(trainer.weights()), other.weights())


def test_the_loop_publishes_what_each_step_made(new_trainer: Callable[[], Trainer]) -> None:
    """The loop over fakes: collect, prepare, step, publish, record, in this order and for every step."""
    trainer, seen, published = new_trainer(), [], []
    experience = Experience((), ((trajectory(0),), (trajectory(1),)), (0.0, 1.0))
    train(
        source=ListSource([[], [], []]),
        prepare=lambda rollouts: experience,
        trainer=trainer,
        publish=lambda weights, version: published.append((copied(weights), version)),
        record=lambda step, rollouts, experience, stats: seen.append((step, stats["num_actions"])),
        steps=range(1, 3),
    )
    assert seen == [(1, 4), (2, 4)]
    assert [version for _, version in published] == [2, 3]
    assert same(published[-1][0], trainer.weights())
    assert not same(published[0][0], published[1][0])
