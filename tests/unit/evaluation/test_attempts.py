"""pass@k, pass^k, their intervals, and two policies task by task."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t1.evaluation.attempts import (
    bootstrap,
    compare_tasks,
    estimate,
    over_tasks,
    pass_at_k,
    pass_hat_k,
    permutation_test,
    ratio,
)
from t1.evaluation.metrics import wilson


@given(st.integers(1, 8), st.data())
def test_pass_at_k_and_pass_hat_k_are_the_shares_of_all_draws_of_k_attempts(scored, data):
    solved, k = data.draw(st.integers(0, scored)), data.draw(st.integers(1, scored))
    draws = list(combinations([True] * solved + [False] * (scored - solved), k))
    assert pass_at_k(solved, scored, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert pass_hat_k(solved, scored, k) == pytest.approx(sum(map(all, draws)) / len(draws))


@pytest.mark.parametrize(("solved", "scored", "k"), [(0, 2, 3), (3, 2, 1), (0, 0, 1), (1, 2, 0)])
def test_what_cannot_be_estimated_without_bias_is_refused(solved, scored, k):
    with pytest.raises(ValueError, match="pass@k"):
        pass_at_k(solved, scored, k)


def test_tasks_with_too_few_scored_attempts_are_left_out_and_counted():
    at_two = over_tasks({"a": (1, 2), "b": (0, 1), "c": (0, 0)}, pass_at_k, 2)
    assert (at_two.mean, at_two.num_tasks) == (1.0, 1)
    assert over_tasks({"c": (0, 0)}, pass_at_k, 1) is None


def test_an_interval_over_tasks_is_wider_than_one_over_attempts():
    tasks = [1.0] * 10 + [0.0] * 10  # each the mean of 20 equal attempts
    low, high = estimate(tasks).ci95
    naive = wilson(0.5, 400)
    assert high - low > 3 * (naive[1] - naive[0])


def test_the_bootstrap_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(60):
        low, high = bootstrap(rng.binomial(4, 0.4, size=60) / 4)
        hits += low <= 0.4 <= high
    assert 51 <= hits <= 60


def test_equal_results_still_have_an_interval():
    assert estimate([0.0] * 20).ci95 == wilson(0.0, 20)
    assert estimate([1.0] * 20).ci95 == wilson(1.0, 20)


def test_a_mean_over_attempts_weighs_attempts_and_resamples_tasks():
    value = ratio([(10.0, 1), (2.0, 2)])
    assert value.mean == 4.0 and value.num_tasks == 2
    assert value.ci95[0] >= 1.0 and value.ci95[1] <= 10.0


def test_two_policies_are_compared_on_shared_tasks_alone():
    before = {"a": (0, 1), "b": (1, 1), "c": (1, 1), "only-a": (1, 1), "unscored": (0, 0)}
    after = {"a": (1, 1), "b": (0, 1), "c": (1, 1), "only-b": (1, 1), "unscored": (1, 1)}
    pair = compare_tasks(before, after)
    assert (pair.num_tasks, pair.gained, pair.lost) == (3, ("a",), ("b",))
    assert pair.difference == 0 and pair.mcnemar_p == 1.0
    assert compare_tasks({"a": (1, 1)}, {"b": (1, 1)}) is None


def test_mcnemar_is_the_published_exact_test():
    before = {f"g{i}": (0, 1) for i in range(9)} | {"l": (1, 1)}
    after = {f"g{i}": (1, 1) for i in range(9)} | {"l": (0, 1)}
    pair = compare_tasks(before, after)
    assert pair.mcnemar_p == pytest.approx(2 * (math.comb(10, 0) + math.comb(10, 1)) / 2**10)
    assert pair.permutation_p == pytest.approx(pair.mcnemar_p, abs=0.01)


def test_several_attempts_leave_mcnemar_out_and_sort_changes_by_size():
    pair = compare_tasks({"a": (0, 4), "b": (0, 4)}, {"a": (1, 4), "b": (4, 4)})
    assert pair.mcnemar_p is None
    assert pair.gained == ("b", "a")


@settings(max_examples=25)
@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=1, max_size=9))
def test_the_permutation_test_agrees_with_all_sign_flips(differences):
    values = np.array(differences)
    signs = np.array(np.meshgrid(*[[-1, 1]] * len(values))).reshape(len(values), -1)
    exact = (np.abs(values @ signs) >= abs(values.sum()) - 1e-9).mean()
    assert permutation_test(values) == pytest.approx(exact, abs=0.04)


def test_where_no_task_changed_the_interval_still_knows_how_few_they_were():
    few, many = ({str(i): (0, 2) for i in range(n)} for n in (10, 1000))
    pairs = [compare_tasks(same, same) for same in (few, many)]
    assert all(pair is not None and pair.difference == 0 and pair.permutation_p == 1 for pair in pairs)
    (low, high), (lower, higher) = (pair.ci95 for pair in pairs if pair is not None)
    assert low == -high and 0.2 < high < 0.3
    assert lower == -higher and higher < 0.005
