"""Matched ablations: two arms that differ in one value of the configuration, over several seeds, compared in pairs.

An arm's run is paired with the other arm's by seed, and within a seed by task. Boundary: configurations and finished
runs in, numbers out; `t1.ablate` runs the arms. A run whose audit failed is no score.
"""

from __future__ import annotations

import difflib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from t1.config import RunConfig, check_config, differing_keys
from t1.errors import ConfigError, RunError, UserError
from t1.evaluation.attempts import Floats, bootstrap
from t1.evaluation.evidence import sightings
from t1.evaluation.metrics import wilson
from t1.rundir import read_run_config
from t1.tracking import read_metrics
from t1.types import Outcome

EVALUATION = "eval-rl.parquet"
INTEGRITY = ("drift", "findings", "routing", "fallback", "tampering", "lag", "failures", "finite", "contamination")
"""Rules of the verdict without which a score means nothing. The others (gap, bias, …) are what arms are about."""
MEASURES = {"solve_rate": "solve rate", "passed_share": "passed assertions"}
"""What arms are compared in, on held-out tasks; the reward is not among them, since an arm may change it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One question that a pair of arms answers. A positive difference speaks for the second arm, T1's own choice."""

    question: str
    key: str
    """The one key that differs."""
    arms: Mapping[str, Any]
    """Name → value of `key`."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """What both arms need for the question to have a meaning."""
    breaks: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Arm → rules of `INTEGRITY` that it breaks on purpose: what the other arm is there to avoid."""
    watch: tuple[str, ...] = ()
    """Metrics of a training step that show whether the change did anything at all."""


KINDS: Mapping[str, Kind] = {
    "reward": Kind(
        "does a reward for each passed assertion teach more than one for the whole task?",
        "reward.kind",
        {"binary": "binary", "dense": "dense"},
        watch=("solve_rate", "mean_passed_assertions", "explained_variance"),
    ),
    "tito": Kind(
        "does training on the sampled ids teach more than on the same text, encoded again?",
        "tito.keep",
        {"text": "text", "tokens": "tokens"},
        given={"ppo.replay_routing": False},
        breaks={"text": frozenset({"drift", "findings", "routing"})},
        watch=("gap", "gap_p99", "gap_ess"),
    ),
    "replay": Kind(
        "does training along the sampler's routes teach more than along the trainer's own?",
        "ppo.replay_routing",
        {"live": False, "replay": True},
        watch=("gap", "gap_p99", "gap_ess", "gap_flipped"),
    ),
    "admission": Kind(
        "does carrying slow trials over teach more than dropping them?",
        "rollouts.admission",
        {"first": "first", "carry": "carry"},
        watch=("admitted_share", "bias_duration", "bias_task", "lag_mean"),
    ),
    "importance": Kind(
        "do importance weights give back what training on the rollouts of earlier weights takes?",
        "ppo.importance_weights",
        {"off": "off", "lagging": "lagging"},
        watch=("lag_mean", "gap", "clip_fraction"),
    ),
    "critic": Kind(
        "does a learned critic teach more than the mean of the task's group?",
        "ppo.baseline",
        {"group": "group", "critic": "critic"},
        watch=("explained_variance", "grad_norm", "clip_fraction"),
    ),
}


def kind_of(name: str) -> Kind:
    """The kind of that name. Raises ConfigError with the nearest one."""
    if name not in KINDS:
        near = difflib.get_close_matches(name, KINDS, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"ablation {name!r} is none of {', '.join(KINDS)}{hint}")
    return KINDS[name]


def arms_of(name: str, base: RunConfig) -> dict[str, RunConfig]:
    """Arm → its configuration, proved to differ in the kind's key alone. Raises ConfigError where that cannot be."""
    kind = kind_of(name)
    if name == "critic" and base.rollouts.group_size < 2:
        raise ConfigError("rollouts.group_size is 1: a group of one has no mean to be compared with; set 4, say")
    rollouts = base.rollouts
    carries = rollouts.admission == "carry" and rollouts.oversample > 1
    if name == "importance" and rollouts.source != "lookahead" and not carries:
        raise ConfigError("no rollout is ever older than the weights that learn; set rollouts.oversample to 1.5, say")
    if name == "admission" and base.rollouts.oversample <= 1:
        raise ConfigError("rollouts.oversample is 1: no trial is ever left over to carry or drop; set 1.5, say")
    arms = {arm: changed(base, {**kind.given, kind.key: value}) for arm, value in kind.arms.items()}
    prove_matched(*arms.values(), key=kind.key)
    return arms


