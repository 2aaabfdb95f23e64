"""Stage 4, novel: not nearly a task of the pool, and nothing that an evaluation set holds.

Boundary: it remembers signatures of what was accepted; candidates come one at a time, in the order of their seeds, so
that the same run keeps the same tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t1.errors import TaskError
from t1.synthesis.candidate import Candidate, Stage, StageResult
from t1.synthesis.similarity import Pool, Reference, shape, signature, words
from t1.tasks import read_task


class Novelty:
    """The pool so far, and the evaluation sets to stay away from."""

    def __init__(
        self, *, max_text: float, max_shape: float, max_contamination: float, held_out: Mapping[str, Reference]
    ) -> None:
        self._text, self._shape = Pool(max_text), Pool(max_shape)
        self._max_contamination = max_contamination
        self._held_out = held_out

    def judge(self, candidate: Candidate) -> StageResult:
        """The result of the stage. What passes is not in the pool before `admit`."""
        tokens = words(candidate.instruction)
        evidence: dict[str, Any] = {"pool": len(self._text)}
        for name, reference in self._held_out.items():
            if problem := self._contaminated(name, reference, tokens, evidence):
                return problem
        for kind, pool, made in self._views(candidate):
            if near := pool.nearest(made):
                evidence["near"] = {"task": near.name, "by": kind, "similarity": round(near.similarity, 3)}
                detail = f"{near.name} is nearly the same by its {kind} ({near.similarity:.2f})"
                return StageResult(Stage.NOVEL, False, f"near-duplicate-{kind}", detail, evidence)
        return StageResult(Stage.NOVEL, True, evidence=evidence)

    def admit(self, name: str, candidate: Candidate) -> None:
        """Later candidates must differ from this one."""
        for _, pool, made in self._views(candidate):
            pool.add(name, made)

    def dismiss(self, name: str) -> None:
        """Forget one that a later stage rejected."""
        self._text.remove(name)
        self._shape.remove(name)

    def _views(self, candidate: Candidate) -> list[tuple[str, Pool, Any]]:
        return [
            ("text", self._text, signature(words(candidate.instruction))),
            ("shape", self._shape, signature(shape(candidate.instruction, candidate.script))),
        ]

    def _contaminated(
        self, name: str, reference: Reference, tokens: list[str], evidence: dict[str, Any]
    ) -> StageResult | None:
        """A rejection where the candidate is too near to an evaluation set."""
        near = reference.nearest(tokens)
        if near is None:
            return None
        evidence.setdefault("held_out", {})[name] = {"task": near.name, "similarity": round(near.similarity, 3)}
        shared = reference.shared_gram(tokens)
        if near.similarity < self._max_contamination and shared is None:
            return None
        evidence["contaminated"] = name
        what = f"shares '{shared[1]}' with {shared[0]}" if shared else f"is nearly {near.name} ({near.similarity:.2f})"
        return StageResult(Stage.NOVEL, False, "contaminated", f"{what} of the evaluation set {name}", evidence)


def read_references(paths: Sequence[str]) -> dict[str, Reference]:
    """Evaluation sets by path: every readable task directory below. Raises TaskError where there is none."""
    references = {}
    for name in paths:
        found = []
        for file in sorted(Path(name).rglob("task.toml")):
            try:
                found.append((file.parent.name, read_task(file.parent).instruction))
            except TaskError:
                text = file.parent / "instruction.md"
                found += [(file.parent.name, text.read_text("utf-8", "replace"))] if text.is_file() else []
        if not found:
            raise TaskError(Path(name), "holds no tasks to stay away from: mend novel.held_out")
        references[name] = Reference(found)
    return references
