"""Small runs on disk, for tests of what reads a run: real trajectories, written by the real writers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t1.config import load_config, write_config
from t1.rollouts.store import write_step
from t1.tito import assemble
from t1.tracking import JsonLinesTracker
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
    SampleTimings,
    StopReason,
    TamperEvidence,
    Turn,
    Verdict,
)

STEP = {
    "stage": "rl",
    "reward": 0.5,
    "gap": 1e-6,
    "explained_variance": 0.6,
    "lag_mean": 0.0,
    "lag_max": 0.0,
    "admitted_share": 1.0,
    "bias_duration": 0.0,
    "bias_task": 0.0,
}
"""The metrics of a step that nothing is wrong with."""


def example_verdict(passed: int, of: int, *, tampered: bool = False, report: bool = True) -> Verdict:
    """A verdict with `passed` of `of` assertions."""
    statuses = [AssertionStatus.PASSED] * passed + [AssertionStatus.FAILED] * (of - passed)
    results = tuple(AssertionResult(f"a{i}", status) for i, status in enumerate(statuses))
    tamper = (TamperEvidence("planted-conftest", "/tests/conftest.py"),) if tampered else ()
    return Verdict(results if report else None, passed == of, tamper, report_error="" if report else "no ctrf.json")


def example_rollout(
    task: str,
    *,
    passed: int = 4,
    of: int = 4,
    member: int = 0,
    group: int = 0,
    tampered: bool = False,
    report: bool = True,
    routed: bool = True,
    stop: StopReason = StopReason.SUBMITTED,
    wall_s: float = 2.0,
) -> Rollout:
    """Two turns of one conversation, scored. The prompt is a function of the task, so the same task has the same."""
    seed = sum(map(ord, task))
    prompt = np.array([10 + seed % 50, 11 + seed // 50 % 50, *range(20, 24)], dtype=np.int32)
    turns: list[Turn] = []
    start = 0
    for index in range(2):
        completion = np.array([60 + index, 61, 1], dtype=np.int32)
        fed = np.concatenate([prompt, completion])[:-1]
        rows = np.stack([fed % 4, fed % 4 + 4], axis=-1).astype(np.uint8)[start:, None, :]
        turns.append(
            Turn(
                prompt,
                completion,
                np.full(3, -0.5 - index, dtype=np.float32),
                np.zeros(3, dtype=np.int32),
                FinishReason.STOP,
                rows if routed else None,
                start if routed else 0,
                action=f"echo {index}",
                observation=f"{index}",
                timings=SampleTimings(0.1, 0.2, 0.3, cached_tokens=2 * index),
                sandbox_s=0.05,
            )
        )
        start = len(fed)
        prompt = np.concatenate([prompt, completion, np.array([2, 30], dtype=np.int32)])
    verdict = example_verdict(passed, of, tampered=tampered, report=report)
    source = RewardSource.ASSERTIONS if report else RewardSource.BINARY_FALLBACK
    timings = RolloutTimings(wall_s, 0.2, 1.0, 0.1, 0.4)
    return Rollout(
        RolloutId(task, group, member),
        f"digest of {task}",
        tuple(turns),
        Outcome(stop, verdict, passed / of, source),
        timings,
    )


def example_failure(task: str, *, member: int = 0) -> Rollout:
    """A rollout that the infrastructure spoiled, at its third launch."""
    failure = Failure("SandboxVanished", "gone", "open")
    outcome = Outcome(StopReason.FAILED, None, None, RewardSource.NONE, failure)
    return Rollout(RolloutId(task, 0, member), f"digest of {task}", (), outcome, attempts=3)


def write_run(
    path: Path,
    *,
    trained: Sequence[Rollout] | None = None,
    evaluated: Mapping[str, Sequence[Rollout]] | None = None,
    steps: Sequence[Mapping[str, Any]] | None = None,
    overrides: Sequence[str] = (),
    num_experts: int | None = 8,
) -> Path:
    """A run directory of one training file, some evaluations and some steps; nothing is wrong with it by default."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "rollouts").mkdir()
    (path / "checkpoints" / "rl").mkdir(parents=True)
    shape = {"vocab_size": 100, "num_experts": num_experts}
    (path / "checkpoints" / "rl" / "config.json").write_text(json.dumps(shape))
    write_config(load_config(None, overrides), path / "config.toml")
    environment = {"git_commit": "0123456789abcdef", "packages": {"t1": "0.1.0"}}
    (path / "environment.json").write_text(json.dumps(environment))
    tracker = JsonLinesTracker(path / "metrics.jsonl")
    for step, metrics in enumerate([STEP] * 6 if steps is None else steps):
        tracker.log({**metrics, "step": step})
    tracker.close()
    _store(
        path / "rollouts" / "rl-00000.parquet",
        [example_rollout("a"), example_rollout("b")] if trained is None else trained,
    )
    for name, rollouts in (evaluated or {}).items():
        _store(path / "rollouts" / f"eval-{name}.parquet", rollouts)
    return path


def _store(path: Path, rollouts: Sequence[Rollout]) -> None:
    """Write rollouts with their trajectories; failed ones have none."""
    scored = [r for r in rollouts if r.turns]
    write_step(path, rollouts, [part for r in scored for part in assemble(r.id, r.turns)])
