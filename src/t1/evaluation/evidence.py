"""What a finished or running run left behind, gathered for a verdict: one pass over its files, nothing is changed.

Boundary: reads; it judges nothing (`rules` does). Needs no torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from t1.base import base_path
from t1.config import RunConfig
from t1.errors import RunError
from t1.rundir import read_run_config
from t1.tracking import read_metrics
from t1.training.offline_audit import RunAudit, audit_run
from t1.types import IntArray, Outcome, RolloutId

EVALUATIONS = "eval-"
"""Files of rollouts that begin with this were measured on; all others were trained on."""
DEMONSTRATIONS = "demonstrations"
"""The file of what SFT was shown: played, not sampled, so without routes."""
_NESTED = [
    "turns.list.element.added.list.element",
    "trajectories.list.element.tokens.list.element",
    "trajectories.list.element.spans.list.element.count",
    "trajectories.list.element.routing",
]
_COLUMNS = ["task", "group", "member", "task_digest", "outcome", "attempts", *_NESTED]
_EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")
_OUTCOME = TypeAdapter(Outcome)


@dataclass(frozen=True, slots=True)
class Sighting:
    """One stored rollout, as far as a verdict asks about it."""

    file: str
    """Stem of the file that holds it: `rl-00003`, `eval-sft`, `demonstrations`."""
    rollout: RolloutId
    digest: str
    """Of its task."""
    prompt: str
    """sha256 over the ids of its first prompt; empty where it has no turn. The same instruction gives the same."""
    outcome: Outcome
    attempts: int
    num_fed: int = 0
    """Tokens of its trajectories that were fed to the policy: what routing rows must cover."""
    num_routed: int = 0
    """Routing rows of its trajectories."""

    @property
    def evaluated(self) -> bool:
        """True where it was measured on, and not trained on."""
        return self.file.startswith(EVALUATIONS)


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the rules look at."""

    run: Path
    config: RunConfig
    steps: Sequence[Mapping[str, Any]]
    """The metrics of each PPO step, in order; empty for a run without PPO."""
    rollouts: Sequence[Sighting]
    audit: RunAudit
    """Made anew from the raw turns: it trusts no counter that the run wrote."""
    environment: Mapping[str, Any]
    routed: bool
    """The policy is a Mixture of Experts: its routes are to be captured."""


def gather(run: Path) -> Evidence:
    """The evidence of the run directory `run`. Raises RunError where it is none or holds no rollouts."""
    config = read_run_config(run)
    audit = audit_run(run)
    environment = run / "environment.json"
    return Evidence(
        run=run,
        config=config,
        steps=[record for record in read_metrics(run / "metrics.jsonl") if record.get("stage") == "rl"],
        rollouts=[seen for path in sorted((run / "rollouts").glob("[!.]*.parquet")) for seen in sightings(path)],
        audit=audit,
        environment=json.loads(environment.read_text(encoding="utf-8")) if environment.is_file() else {},
        routed=_is_routed(run, config),
    )


def sightings(path: Path) -> Iterator[Sighting]:
    """The rollouts of one file, without their tokens, routes and texts."""
    try:
        with pq.ParquetFile(path) as file:
            table = file.read(columns=_COLUMNS)
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"{path}: no readable file of rollouts: {error}") from error
    for row in table.to_pylist():
        turns, parts = row["turns"] or [], row["trajectories"] or []
        yield Sighting(
            file=path.stem,
            rollout=RolloutId(row["task"], row["group"], row["member"]),
            digest=row["task_digest"],
            prompt=fingerprint(turns[0]["added"]) if turns else "",
            outcome=_OUTCOME.validate_python(json.loads(row["outcome"])),  # may hold lone surrogates
            attempts=row["attempts"],
            num_fed=sum(len(part["tokens"]) - 1 for part in parts),
            num_routed=sum(_num_rows(part) for part in parts),
        )


def _num_rows(part: Mapping[str, Any]) -> int:
    """Routing rows of a stored trajectory: by spans of the turns' captures, or as they are."""
    if (own := part["routing"]) is not None:
        return int(len(own["rows"]) // (own["layers"] * own["chosen"] * own["bytes"]))
    return int(sum(span["count"] for span in part["spans"] or []))


def _is_routed(run: Path, config: RunConfig) -> bool:
    """What the checkpoint of the run's policy says, or of the policy that it began with."""
    start = Path(config.model.path) if config.model.path else base_path()
    for path in [*sorted((run / "checkpoints").glob("**/config.json")), start / "config.json"]:
        try:
            shape = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return any(shape.get("text_config", shape).get(key) for key in _EXPERT_KEYS)
    return False


def fingerprint(ids: Sequence[int] | IntArray) -> str:
    """sha256 over ids."""
    return hashlib.sha256(np.asarray(ids, dtype=np.int32).tobytes()).hexdigest()
