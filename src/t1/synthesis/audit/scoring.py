"""The criteria of the score, each with its evidence. Boundary: pure; what was not run has no score."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from t1.synthesis.audit.probes import Observations
from t1.synthesis.audit.report import Criterion, Kind, Part, Reject
from t1.synthesis.audit.shell_syntax import read_script
from t1.synthesis.audit.shortcuts import Inventory
from t1.synthesis.audit.sources import Sources

ENOUGH_ASSERTIONS = 3
ENOUGH_WORDS = 12
ENOUGH_COMMANDS = 3
_RUN = (
    ("doing nothing fails", 0.3),
    ("wrong outputs fail", 0.3),
    ("attacks earn nothing", 0.2),
    ("the same twice", 0.1),
)
"""Criteria that only running shows, with their weights."""


def criteria(
    sources: Sources, inventory: Inventory, seen: Observations | None, rejects: Sequence[Reject]
) -> tuple[Criterion, ...]:
    """Every criterion of one task."""
    kinds = {reject.kind for reject in rejects}
    return (
        *_verifier(inventory, seen),
        *_solution(sources, seen, kinds),
        *_instruction(sources, kinds, rejects),
        *_value(sources),
    )


def _verifier(inventory: Inventory, seen: Observations | None) -> Iterator[Criterion]:
    part = Part.VERIFIER
    of_content = inventory.num_content / inventory.total if inventory.total else 0.0
    counted = f"{inventory.num_content} of {inventory.total} assertions look at content"
    yield Criterion(part, "asserts content", 0.2, of_content, counted)
    density = min(1.0, inventory.total / ENOUGH_ASSERTIONS)
    yield Criterion(part, "several assertions", 0.1, density, f"{inventory.total} assertions")
    if seen is None:
        for name, weight in _RUN:
            yield Criterion(part, name, weight, None)
        return
    total = len(seen.untouched.assertions) or 1
    free = len(seen.untouched.passed)
    yield Criterion(part, "doing nothing fails", 0.3, 1 - free / total, f"{free} of {total} pass untouched")
    killed = sum(not trial.survived for trial in seen.trials)
    score = killed / len(seen.trials) if seen.trials else None
    yield Criterion(part, "wrong outputs fail", 0.3, score, f"{killed} of {len(seen.trials)} mutants fail")
    earned = {tried.name: tried.reward for tried in seen.attacks if tried.reward > free / total}
    paid = 1 - max(earned.values(), default=0.0) if seen.attacks else None
    yield Criterion(part, "attacks earn nothing", 0.2, paid, ", ".join(f"{n} earns {r:.2f}" for n, r in earned.items()))
    same = seen.solved == seen.again
    yield Criterion(part, "the same twice", 0.1, float(same), "" if same else "two runs differ")


def _solution(sources: Sources, seen: Observations | None, kinds: set[Kind]) -> Iterator[Criterion]:
    part = Part.SOLUTION
    there = bool(sources.solution)
    yield Criterion(part, "there is one", 0.2, float(there), "" if there else "no solution/solve.sh")
    passes = None if seen is None else float(seen.is_solved)
    yield Criterion(part, "it passes", 0.5, passes, "" if seen is None else seen.solution_error or seen.solved.error)
    yield Criterion(part, "it does the work", 0.3, float(there and Kind.SOLUTION_SHORTCUT not in kinds))


def _instruction(sources: Sources, kinds: set[Kind], rejects: Sequence[Reject]) -> Iterator[Criterion]:
    part, text = Part.INSTRUCTION, sources.instruction
    hidden = sum(reject.kind is Kind.HIDDEN_REQUIREMENT for reject in rejects)
    yield Criterion(part, "says all that is needed", 0.6, 1 / (1 + hidden), f"{hidden} demands are not stated")
    words = len(text.split())
    yield Criterion(part, "is long enough to be clear", 0.2, min(1.0, words / ENOUGH_WORDS), f"{words} words")
    gaps = re.findall(r"\bTODO\b|\bTBD\b|\bFIXME\b|\blorem ipsum\b|<insert[^>]*>", text, re.IGNORECASE)
    yield Criterion(part, "has no gaps", 0.2, float(not gaps), ", ".join(gaps[:3]))


def _value(sources: Sources) -> Iterator[Criterion]:
    part = Part.VALUE
    inputs = [file for file in sources.environment if file.name not in ("Dockerfile", ".keep")]
    yield Criterion(part, "needs observation", 0.5, float(bool(inputs)), f"{len(inputs)} files to look at")
    commands = len(read_script(sources.solution_text).commands)
    yield Criterion(part, "takes several steps", 0.5, min(1.0, commands / ENOUGH_COMMANDS), f"{commands} commands")