def changed(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """The configuration with other values at some dotted keys."""
    raw = config.model_dump(mode="json")
    for dotted, value in values.items():
        *parents, name = dotted.split(".")
        place = raw
        for parent in parents:
            place = place[parent]
        place[name] = value
    return check_config(raw, source="ablation")


def seeded(arm: RunConfig, seed: int, *, suite: Path, start: Path) -> RunConfig:
    """An arm's run of one seed: the same suite and the same policy at the start for all of them."""
    return changed(
        arm,
        {
            "run.seed": seed,
            "ppo.seed": seed,
            "evaluation.seed": arm.evaluation.seed + seed,
            "tasks.path": str(suite),
            "model.path": str(start),
        },
    )


def prove_matched(one: RunConfig, other: RunConfig, *, key: str) -> None:
    """Raise ConfigError unless the two differ in `key` and in nothing else."""
    differences = differing_keys(one, other)
    if set(differences) != {key}:
        found = ", ".join(f"{name} ({a!r} and {b!r})" for name, (a, b) in differences.items()) or "nothing"
        raise ConfigError(f"these arms are no ablation of {key}: they differ in {found}")


@dataclass(frozen=True, slots=True)
class ArmRun:
    """One finished run of an arm."""

    arm: str
    seed: int
    path: Path
    config: RunConfig
    solved: Mapping[str, float]
    """Held-out task → share of its scored rollouts that solved it."""
    passed: Mapping[str, float]
    """Held-out task → share of its assertions that passed, where reports could be read."""
    steps: Sequence[Mapping[str, Any]]
    """The metrics of each PPO step."""
    pins: Mapping[str, Any]
    failed: Mapping[str, str] = field(default_factory=dict)
    """Rules that the run's verdict failed → what they say."""

    def tasks(self, measure: str) -> Mapping[str, float]:
        """The numbers of one of `MEASURES`, by task."""
        return self.solved if measure == "solve_rate" else self.passed

    def unsound(self, kind: Kind) -> dict[str, str]:
        """The failed rules without which the run is no score in an ablation of this kind."""
        excused = kind.breaks.get(self.arm, frozenset())
        return {rule: says for rule, says in self.failed.items() if rule in INTEGRITY and rule not in excused}

    def mean(self, metric: str) -> float | None:
        """A metric of training, over the steps that have it."""
        values = [float(step[metric]) for step in self.steps if isinstance(step.get(metric), (int, float))]
        return sum(values) / len(values) if values else None


def is_done(path: Path) -> bool:
    """True where a run of an arm went to its end: the verdict is written last."""
    return (path / "verdict.json").is_file()


def find_run(folder: Path, config: RunConfig) -> Path | None:
    """A run in `folder` with this very configuration, whichever ablation made it."""
    for path in sorted(folder.glob("*/config.toml")):
        if read_run_config(path.parent) == config:
            return path.parent
    return None


def read_arm(path: Path, arm: str) -> ArmRun:
    """A finished run as an arm's."""
    if not is_done(path):
        raise RunError(f"{path}: this run did not go to its end; run the ablation again to go on with it")
    config = read_run_config(path)
    solved, passed = by_task((s.rollout.task, s.outcome) for s in sightings(path / "rollouts" / EVALUATION))
    verdict = json.loads((path / "verdict.json").read_text(encoding="utf-8"))
    return ArmRun(
        arm=arm,
        seed=config.run.seed,
        path=path,
        config=config,
        solved=solved,
        passed=passed,
        steps=[record for record in read_metrics(path / "metrics.jsonl") if record.get("stage") == "rl"],
        pins=json.loads((path / "pins.json").read_text(encoding="utf-8")),
        failed={check["rule"]: check["says"] for check in verdict["checks"] if check["grade"] == "fail"},
    )


def by_task(outcomes: Iterable[tuple[str, Outcome]]) -> tuple[dict[str, float], dict[str, float]]:
    """(task → share solved, task → share of assertions passed) over its scored rollouts; failures are no scores."""
    solved: dict[str, list[float]] = defaultdict(list)
    passed: dict[str, list[float]] = defaultdict(list)
    for task, outcome in outcomes:
        if outcome.failure is not None:
            continue
        solved[task].append(float(outcome.solved))
        if outcome.verdict is not None and (results := outcome.verdict.assertions):
            passed[task].append((outcome.verdict.num_passed or 0) / len(results))
    means = [{task: sum(values) / len(values) for task, values in some.items()} for some in (solved, passed)]
    return means[0], means[1]


@dataclass(frozen=True, slots=True)
class Difference:
    """The second arm against the first in one measure, over tasks that every run has a score of."""

    measure: str
    means: tuple[float, float]
    """Of the first arm and the second."""
    difference: float
    ci95: tuple[float, float]
    """For other seeds and other tasks: what the experiment may give when it is done again."""
    ci95_tasks: tuple[float, float]
    """For other tasks alone: how well these very policies are told apart."""
    by_seed: Mapping[int, float]
    num_tasks: int

    @property
    def seen(self) -> bool:
        """True where the wider interval does not reach zero."""
        return self.ci95[0] > 0 or self.ci95[1] < 0


@dataclass(frozen=True, slots=True)
class Ablation:
    """What the finished pairs of an ablation say."""

    name: str
    kind: Kind
    pairs: Sequence[tuple[ArmRun, ArmRun]]
    """By seed; the two arms in the order of the kind."""
    unsound: Mapping[str, Mapping[str, str]]
    """`arm seed` → the failed rules that keep the pair out of the comparison."""
    differences: Sequence[Difference]
    """In the order of `MEASURES`; empty where no pair is sound."""
    start: Mapping[str, float] = field(default_factory=dict)
    """Measure → mean on the held-out tasks before any of the arms began."""


def compare_arms(name: str, pairs: Sequence[tuple[ArmRun, ArmRun]], *, start: Path | None = None) -> Ablation:
    """Check that every pair is matched, leave out what failed its audit, and compare. Raises RunError."""
    kind = kind_of(name)
    for one, other in pairs:
        check_pair(one, other, kind)
    unsound = {f"{run.arm} {run.seed}": failed for pair in pairs for run in pair if (failed := run.unsound(kind))}
    sound = [pair for pair in pairs if not any(run.unsound(kind) for run in pair)]
    differences = [difference(measure, sound) for measure in MEASURES] if sound else []
    before: dict[str, float] = {}
    if start is not None:
        numbers = by_task((s.rollout.task, s.outcome) for s in sightings(start))
        before = {m: sum(n.values()) / len(n) for m, n in zip(MEASURES, numbers, strict=True) if n}
    return Ablation(name, kind, tuple(pairs), unsound, tuple(differences), before)


def check_pair(one: ArmRun, other: ArmRun, kind: Kind) -> None:
    """Raise RunError unless two runs had the same seed, tasks and budget, and differ in the kind's key alone."""
    place = f"{one.path} and {other.path}"
    try:
        prove_matched(one.config, other.config, key=kind.key)
    except ConfigError as error:
        raise RunError(f"{place}: {error}") from None
    if one.pins != other.pins:
        raise RunError(f"{place}: another suite or normalizer ({one.pins} and {other.pins}): nothing to compare")
    budgets = [(len(run.steps), run.config.run.steps) for run in (one, other)]
    if len({*budgets[0], *budgets[1]}) != 1:
        raise RunError(f"{place}: (steps taken, steps configured) are {budgets}: the budgets do not match")


def difference(measure: str, pairs: Sequence[tuple[ArmRun, ArmRun]]) -> Difference:
    """The second arm minus the first, paired by seed and task."""
    shared = sorted(set.intersection(*(set(run.tasks(measure)) for pair in pairs for run in pair)))
    if not shared:
        raise RunError(f"{measure}: no held-out task has a score in all runs")
    scores = np.array([[[run.tasks(measure)[task] for task in shared] for run in pair] for pair in pairs])
    change: Floats = scores[:, 1] - scores[:, 0]  # [seeds, tasks]
    first, second = scores.mean(axis=(0, 2))
    return Difference(
        measure=measure,
        means=(float(first), float(second)),
        difference=float(change.mean()),
        ci95=crossed_interval(change),
        ci95_tasks=bootstrap(change.mean(axis=0)) if change.any() else _nothing(len(shared)),
        by_seed={pair[0].seed: float(row.mean()) for pair, row in zip(pairs, change, strict=True)},
        num_tasks=len(shared),
    )


def crossed_interval(values: Floats) -> tuple[float, float]:
    """95 % interval of mean(values [S, M]) for new rows *and* new columns; of one row, for new columns alone.

    Var = (MS_rows + MS_columns − MS_rest) / (S M), from the mean squares of two crossed factors without replication,
    with Satterthwaite's degrees of freedom (1946, Biometrics Bulletin 2(6)). A row is a seed and whatever else one run
    differs by from the next. In simulated experiments of 2 to 4 seeds and 150 tasks it holds the truth in 90 to 97 of
    100; percentiles of resampled rows and columns, in whose place it stands, in 73 to 98: the fewer where runs differ
    much. They had shown an effect that a repeat did not. With two rows it is wide, since two say little of a spread.
    """
    try:
        from scipy.stats import t
    except ImportError:
        raise UserError("the intervals need a package: pip install 't1[report]'") from None
    num_rows, num_columns = values.shape
    if not values.any():
        return _nothing(num_columns)
    mean, rows, columns = values.mean(), values.mean(axis=1), values.mean(axis=0)
    rest = values - rows[:, None] - columns[None, :] + mean
    degrees = np.array([num_rows - 1, num_columns - 1, (num_rows - 1) * (num_columns - 1)])
    sums = np.array(
        [num_columns * np.sum((rows - mean) ** 2), num_rows * np.sum((columns - mean) ** 2), np.sum(rest**2)]
    )
    parts = np.divide(sums, degrees, out=np.zeros(3), where=degrees > 0) / values.size
    variance = max(parts[0] + parts[1] - parts[2], parts[0], parts[1])
    freedom = variance**2 / np.sum(np.divide(parts**2, degrees, out=np.zeros(3), where=degrees > 0))
    reach = float(t.ppf(0.975, freedom) * np.sqrt(variance))
    return float(mean) - reach, float(mean) + reach


def _nothing(num_tasks: int) -> tuple[float, float]:
    """Where no task tells the arms apart, resampling sees no spread; Wilson's bound on so many tasks, both ways."""
    bound = wilson(0.0, num_tasks)[1]
    return -bound, bound
