"""Attempts as Harbor keeps them: ATIF trajectories in a job's directory, for `harbor view OUT/harbor`.

    OUT/harbor/JOB/TASK__ATTEMPT/agent/trajectory.json   ATIF, a step a turn      …/result.json   score, tokens, errors

Boundary: writes Harbor's documents, from their published fields; needs no Harbor. The exact tokens are in
rollouts.parquet: here stand the sampled ids and their log-probabilities, and prompts only as counts.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t1.evaluation.results import Attempt, Conditions
from t1.types import Rollout, Turn

SCHEMA = "ATIF-v1.7"
JOB = "t1-eval"
NAMESPACE = uuid.UUID("5f1d8ee0-0a6f-4a7e-9d3f-7c0f5ad1b3c2")
"""Of trials' ids: the same attempt of the same evaluation has the same one."""


def write_trajectories(
    out: Path,
    rollouts: Sequence[Rollout],
    attempts: Sequence[Attempt],
    instructions: Mapping[str, str],
    conditions: Conditions,
) -> None:
    """Write a job of one trial for each rollout into `out`."""
    job = out / JOB
    for rollout, attempt in zip(rollouts, attempts, strict=True):
        name = trial_name(rollout)
        trial = job / name
        (trial / "agent").mkdir(parents=True, exist_ok=True)
        _write(trial / "agent" / "trajectory.json", trajectory(rollout, instructions[rollout.id.task], conditions))
        _write(trial / "config.json", _config(attempt, name))
        _write(trial / "result.json", result(rollout, attempt, conditions))


def trial_name(rollout: Rollout) -> str:
    """The directory of a rollout's trial."""
    return f"{re.sub('[^A-Za-z0-9._-]', '-', rollout.id.task).lstrip('.')}__{rollout.id.member}"


def trajectory(rollout: Rollout, instruction: str, conditions: Conditions) -> dict[str, Any]:
    """A rollout as an ATIF document."""
    texts = conditions.policy.startswith(("openai:", "anthropic:"))
    steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": _text(instruction)}]
    steps += [_step(turn, number, texts=texts) for number, turn in enumerate(rollout.turns, start=2)]
    return {
        "schema_version": SCHEMA,
        "session_id": str(rollout.id),
        "agent": {
            "name": conditions.harness,
            "version": conditions.versions.get("t1") or "unknown",
            "model_name": conditions.policy,
            "extra": {"sampling": dict(conditions.sampling), "limits": dict(conditions.limits)},
        },
        "steps": steps,
        "final_metrics": {"total_steps": len(steps)},
    }


def _step(turn: Turn, number: int, *, texts: bool) -> dict[str, Any]:
    """A turn. Where ids are characters (`texts`), they are no tokens and stay out."""
    metrics: dict[str, Any] = {"extra": {"engine_s": turn.timings.prefill_s + turn.timings.decode_s}}
    if not texts:
        metrics |= {
            "prompt_tokens": len(turn.prompt),
            "completion_tokens": len(turn.completion),
            "cached_tokens": turn.timings.cached_tokens,
            "completion_token_ids": turn.completion.tolist(),
            "logprobs": turn.logprobs.tolist(),
        }
    return {
        "step_id": number,
        "source": "agent",
        "message": _text(turn.action),
        "observation": {"results": [{"content": _text(turn.observation)}]},
        "metrics": metrics,
        "extra": {"finish": str(turn.finish), "sandbox_s": turn.sandbox_s},
    }


def result(rollout: Rollout, attempt: Attempt, conditions: Conditions) -> dict[str, Any]:
    """The trial's score, or why it has none."""
    name, outcome, usage = trial_name(rollout), rollout.outcome, attempt.usage
    document: dict[str, Any] = {
        "id": str(uuid.uuid5(NAMESPACE, f"{conditions.policy_digest} {conditions.suite_digest} {rollout.id}")),
        "task_name": attempt.task,
        "trial_name": name,
        "trial_uri": name,
        "task_id": {"path": attempt.task},
        "task_checksum": attempt.digest,
        "config": _config(attempt, name),
        "agent_info": {
            "name": conditions.harness,
            "version": conditions.versions.get("t1") or "unknown",
            "model_info": {"name": conditions.policy},
        },
        "agent_result": {
            "n_input_tokens": usage.tokens_in,
            "n_cache_tokens": usage.tokens_cached,
            "n_output_tokens": usage.tokens_out,
            "cost_usd": usage.money,
        },
    }
    if outcome.failure is not None:
        document["exception_info"] = {
            "exception_type": outcome.failure.kind,
            "exception_message": _text(outcome.failure.message),
            "exception_traceback": "",
            "occurred_at": "1970-01-01T00:00:00Z",  # not on record
        }
    else:
        rewards: dict[str, float] = {"reward": float(attempt.solved), "dense": outcome.reward or 0.0}
        document["verifier_result"] = {"rewards": rewards}
    return document


def _config(attempt: Attempt, name: str) -> dict[str, Any]:
    return {"task": {"path": attempt.task}, "trial_name": name}


def _text(text: str) -> str:
    """Foreign text without lone surrogates, which UTF-8 does not know."""
    return text.encode("utf-8", "replace").decode()


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False) + "\n", encoding="utf-8")
