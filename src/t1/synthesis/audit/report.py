"""What an audit says: hard rejects with a place and a reason, criteria with evidence, one score.

Boundary: plain values; how anything was found out is other modules' business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """Why a task must not be trained on."""

    HIDDEN_REQUIREMENT = "hidden-requirement"
    """An assertion needs something that neither instruction nor environment states."""
    TEST_LEAKAGE = "test-leakage"
    """Tests, expected values or the solution can be had in the image."""
    SOLUTION_SHORTCUT = "solution-shortcut"
    """The solution writes the answer without doing the work."""
    WEAK_VERIFIER = "weak-verifier"
    """Doing nothing, or doing it wrong, passes."""
    UNSOLVABLE = "unsolvable"
    """The reference solution does not pass, or the verifier cannot be read."""


class Part(StrEnum):
    """What a criterion is about."""

    VERIFIER = "verifier"
    SOLUTION = "solution"
    INSTRUCTION = "instruction"
    VALUE = "task value"


WEIGHTS: Mapping[Part, float] = {Part.VERIFIER: 0.45, Part.SOLUTION: 0.25, Part.INSTRUCTION: 0.20, Part.VALUE: 0.10}


@dataclass(frozen=True, slots=True)
class Reject:
    """One reason to leave a task out."""

    kind: Kind
    file: str
    """Relative to the task directory."""
    line: int
    reason: str
    ran: bool = False
    """True when something was run to find it, False when it was read."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.file}:{self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Criterion:
    """One part of the score."""

    part: Part
    name: str
    weight: float
    """Its share of its part."""
    score: float | None
    """0 to 1; None where it was not run."""
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a judge model says: kept apart from what was read and run, and without influence on the rejects."""

    model: str
    score: float
    concerns: tuple[str, ...] = ()
    error: str = ""
    """Why there is no opinion."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The audit of one task."""

    task: str
    path: str
    digest: str
    rejects: tuple[Reject, ...] = ()
    criteria: tuple[Criterion, ...] = ()
    opinion: Opinion | None = None
    problem: str = ""
    """Why probes, or anything at all, could not run."""
    seconds: float = field(default=0.0, compare=False)

    @property
    def accepted(self) -> bool:
        """Whether the task may enter the pool."""
        return not self.rejects and bool(self.criteria) and not self.problem

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds of its rejects."""
        return frozenset(reject.kind for reject in self.rejects)

    @property
    def score(self) -> float:
        """0.45 verifier + 0.25 solution + 0.20 instruction + 0.10 task value; what was not run does not count."""
        parts = {part: score for part in Part if (score := self.part(part)) is not None}
        weight = sum(WEIGHTS[part] for part in parts)
        return sum(WEIGHTS[part] * score for part, score in parts.items()) / weight if weight else 0.0

    def part(self, part: Part) -> float | None:
        """The weighted mean of the criteria of one part, or None where none was run."""
        some = [(c.weight, c.score) for c in self.criteria if c.part is part and c.score is not None]
        weight = sum(w for w, _ in some)
        return sum(w * s for w, s in some) / weight if weight else None

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints for one task."""
        parts = {str(part): None if (s := self.part(part)) is None else round(s, 4) for part in Part}
        return {**asdict(self), "accepted": self.accepted, "score": round(self.score, 4), "parts": parts}
