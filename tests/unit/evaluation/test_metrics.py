"""Rates, intervals and comparisons of evaluation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1.evaluation.metrics import compare, evaluate, share_of_gain, sign_test, wilson
from t1.types import (
    AssertionResult,
    AssertionStatus,
    Failure,
    FinishReason,
    Outcome,
    RewardSource,
    Rollout,
    RolloutId,
    RolloutTimings,
    StopReason,
    Turn,
    Verdict,
)


def a_turn(num_sampled: int) -> Turn:
    """A turn with `num_sampled` sampled tokens."""
    return Turn(
        prompt=np.arange(4, dtype=np.int32),
        completion=np.ones(num_sampled, dtype=np.int32),
        logprobs=np.zeros(num_sampled, dtype=np.float32),
        versions=np.zeros(num_sampled, dtype=np.int32),
        finish=FinishReason.STOP,
    )


def a_rollout(task: str, passed: int, of: int = 4, *, member: int = 0, turns: int = 2, seconds: float = 1.0) -> Rollout:
    """A scored rollout that passed `passed` of `of` assertions."""
    statuses = [AssertionStatus.PASSED] * passed + [AssertionStatus.FAILED] * (of - passed)
    verdict = Verdict(tuple(AssertionResult(f"a{i}", s) for i, s in enumerate(statuses)), solved=passed == of)
    outcome = Outcome(StopReason.SUBMITTED, verdict, passed / of, RewardSource.ASSERTIONS)
    return Rollout(
        RolloutId(task, 0, member), "digest", tuple(a_turn(5) for _ in range(turns)), outcome, RolloutTimings(seconds)
    )


def a_failure(task: str) -> Rollout:
    """A rollout that the infrastructure spoiled."""
    failure = Failure("SandboxVanished", "gone")
    return Rollout(
        RolloutId(task, 0, 0), "digest", (), Outcome(StopReason.FAILED, None, None, RewardSource.NONE, failure)
    )


def test_wilson_gives_the_published_example():
    low, high = wilson(0.9, 10)
    assert (low, high) == pytest.approx((0.5958, 0.9821), abs=1e-4)


@given(st.integers(1, 500), st.data())
def test_wilson_holds_its_rate_and_stays_in_range(n, data):
    rate = data.draw(st.integers(0, n)) / n
    low, high = wilson(rate, n)
    assert 0 <= low <= rate + 1e-12 and rate - 1e-12 <= high <= 1


def test_failures_are_counted_and_never_scored():
    result = evaluate([a_rollout("a", 4), a_rollout("b", 2), a_failure("c")])
    assert result.num_tasks == 2
    assert result.solve_rate == 0.5
    assert result.failures == {"SandboxVanished": 1}
    assert result.stops == {"submitted": 1.0}


def test_means_are_over_scored_rollouts():
    result = evaluate([a_rollout("a", 4, turns=1, seconds=2.0), a_rollout("b", 2, turns=3, seconds=4.0)])
    assert result.mean_passed_assertions == 3
    assert result.mean_turns == 2
    assert result.mean_tokens == 10
    assert result.mean_seconds == 3


def test_more_rollouts_of_the_same_task_do_not_shrink_the_interval():
    once = evaluate([a_rollout("a", 4), a_rollout("b", 0)])
    often = evaluate([a_rollout(task, passed, member=m) for task, passed in (("a", 4), ("b", 0)) for m in range(50)])
    assert often.ci95 == once.ci95


def test_no_rollouts_say_nothing():
    result = evaluate([])
    assert (result.solve_rate, result.ci95, result.num_tasks) == (0.0, (0.0, 1.0), 0)


def test_a_comparison_pairs_the_shared_tasks():
    weak = evaluate([a_rollout(f"t{i}", 4 if i < 2 else 0) for i in range(20)])
    strong = evaluate([a_rollout(f"t{i}", 0 if i < 1 else 4) for i in range(20)])
    comparison = compare(weak, strong)
    assert comparison.difference == pytest.approx(0.85)
    assert (comparison.gained, comparison.lost) == (18, 1)
    assert comparison.disjoint
    assert comparison.ci95[0] < 0.85 < comparison.ci95[1]
    assert compare(strong, weak).difference == pytest.approx(-0.85)


def test_the_sign_test_is_exact():
    assert sign_test(5, 0) == pytest.approx(2 / 32)
    assert sign_test(3, 3) == 1.0
    assert sign_test(0, 0) == 1.0


def test_the_share_of_gain_is_none_without_a_gain():
    assert share_of_gain(0.1, 0.3, 0.8) == pytest.approx(5 / 7)
    assert share_of_gain(0.5, 0.4, 0.5) is None


def test_the_summary_is_json():
    summary = evaluate([a_rollout("a", 4), a_failure("b")]).summary()
    assert summary["ci95"] == [pytest.approx(v) for v in wilson(1.0, 1)]
    assert all(math.isfinite(summary[key]) for key in ("solve_rate", "mean_turns", "mean_tokens", "mean_seconds"))
