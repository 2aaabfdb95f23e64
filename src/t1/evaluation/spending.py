"""Where tokens, seconds and money of a run went: by stage and by task.

Boundary: sums of what rollouts, step metrics and the ledger recorded; a price that nobody set is zero.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from t1.errors import RunError
from t1.rollouts.cost import FREE, Prices, Usage, usage_of
from t1.types import Rollout

TRAINING = "rl"
_NAMES = tuple(f.name for f in fields(Usage))


@dataclass(frozen=True, slots=True)
class Spent:
    """What a stage or a task used."""

    attempts: int
    usage: Usage
    latency_s: Mapping[str, float] = field(default_factory=dict)
    """Percentiles (p50, p90, p99) of the seconds from launch to verdict; empty where single ones are not on record."""

    def as_dict(self) -> dict[str, Any]:
        """Sums under their own names, means of an attempt under `per_attempt`."""
        sums = asdict(self.usage)
        each = {name: value / self.attempts for name, value in sums.items()} if self.attempts else {}
        return {"attempts": self.attempts, **sums, "per_attempt": each, "latency_s": dict(self.latency_s)}


def spending(
    evaluated: Mapping[str, Sequence[Rollout]],
    steps: Sequence[Mapping[str, Any]],
    *,
    ledger: Path | None = None,
    prices: Prices = FREE,
) -> dict[str, Any]:
    """The report's section: `stages` (evaluations, then PPO), `tasks` (the dearest first), `money` in all.

    `steps` are the metrics of PPO steps; `ledger` adds latencies and the tasks of training, dropped trials included.
    """
    stages = {f"evaluate {name}": of_rollouts(rollouts, prices) for name, rollouts in evaluated.items()}
    tasks: dict[tuple[str, str], Spent] = {}
    for name, rollouts in evaluated.items():
        tasks |= {(f"evaluate {name}", task): spent for task, spent in by_task(rollouts, prices).items()}
    trials = read_trials(ledger) if ledger is not None and ledger.is_file() else {}
    if steps:
        stages[TRAINING] = of_steps(steps, [s for seconds, _ in trials.values() for s in seconds])
    tasks |= {(TRAINING, task): Spent(len(s), used, latencies(s)) for task, (s, used) in trials.items()}
    rows = [{"stage": stage, "task": task, **spent.as_dict()} for (stage, task), spent in tasks.items()]
    return {
        "stages": {name: spent.as_dict() for name, spent in stages.items()},
        "tasks": sorted(rows, key=lambda row: (-row["money"], -row["trial_s"], row["task"])),
        "money": sum(spent.usage.money for spent in stages.values()),
    }


def of_rollouts(rollouts: Sequence[Rollout], prices: Prices = FREE) -> Spent:
    """What rollouts used together, failed ones included."""
    used = sum((usage_of(rollout, prices) for rollout in rollouts), Usage())
    return Spent(len(rollouts), used, latencies([rollout.timings.wall_s for rollout in rollouts]))


def by_task(rollouts: Sequence[Rollout], prices: Prices = FREE) -> dict[str, Spent]:
    """What each task's rollouts used."""
    parts: dict[str, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        parts[rollout.id.task].append(rollout)
    return {task: of_rollouts(some, prices) for task, some in parts.items()}


def of_steps(steps: Sequence[Mapping[str, Any]], trial_s: Sequence[float] = ()) -> Spent:
    """What the logged PPO steps used together; a step that logged no usage counts with nothing."""
    sums = {name: sum(step.get(name) or 0 for step in steps) for name in _NAMES}
    return Spent(int(sum(step.get("num_rollouts") or 0 for step in steps)), Usage(**sums), latencies(trial_s))


def latencies(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p90 and p99."""
    if not seconds:
        return {}
    return {f"p{p}": float(value) for p, value in zip((50, 90, 99), np.percentile(seconds, (50, 90, 99)), strict=True)}


def read_trials(ledger: Path) -> dict[str, tuple[list[float], Usage]]:
    """Task → seconds of each settled trial and what they used together, from a run's ledger, which is only read."""
    query = f"SELECT task, {', '.join(f'COALESCE({name}, 0)' for name in _NAMES)} FROM trials WHERE state != 'running'"
    found: dict[str, tuple[list[float], Usage]] = {}
    try:
        with closing(sqlite3.connect(f"{ledger.resolve().as_uri()}?mode=ro", uri=True, timeout=10)) as db:
            for task, *numbers in db.execute(query):
                usage = Usage(*numbers)
                seconds, used = found.setdefault(task, ([], Usage()))
                seconds.append(usage.trial_s)
                found[task] = (seconds, used + usage)
    except sqlite3.Error as error:
        raise RunError(f"{ledger}: cannot be read as a run's ledger: {error}") from error
    return found


def bias_meter(steps: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The bias of admission at the end of the run (`t1.rollouts.bias`); empty where no step logged it."""
    last = steps[-1] if steps else {}
    return {key: float(value) for key, value in last.items() if key == "admitted_share" or key.startswith("bias_")}
