"""What is being made: a seed, the candidate that grows from it, and the rewrites that it went through.

Boundary: values and their JSON form. Nothing here proposes, judges or runs.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from t1.tasks import write_task
from t1.types import Task

Files = Mapping[str, str | bytes]
"""Relative file name → content."""

DIFFICULTIES = ("easy", "medium", "hard")
MAX_ROUNDS = 15


class Rewrite(StrEnum):
    """What a round of rewriting may do."""

    HARDER = "harder"
    """The same work with less help, or on more."""
    LONGER = "longer"
    """One more step after the last."""
    DOMAIN = "domain"
    """The same shape of work in another domain."""
    FORMAT = "format"
    """The same work on another format."""
    REQUIREMENT = "requirement"
    """One more thing that the result must have."""
    OBSERVATION = "observation"
    """A value leaves the instruction: it has to be read in the sandbox."""
    DISTRACTORS = "distractors"
    """Files that have nothing to do with the work."""
    REPAIR = "repair"
    """Mend what the last stage rejected."""


EVOLUTIONS = tuple(kind for kind in Rewrite if kind is not Rewrite.REPAIR)


@dataclass(frozen=True, slots=True)
class Seed:
    """Where a lineage begins: a cell of the taxonomy, or a task that exists."""

    index: int
    domain: str
    skill: str
    difficulty: str
    origin: str = ""
    """Id of the existing task; empty for a cell of the taxonomy."""
    example: str = ""
    """Its instruction, for a proposer that can read."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task that is not published yet: the contents of its directory, and how it came about."""

    domain: str
    skill: str
    difficulty: str
    instruction: str
    environment: Files
    tests: Files
    solution: Files
    config: Mapping[str, Any]
    """What task.toml says."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """What its proposer needs to rewrite it; JSON, and nobody else's business."""
    rewrites: tuple[str, ...] = ()
    """Every round that it went through, in order."""

    @property
    def num_rounds(self) -> int:
        """Rounds of rewriting behind it."""
        return len(self.rewrites)

    @property
    def script(self) -> str:
        """The reference solution."""
        return _text(self.solution.get("solve.sh", ""))

    @property
    def digest(self) -> str:
        """sha256 over everything that becomes a file."""
        content = {name: value for name, value in json.loads(self.to_json()).items() if name in _PUBLISHED}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """One line of JSON; bytes that are not UTF-8 travel as base64."""
        return json.dumps({item.name: _packed(getattr(self, item.name)) for item in fields(self)}, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Candidate:
        """The inverse of `to_json`."""
        raw = json.loads(text)
        files = {name: _unpacked(raw.pop(name)) for name in ("environment", "tests", "solution")}
        return Candidate(**raw | files | {"rewrites": tuple(raw["rewrites"])})

    def write(self, path: Path) -> Task:
        """Its task directory. Raises TaskError where it is broken."""
        metadata = {
            **self.config.get("metadata", {}),
            "difficulty": self.difficulty,
            "category": self.domain,
            "skill": self.skill,
            "rewrites": list(self.rewrites),
        }
        return write_task(
            path,
            config={**self.config, "metadata": metadata},
            instruction=self.instruction,
            environment=self.environment,
            tests=self.tests,
            solution=self.solution,
        )


_PUBLISHED = frozenset({"instruction", "environment", "tests", "solution", "config"})


def _packed(value: Any) -> Any:
    """A field as JSON has it: only the files of a directory may hold bytes."""
    if isinstance(value, Mapping):
        return {name: _packed(item) for name, item in value.items()}
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    return list(value) if isinstance(value, tuple) else value


def _unpacked(files: Mapping[str, Any]) -> dict[str, str | bytes]:
    """Files from their JSON form."""
    return {
        name: base64.b64decode(item["base64"]) if isinstance(item, Mapping) else str(item)
        for name, item in files.items()
    }


def _text(content: str | bytes) -> str:
    return content.decode("utf-8", "replace") if isinstance(content, bytes) else content


class Stage(StrEnum):
    """The stages that a candidate passes, in order."""

    PROPOSED = "proposed"
    """There is a candidate at all."""
    WELL_FORMED = "well-formed"
    SOLVABLE = "solvable"
    DISCRIMINATING = "discriminating"
    NOVEL = "novel"
    USEFUL = "useful"


@dataclass(frozen=True, slots=True)
class StageResult:
    """What one stage found, and on what evidence."""

    stage: Stage
    passed: bool
    reason: str = ""
    """A short code where it did not pass: what the datasheet counts by."""
    detail: str = ""
    """The same for a person, and for whoever repairs it."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As JSON knows it."""
        return asdict(self)

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> StageResult:
        """The inverse of `to_json`."""
        return StageResult(**{**raw, "stage": Stage(raw["stage"])})
