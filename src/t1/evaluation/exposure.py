"""Was the policy trained on what it is measured on? Tasks by digest, by instruction, and by the very same first prompt.

Boundary: reads what a run or a directory of tasks holds, and compares; near-duplicates are `t1.synthesis`' business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from t1.errors import RunError
from t1.evaluation.evidence import fingerprint, sightings
from t1.tasks import read_suite
from t1.types import Rollout, Task


@dataclass(frozen=True, slots=True)
class Exposure:
    """Evaluated tasks that stand in what was trained on."""

    trained: str
    """The run, or the directory of tasks, that was looked at."""
    num_trained: int
    """Different tasks there."""
    num_tasks: int
    """Evaluated tasks."""
    seen: tuple[tuple[str, str], ...]
    """(task, how it is known there)."""

    def as_dict(self) -> dict[str, Any]:
        """As results.json has it."""
        return asdict(self) | {"seen": [list(pair) for pair in self.seen]}


def run_of(checkpoint: Path) -> Path | None:
    """The run directory that a checkpoint lies in; None where it lies in none."""
    for parent in checkpoint.absolute().parents:
        if (parent / "config.toml").is_file() and (parent / "rollouts").is_dir():
            return parent
    return None


def exposure(tasks: Sequence[Task], rollouts: Sequence[Rollout], trained: Path) -> Exposure:
    """Compare evaluated tasks with those of the run or directory `trained`.

    A run is asked what it really trained on, demonstrations included; of a suite, `train/` counts, or all of it where
    it has no splits. Raises RunError where a run holds no rollouts to look at.
    """
    if (trained / "rollouts").is_dir():
        digests, prompts = _of_run(trained)
        told: dict[str, str] = {}
    else:
        suite = read_suite(trained)
        known = suite.train or suite.heldout
        digests = {task.digest: task.id for task in known}
        told, prompts = {task.instruction.strip(): task.id for task in known if task.instruction.strip()}, {}
    first = {r.id.task: fingerprint(r.turns[0].prompt) for r in rollouts if r.turns}
    seen = []
    for task in tasks:
        if task.digest in digests:
            seen.append((task.id, f"the same files as {digests[task.digest]}"))
        elif task.instruction.strip() in told:
            seen.append((task.id, f"the instruction of {told[task.instruction.strip()]}"))
        elif first.get(task.id, "") in prompts:
            seen.append((task.id, f"the first prompt of {prompts[first[task.id]]}"))
    return Exposure(str(trained), len(digests), len(tasks), tuple(seen))


def _of_run(run: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Task digests and first prompts of all that a run trained on; it stores no instructions."""
    files = sorted((run / "rollouts").glob("[!.]*.parquet"))
    if not files:
        raise RunError(f"{run}: holds no rollouts: what it trained on is not on record")
    trained = [seen for path in files for seen in sightings(path) if not seen.evaluated]
    digests = {seen.digest: seen.rollout.task for seen in trained}
    return digests, {seen.prompt: seen.rollout.task for seen in trained if seen.prompt}
