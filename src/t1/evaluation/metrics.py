"""What a set of rollouts says about a policy: rates with intervals, failures apart from scores.

Boundary: pure functions on rollouts. Nothing here runs anything or reads a file.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from t1.types import Rollout, TamperLevel

Z95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """One policy on one set of tasks. Means are over scored rollouts; infrastructure failures are only counted."""

    num_tasks: int
    """Tasks with at least one scored rollout."""
    num_rollouts: int
    """Scored rollouts."""
    solve_rate: float
    """Mean over tasks of the share of the task's rollouts that solved it."""
    ci95: tuple[float, float]
    """Wilson interval of `solve_rate` with n = num_tasks: rollouts of one task are not independent."""
    mean_reward: float
    mean_passed_assertions: float
    """Over rollouts with a per-assertion report."""
    mean_turns: float
    mean_tokens: float
    """Sampled tokens."""
    mean_seconds: float
    """Wall-clock of a rollout, waiting included."""
    stops: Mapping[str, float] = field(default_factory=dict)
    """Share of scored rollouts by stop reason, largest first."""
    num_fallbacks: int = 0
    """Scored by the binary outcome because the per-assertion report was missing or unreadable."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Infrastructure failures by kind, and attempts that the run's policy dropped; none of them is a score."""
    num_tampered: int = 0
    """Rollouts with evidence of tampering, dropped ones included."""
    tamper: Sequence[Mapping[str, str]] = ()
    """That evidence, piece by piece: rollout, rule, path, message; what was merely noted is left out."""
    by_task: Mapping[str, float] = field(default_factory=dict)
    """Solve rate of each task, for paired comparisons."""

    def summary(self) -> dict[str, Any]:
        """The numbers as JSON knows them, without the per-task table."""
        names = (
            *("solve_rate", "ci95", "num_tasks", "num_rollouts", "mean_reward", "mean_passed_assertions"),
            *("mean_turns", "mean_tokens", "mean_seconds", "stops", "num_fallbacks", "failures"),
            *("num_tampered", "tamper"),
        )
        values = {name: getattr(self, name) for name in names}
        return values | {"ci95": list(self.ci95), "stops": dict(self.stops), "failures": dict(self.failures)}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Policy b against policy a."""

    difference: float
    """Solve rate of b minus that of a."""
    ci95: tuple[float, float]
    """Newcombe's hybrid score interval of the difference, as of independent samples (wide where tasks are shared)."""
    disjoint: bool
    """The two solve rates' own intervals do not overlap."""
    gained: int
    """Shared tasks on which b does better."""
    lost: int
    p_value: float
    """Exact two-sided sign test on gained against lost."""


def wilson(rate: float, n: int, z: float = Z95) -> tuple[float, float]:
    """Wilson score interval of a rate p over n trials: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n)."""
    if n == 0:
        return (0.0, 1.0)
    center = rate + z * z / (2 * n)
    spread = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # The ends are exact where the rate is: rounding must not leave 5e-17 there.
    return (0.0 if rate == 0 else (center - spread) / scale, 1.0 if rate == 1 else (center + spread) / scale)


def evaluate(rollouts: Sequence[Rollout]) -> StageResult:
    """The result of a stage from all its rollouts, failed ones included."""
    scored = [rollout for rollout in rollouts if rollout.outcome.failure is None]
    failures = Counter(rollout.outcome.failure.kind for rollout in rollouts if rollout.outcome.failure is not None)
    solved: dict[str, list[bool]] = defaultdict(list)
    for rollout in scored:
        solved[rollout.id.task].append(rollout.outcome.solved)
    by_task = {task: sum(wins) / len(wins) for task, wins in sorted(solved.items())}
    rate = _mean(list(by_task.values()))
    verdicts = [rollout.outcome.verdict for rollout in scored if rollout.outcome.verdict is not None]
    stops = Counter(str(rollout.outcome.stop) for rollout in scored)
    return StageResult(
        num_tasks=len(by_task),
        num_rollouts=len(scored),
        solve_rate=rate,
        ci95=wilson(rate, len(by_task)),
        mean_reward=_mean([rollout.outcome.reward for rollout in scored if rollout.outcome.reward is not None]),
        mean_passed_assertions=_mean([v.num_passed for v in verdicts if v.num_passed is not None]),
        mean_turns=_mean([len(rollout.turns) for rollout in scored]),
        mean_tokens=_mean([rollout.num_sampled for rollout in scored]),
        mean_seconds=_mean([rollout.timings.wall_s for rollout in scored]),
        stops={stop: count / len(scored) for stop, count in stops.most_common()},
        num_fallbacks=sum(rollout.outcome.reward_source == "binary_fallback" for rollout in scored),
        failures=dict(failures.most_common()),
        num_tampered=sum(is_tampered(rollout) for rollout in rollouts),
        tamper=tuple(tamper_cases(rollouts)),
        by_task=by_task,
    )


def is_tampered(rollout: Rollout) -> bool:
    """True when there is evidence of tampering, whatever the run's policy made of it."""
    return rollout.outcome.verdict is not None and rollout.outcome.verdict.tampered


def tamper_cases(rollouts: Sequence[Rollout]) -> Iterator[dict[str, str]]:
    """Every piece of evidence of tampering."""
    for rollout in rollouts:
        for found in rollout.outcome.verdict.tamper if rollout.outcome.verdict is not None else ():
            if found.level is TamperLevel.TAMPERING:
                yield {"rollout": str(rollout.id), "rule": found.rule, "path": found.path, "message": found.message}


def compare(a: StageResult, b: StageResult) -> Comparison:
    """How much better b is than a, on all tasks and on the shared ones in pairs."""
    shared = a.by_task.keys() & b.by_task.keys()
    gained = sum(b.by_task[task] > a.by_task[task] for task in shared)
    lost = sum(b.by_task[task] < a.by_task[task] for task in shared)
    difference = b.solve_rate - a.solve_rate
    below = math.hypot(b.solve_rate - b.ci95[0], a.ci95[1] - a.solve_rate)
    above = math.hypot(b.ci95[1] - b.solve_rate, a.solve_rate - a.ci95[0])
    return Comparison(
        difference=difference,
        ci95=(difference - below, difference + above),
        disjoint=a.ci95[1] < b.ci95[0] or b.ci95[1] < a.ci95[0],
        gained=gained,
        lost=lost,
        p_value=sign_test(gained, lost),
    )


def sign_test(gained: int, lost: int) -> float:
    """Exact two-sided p of a split at least as uneven, were both sides equally likely."""
    n = gained + lost
    tail: int = sum(math.comb(n, k) for k in range(min(gained, lost) + 1))
    return float(min(1.0, 2 * tail / 2**n))


def share_of_gain(base: float, sft: float, rl: float) -> float | None:
    """Which share of the way from base to RL was made by RL; None where the whole way is no gain."""
    return (rl - sft) / (rl - base) if rl > base else None


def _mean(values: Sequence[float]) -> float:
    """The mean, 0 of nothing."""
    return sum(values) / len(values) if values else 0.0
