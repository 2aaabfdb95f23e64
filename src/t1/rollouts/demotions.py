"""Which tasks training takes out of the pool, and why: what attempts showed that no audit saw.

A task leaves when its attempts tamper, when its verifier is unsteady, or when nobody ever gets anywhere. From which
draw on it is out stands beside the reason, so that a resumed run asks for the same tasks. Boundary: counts and a
policy; what takes its place is the stream's business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from t1.errors import RunError, VerifierError
from t1.types import Rollout


@dataclass(frozen=True, slots=True)
class DemotionPolicy:
    """When a task has to go. A count of 0 switches a rule off."""

    min_attempts: int = 4
    """Attempts before any rule speaks."""
    tampered_share: float = 0.5
    """Attempts with tamper evidence, from this share on."""
    unsteady_share: float = 0.5
    """Attempts whose verdict could not be had, had no report, or had other assertions than before."""
    impossible_after: int = 64
    """Attempts of which none passed a single assertion (below 5 % with 95 % confidence: the rule of three)."""

    def __post_init__(self) -> None:
        shares = (self.tampered_share, self.unsteady_share)
        if self.min_attempts < 1 or self.impossible_after < 0 or not all(0 < share <= 1 for share in shares):
            raise ValueError(
                f"demotions: needs min_attempts ≥ 1, impossible_after ≥ 0 and shares in (0, 1], got {self}"
            )


@dataclass(slots=True)
class Tally:
    """What the attempts at one task showed."""

    attempts: int = 0
    tampered: int = 0
    unsteady: int = 0
    passed: int = 0
    """Attempts that passed at least one assertion."""
    assertions: list[str] = field(default_factory=list)
    """Names of the first report, sorted."""

    def add(self, rollout: Rollout) -> None:
        """Count one attempt. Failures that are not the verifier's say nothing about the task."""
        outcome, verdict = rollout.outcome, rollout.outcome.verdict
        if verdict is None:
            broken = outcome.failure is not None and outcome.failure.kind == VerifierError.__name__
            self.attempts += broken
            self.unsteady += broken
            return
        self.attempts += 1
        self.tampered += verdict.tampered
        self.passed += bool(verdict.num_passed) or verdict.solved
        names = sorted(a.name for a in verdict.assertions or ())
        self.unsteady += bool(verdict.report_error) or bool(names and self.assertions and names != self.assertions)
        self.assertions = self.assertions or names

    def fault(self, policy: DemotionPolicy) -> str:
        """Why the task has to go, or nothing."""
        if self.attempts < policy.min_attempts:
            return ""
        if self.tampered >= policy.tampered_share * self.attempts:
            return f"tampering: {self.tampered} of {self.attempts} attempts tampered with the verification"
        if self.unsteady >= policy.unsteady_share * self.attempts:
            return f"flaky: {self.unsteady} of {self.attempts} verdicts were missing, unreadable or of other assertions"
        if policy.impossible_after and self.attempts >= policy.impossible_after and not self.passed:
            return f"impossible: none of {self.attempts} attempts passed an assertion"
        return ""


@dataclass(frozen=True, slots=True)
class Demotion:
    """One task that is out."""

    reason: str
    since: int
    """The first draw that does not get it."""


FILE = "demotions.json"
"""In a run's directory."""


def demoted_tasks(run: Path) -> dict[str, str]:
    """Task → why it left the pool of a run, in the order of demotion."""
    path = run / FILE
    return {task: demotion.reason for task, demotion in Demotions(path=path).out.items()} if path.is_file() else {}


class Demotions:
    """The tallies of a run. With a path, every count is on disk before the next launch asks."""

    def __init__(self, policy: DemotionPolicy = DemotionPolicy(), path: Path | None = None) -> None:
        """Goes on from `path` where it is. Raises RunError for a file that cannot be read."""
        self._policy, self._path = policy, path
        self._tallies: dict[str, Tally] = {}
        self._last_step = -1
        self.out: dict[str, Demotion] = {}
        """Task → why and since when, in the order of demotion."""
        if path is not None and path.is_file():
            self._load(path)

    def count(self, step: int, rollouts: Sequence[Rollout], *, next_draw: int) -> dict[str, Demotion]:
        """Count a batch; returns who left because of it. A batch that was counted before changes nothing."""
        if step <= self._last_step:
            return {}
        self._last_step = step
        left = {}
        for rollout in rollouts:
            self._tallies.setdefault(rollout.id.task, Tally()).add(rollout)
        for task in dict.fromkeys(rollout.id.task for rollout in rollouts):
            if task not in self.out and (reason := self._tallies[task].fault(self._policy)):
                left[task] = self.out[task] = Demotion(reason, next_draw)
        self._save()
        return left

    def is_out(self, task: str, draw: int) -> bool:
        """Whether a draw must get another task."""
        demotion = self.out.get(task)
        return demotion is not None and draw >= demotion.since

    def metrics(self) -> dict[str, float]:
        """How many are out, and why."""
        kinds = [demotion.reason.partition(":")[0] for demotion in self.out.values()]
        counts = {f"demoted_{kind}": float(kinds.count(kind)) for kind in ("tampering", "flaky", "impossible")}
        return {"demoted": float(len(kinds)), **counts}

    def _load(self, path: Path) -> None:
        try:
            state: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            self._last_step = int(state["last_step"])
            self._tallies = {task: Tally(**tally) for task, tally in state["tallies"].items()}
            self.out = {task: Demotion(**demotion) for task, demotion in state["out"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{path}: cannot be read ({error}); remove it to begin counting anew") from None

    def _save(self) -> None:
        """Write the whole state in one piece."""
        if self._path is None:
            return
        tallies = {task: asdict(tally) for task, tally in self._tallies.items()}
        out = {task: asdict(demotion) for task, demotion in self.out.items()}
        scratch = self._path.with_suffix(".tmp")
        text = json.dumps({"last_step": self._last_step, "tallies": tallies, "out": out})
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(self._path)
