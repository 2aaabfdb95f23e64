"""The results of an evaluation: one row an attempt, a summary, and the conditions that both were made under.

    OUT/attempts.parquet   one row an attempt              OUT/rollouts.parquet   every turn, token by token
    OUT/results.json       conditions and summary          OUT/results.md         the same for people
    OUT/harbor/            a job with ATIF trajectories, for Harbor's viewer (`t1.evaluation.atif`)

Boundary: turns rollouts into rows and rows into documents. It runs nothing.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from t1.errors import RunError
from t1.evaluation.attempts import Estimate, Tally, over_tasks, pass_at_k, pass_hat_k, ratio
from t1.evaluation.metrics import is_tampered, wilson
from t1.rollouts.cost import FREE, Prices, Usage, usage_of
from t1.types import Outcome, RewardSource, Rollout, StopReason

UNITS = {field.name: field.type for field in fields(Usage)}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a task, as a row. An attempt with a `failure` has no score."""

    task: str
    digest: str
    attempt: int
    solved: bool
    reward: float | None
    passed: int | None
    """Assertions that passed; None without a per-assertion report."""
    assertions: int | None
    stop: str
    failure: str
    """Kind of the infrastructure failure; empty where there is none."""
    tampered: bool
    turns: int
    launches: int
    usage: Usage
    own_reward: float | None = None
    """The verifier's own number where it decided, and nothing was held against the agent."""

    def as_row(self) -> dict[str, Any]:
        """Flat, for a table."""
        row: dict[str, Any] = asdict(self)
        usage: dict[str, Any] = row.pop("usage")
        return row | usage


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a score depends on beside the policy's skill; stands beside every score."""

    policy: str
    policy_digest: str
    """Of the checkpoint's files; for an endpoint, the model's name as the endpoint reports it."""
    harness: str
    sampling: Mapping[str, Any]
    limits: Mapping[str, Any]
    """Of the harness: turns, tokens, time of a command."""
    tasks: str
    suite_digest: str
    attempts: int
    seed: int
    versions: Mapping[str, str | None]
    git_commit: str | None
    protocol: str = ""
    """The named protocol, and in what the run departs from it."""

    def as_row(self) -> dict[str, str | None]:
        """What every row of attempts carries; mappings as JSON."""
        values = {name: getattr(self, name) for name in _BESIDE}
        return {k: json.dumps(dict(v), sort_keys=True) if isinstance(v, Mapping) else v for k, v in values.items()}


def to_attempt(rollout: Rollout, prices: Prices = FREE, *, spent: Usage | None = None) -> Attempt:
    """The row of a rollout. `spent` replaces what its turns say of tokens, where a server counted them."""
    outcome, verdict = rollout.outcome, rollout.outcome.verdict
    results = None if verdict is None else verdict.assertions
    return Attempt(
        task=rollout.id.task,
        digest=rollout.task_digest,
        attempt=rollout.id.member,
        solved=outcome.solved,
        reward=outcome.reward,
        passed=None if verdict is None else verdict.num_passed,
        assertions=None if results is None else len(results),
        stop=str(outcome.stop),
        failure="" if outcome.failure is None else outcome.failure.kind,
        tampered=is_tampered(rollout),
        turns=len(rollout.turns),
        launches=rollout.attempts,
        usage=spent or usage_of(rollout, prices),
        own_reward=_own_reward(outcome),
    )


def _own_reward(outcome: Outcome) -> float | None:
    """0 where tampering cost the reward; None where a report of assertions decided."""
    if outcome.failure is not None or outcome.verdict is None or outcome.verdict.own_reward is None:
        return None
    return 0.0 if outcome.reward_source is RewardSource.TAMPERED else outcome.verdict.own_reward


def tallies(attempts: Sequence[Attempt]) -> dict[str, Tally]:
    """Task → (solved, scored) attempts; tasks without a score have (0, 0)."""
    counted: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for one in attempts:
        tally = counted[one.task]
        if not one.failure:
            tally[0] += one.solved
            tally[1] += 1
    return {task: (solved, scored) for task, (solved, scored) in sorted(counted.items())}


