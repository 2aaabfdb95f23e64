"""Design law 5."""

from __future__ import annotations

import math

import pytest

from t1.types import AssertionResult, AssertionStatus, RewardSource, Verdict
from t1.verification import score


def verdict(passed: int, failed: int = 0, skipped: int = 0) -> Verdict:
    statuses = (
        [AssertionStatus.PASSED] * passed + [AssertionStatus.FAILED] * failed + [AssertionStatus.SKIPPED] * skipped
    )
    found = tuple(AssertionResult(f"a{i}", status) for i, status in enumerate(statuses))
    return Verdict(found, solved=failed == skipped == 0)


def test_dense_is_the_absolute_number_of_passed_assertions_over_one_normalizer() -> None:
    assert score(verdict(3, 1), normalizer=8, kind="dense") == (3 / 8, RewardSource.ASSERTIONS)
    half_of_long = score(verdict(4, 4), normalizer=8, kind="dense")[0]
    half_of_short = score(verdict(1, 1), normalizer=8, kind="dense")[0]
    assert half_of_long > half_of_short


def test_skipped_is_not_passed() -> None:
    assert score(verdict(0, 0, 5), normalizer=5, kind="dense") == (0.0, RewardSource.ASSERTIONS)


@pytest.mark.parametrize(("solved", "reward"), [(True, 1.0), (False, 0.0)])
def test_without_a_report_the_binary_outcome_counts_and_is_tagged(solved: bool, reward: float) -> None:
    assert score(Verdict(None, solved), normalizer=8, kind="dense") == (reward, RewardSource.BINARY_FALLBACK)


def test_the_binary_ablation_ignores_partial_work() -> None:
    assert score(verdict(3, 1), normalizer=4, kind="binary") == (0.0, RewardSource.BINARY)
    assert score(verdict(4), normalizer=4, kind="binary") == (1.0, RewardSource.BINARY)


@pytest.mark.parametrize("normalizer", [0, -1, math.nan, math.inf])
def test_a_normalizer_that_is_no_positive_number_is_refused(normalizer: float) -> None:
    with pytest.raises(ValueError, match="normalizer: expected a positive number"):
        score(verdict(1), normalizer=normalizer, kind="dense")
