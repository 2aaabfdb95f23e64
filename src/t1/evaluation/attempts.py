"""Several attempts at each task: pass@k, pass^k and means, with intervals that resample tasks.

Attempts at one task are not independent, so the bootstrap draws whole tasks. Boundary: pure functions on numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from t1.evaluation.metrics import sign_test, wilson

NUM_RESAMPLES = 4000
_CHUNK = 64
Floats: TypeAlias = npt.NDArray[np.float64]
Tally: TypeAlias = tuple[int, int]
"""(solved, scored) attempts at one task."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over tasks with its 95 % interval."""

    mean: float
    ci95: tuple[float, float]
    num_tasks: int
    """Tasks that it is a mean of."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Policy b against policy a, task by task, on the tasks that both have a score of."""

    num_tasks: int
    difference: float
    """Mean over the shared tasks of solve rate of b minus that of a."""
    ci95: tuple[float, float]
    """Paired bootstrap: tasks are drawn, each with both of its rates."""
    mcnemar_p: float | None
    """Exact, two-sided; None where a task has several attempts, which McNemar's test does not know."""
    permutation_p: float
    """Two-sided: how often flipping the signs of the tasks' differences gives as large a mean."""
    gained: tuple[str, ...]
    """Tasks on which b does better, the largest change first."""
    lost: tuple[str, ...]


def pass_at_k(solved: int, scored: int, k: int) -> float:
    """Chance that at least one of k attempts solves the task: 1 − C(n − c, k) / C(n, k), unbiased for k ≤ n."""
    _check(solved, scored, k)
    return 1 - math.comb(scored - solved, k) / math.comb(scored, k)


def pass_hat_k(solved: int, scored: int, k: int) -> float:
    """Chance that all of k attempts solve the task: C(c, k) / C(n, k), unbiased for k ≤ n (pass^k)."""
    _check(solved, scored, k)
    return math.comb(solved, k) / math.comb(scored, k)


def _check(solved: int, scored: int, k: int) -> None:
    if not (1 <= k <= scored and 0 <= solved <= scored):
        raise ValueError(f"pass@k: expected 1 ≤ k ≤ n and 0 ≤ c ≤ n, got {k=} n={scored} c={solved}")


def over_tasks(tallies: Mapping[str, Tally], measure: Callable[[int, int, int], float], k: int) -> Estimate | None:
    """`measure` (pass_at_k or pass_hat_k) as a mean over the tasks with at least k scored attempts; None without any.

    A task with fewer (the infrastructure spoiled some) is left out and shows in `num_tasks`, never counted as failed.
    """
    values = [measure(solved, scored, k) for solved, scored in tallies.values() if scored >= k]
    return estimate(values) if values else None


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of one value a task, all between 0 and 1, with a bootstrap interval over tasks.

    Where all values are 0 or all are 1, resampling sees no spread: then it is Wilson's interval of so many tasks.
    """
    rate = sum(values) / len(values)
    if len(set(values)) == 1 and rate in (0.0, 1.0):
        return Estimate(rate, wilson(rate, len(values)), len(values))
    return Estimate(rate, bootstrap(np.asarray(values, dtype=np.float64)), len(values))


def ratio(totals: Sequence[tuple[float, int]]) -> Estimate:
    """Mean over attempts of any number, from (sum, count) of each task; whole tasks are drawn for the interval."""
    sums = np.array([total for total, _ in totals], dtype=np.float64)
    counts = np.array([count for _, count in totals], dtype=np.float64)
    if not len(sums) or not counts.sum():
        return Estimate(0.0, (0.0, 0.0), 0)
    return Estimate(float(sums.sum() / counts.sum()), bootstrap(sums, counts), len(sums))


def bootstrap(values: Floats, weights: Floats | None = None, *, seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval of Σ values[M] / Σ weights[M] over resampled tasks; the same numbers give the same."""
    below = np.ones_like(values) if weights is None else weights
    rng = np.random.default_rng(seed)
    means: list[Floats] = []
    for _ in range(0, NUM_RESAMPLES, _CHUNK):
        drawn = rng.integers(len(values), size=(_CHUNK, len(values)))
        means.append(values[drawn].sum(1) / np.maximum(below[drawn].sum(1), 1e-12))
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return float(low), float(high)


def compare_tasks(a: Mapping[str, Tally], b: Mapping[str, Tally]) -> Paired | None:
    """Policy b against policy a on the tasks that both have a score of; None where there is none."""
    shared = sorted(task for task in a.keys() & b.keys() if a[task][1] and b[task][1])
    if not shared:
        return None
    change = {task: b[task][0] / b[task][1] - a[task][0] / a[task][1] for task in shared}
    differences = np.array([change[task] for task in shared], dtype=np.float64)
    gained = sorted((task for task in shared if change[task] > 0), key=lambda task: (-change[task], task))
    lost = sorted((task for task in shared if change[task] < 0), key=lambda task: (change[task], task))
    single = all(a[task][1] == b[task][1] == 1 for task in shared)
    return Paired(
        num_tasks=len(shared),
        difference=float(differences.mean()),
        ci95=_interval(differences),
        # With one attempt a task, the exact McNemar test is the sign test on the discordant tasks.
        mcnemar_p=sign_test(len(gained), len(lost)) if single else None,
        permutation_p=permutation_test(differences),
        gained=tuple(gained),
        lost=tuple(lost),
    )


def _interval(differences: Floats) -> tuple[float, float]:
    """Paired bootstrap over tasks; where no task changed, and it sees no spread, Wilson's bound of none in so many."""
    if not differences.any():
        most = wilson(0.0, len(differences))[1]
        return -most, most
    return bootstrap(differences)


def permutation_test(differences: Floats, *, seed: int = 0) -> float:
    """Two-sided p of mean(differences[M]) when every difference might as well have the other sign.

    (1 + flips at least as extreme) / (1 + flips): never 0, and valid for any number of flips.
    """
    moved = differences[differences != 0]
    if not len(moved):
        return 1.0
    rng = np.random.default_rng(seed)
    extreme = 0
    for _ in range(0, NUM_RESAMPLES, _CHUNK):
        signs = rng.integers(2, size=(_CHUNK, len(moved))) * 2 - 1
        extreme += int((np.abs(signs @ moved) >= abs(moved.sum()) - 1e-9).sum())
    flips = math.ceil(NUM_RESAMPLES / _CHUNK) * _CHUNK
    return (1 + extreme) / (1 + flips)