def summarize(attempts: Sequence[Attempt]) -> dict[str, Any]:
    """The numbers of an evaluation as JSON knows them. Means are over scored attempts; failures are only counted."""
    counted = tallies(attempts)
    scored = [one for one in attempts if not one.failure]
    largest = max((n for _, n in counted.values()), default=0)
    reported = [one for one in scored if one.passed is not None]
    solves = sum(one.solved for one in scored)
    money = sum(one.usage.money for one in attempts)
    return {
        "num_tasks": sum(n > 0 for _, n in counted.values()),
        "num_attempts": len(scored),
        "pass_at": {str(k): _estimate(over_tasks(counted, pass_at_k, k)) for k in range(1, largest + 1)},
        "pass_hat": {str(k): _estimate(over_tasks(counted, pass_hat_k, k)) for k in range(1, largest + 1)},
        "wilson95": list(wilson(*_rate(counted))),
        "passed_assertions": _clustered(reported, lambda one: one.passed or 0),
        "passed_share": _clustered(reported, lambda one: (one.passed or 0) / max(one.assertions or 1, 1)),
        "reward": _clustered(scored, lambda one: one.reward or 0.0),
        "own_reward": _clustered(
            [one for one in scored if one.own_reward is not None], lambda one: one.own_reward or 0.0
        ),
        "turns": _clustered(scored, lambda one: one.turns),
        "timed_out": _clustered(scored, lambda one: one.stop == StopReason.TIME_LIMIT),
        "tokens_in": _clustered(scored, lambda one: one.usage.tokens_in),
        "tokens_cached": _clustered(scored, lambda one: one.usage.tokens_cached),
        "tokens_out": _clustered(scored, lambda one: one.usage.tokens_out),
        "wall_s": _clustered(scored, lambda one: one.usage.trial_s),
        "engine_s": _clustered(scored, lambda one: one.usage.engine_s),
        "sandbox_s": _clustered(scored, lambda one: one.usage.sandbox_s),
        "verifier_s": _clustered(scored, lambda one: one.usage.verifier_s),
        "money": money,
        "money_per_solve": money / solves if solves else None,
        "stops": dict(Counter(one.stop for one in scored).most_common()),
        "failures": dict(Counter(one.failure for one in attempts if one.failure).most_common()),
        "unscored_tasks": [task for task, (_, n) in counted.items() if n == 0],
        "relaunched": sum(one.launches - 1 for one in attempts),
        "tampered": sum(one.tampered for one in attempts),
    }


def _rate(counted: Mapping[str, Tally]) -> tuple[float, int]:
    """(mean solve rate over tasks, number of tasks)."""
    rates = [solved / n for _, (solved, n) in counted.items() if n]
    return (sum(rates) / len(rates) if rates else 0.0), len(rates)


def _estimate(value: Estimate | None) -> dict[str, Any] | None:
    return None if value is None else {"mean": value.mean, "ci95": list(value.ci95), "num_tasks": value.num_tasks}


def _clustered(attempts: Sequence[Attempt], number: Callable[[Attempt], float]) -> dict[str, Any] | None:
    """Mean of a number over attempts, with an interval over tasks."""
    totals: dict[str, tuple[float, int]] = {}
    for one in attempts:
        total, count = totals.get(one.task, (0.0, 0))
        totals[one.task] = (total + number(one), count + 1)
    return _estimate(ratio(list(totals.values()))) if totals else None


def write_results(
    out: Path,
    attempts: Sequence[Attempt],
    conditions: Conditions,
    *,
    against: Mapping[str, Any] | None = None,
    exposure: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the rows and the summary into the directory `out`; returns what results.json holds."""
    out.mkdir(parents=True, exist_ok=True)
    beside = conditions.as_row()
    table = pa.Table.from_pylist([one.as_row() | beside for one in attempts], schema=_SCHEMA)
    table = table.replace_schema_metadata({b"conditions": json.dumps(asdict(conditions)).encode()})
    pq.write_table(table, out / "attempts.parquet", compression="zstd")
    results = {
        "conditions": asdict(conditions),
        "summary": summarize(attempts),
        "exposure": exposure,
        "against": against,
    }
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return results


def read_attempts(out: Path) -> tuple[list[Attempt], Conditions]:
    """The rows and conditions of an earlier evaluation."""
    path = out / "attempts.parquet" if out.is_dir() else out
    try:
        table = pq.read_table(path)
        stored = json.loads((table.schema.metadata or {})[b"conditions"])
        rows = table.drop_columns([name for name in _BESIDE if name in table.column_names]).to_pylist()
        return [_from_row(row) for row in rows], Conditions(**stored)
    except (OSError, pa.ArrowException, KeyError, TypeError) as error:
        raise RunError(f"{path}: no results of `t1 eval --out` ({error})") from error


def _from_row(row: dict[str, Any]) -> Attempt:
    usage = Usage(**{name: row.pop(name) for name in UNITS})
    return Attempt(**row, usage=usage)


_BESIDE = ("policy", "policy_digest", "harness", "sampling", "limits", "suite_digest", "versions", "git_commit")
"""Columns that stand in every row, so that rows of several evaluations can lie in one table."""
_SCHEMA = pa.schema(
    [("task", pa.string()), ("digest", pa.string()), ("attempt", pa.int32()), ("solved", pa.bool_())]
    + [("reward", pa.float64()), ("passed", pa.int32()), ("assertions", pa.int32()), ("stop", pa.string())]
    + [("failure", pa.string()), ("tampered", pa.bool_()), ("turns", pa.int32()), ("launches", pa.int32())]
    + [(name, pa.int64() if kind == "int" else pa.float64()) for name, kind in UNITS.items()]
    + [("own_reward", pa.float64())]
    + [(name, pa.string()) for name in _BESIDE]
)
