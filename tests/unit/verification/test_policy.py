"""From evidence to what a run makes of it: rewards, dropped attempts, the report's list."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from t1.evaluation.metrics import evaluate
from t1.rollouts import Collector
from t1.testing.harnesses import ScriptedHarness
from t1.testing.samplers import ScriptedSampler
from t1.testing.sandboxes import FakeSandboxProvider
from t1.testing.tasks import example_task
from t1.testing.verifiers import FakeVerifier, tampered_verdict
from t1.types import RewardSource, Rollout, RolloutId, TamperLevel
from t1.verification import score

TASK = example_task()


async def collect(policy: Any, level: TamperLevel = TamperLevel.TAMPERING) -> Rollout:
    """A rollout that solves its task, and tampers."""
    collector = Collector(
        harness=ScriptedHarness(),
        provider=FakeSandboxProvider(),
        verifier=FakeVerifier(tampered_verdict(level)),
        sampler=ScriptedSampler(lambda prompt: [5, 6, 1]),
        scorer=partial(score, normalizer=1.0, kind="dense", tamper=policy),
    )
    return await collector.collect(TASK, RolloutId(TASK.id, 0, 0))


async def test_a_zeroed_rollout_is_scored_and_not_solved() -> None:
    outcome = (await collect("zero")).outcome
    assert (outcome.reward, outcome.reward_source, outcome.solved) == (0.0, RewardSource.TAMPERED, False)
    assert outcome.failure is None


async def test_a_dropped_rollout_has_no_score_keeps_its_evidence_and_is_not_launched_again() -> None:
    rollout = await collect("drop")
    assert rollout.attempts == 1
    assert rollout.outcome.reward is None
    assert rollout.outcome.failure is not None
    assert rollout.outcome.failure.kind == "RolloutDropped"
    assert rollout.outcome.verdict is not None
    assert rollout.outcome.verdict.tampered


async def test_a_recorded_rollout_keeps_its_reward_and_its_evidence() -> None:
    outcome = (await collect("record")).outcome
    assert (outcome.reward, outcome.solved) == (1.0, True)
    assert outcome.verdict is not None
    assert outcome.verdict.tampered


@pytest.mark.parametrize("policy", ["zero", "drop", "record"])
async def test_every_case_of_tampering_is_in_the_results_whatever_the_policy(policy: str) -> None:
    result = evaluate([await collect(policy)])
    assert result.num_tampered == 1
    assert [case["rule"] for case in result.summary()["tamper"]] == ["link-to-verifier"]


async def test_what_is_only_noted_is_in_no_list_of_cases() -> None:
    result = evaluate([await collect("zero", TamperLevel.NOTED)])
    assert (result.num_tampered, result.solve_rate, list(result.tamper)) == (0, 1.0, [])
