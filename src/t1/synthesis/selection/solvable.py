"""Stage 2, solvable: the solution passes every assertion, repeatedly, and under another clock, locale and user.

Boundary: only the reference solution is run; what else would pass is the next stage's question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from t1.synthesis.candidate import Candidate, Stage, StageResult
from t1.synthesis.trials import Ground, Trial
from t1.synthesis.variations import PLAIN, Variation, at_once
from t1.types import Task


async def solvable(
    candidate: Candidate, task: Task, ground: Ground, *, repeats: int, variations: Sequence[Variation]
) -> StageResult:
    """The result of the stage, with every run as evidence; the first run that fails ends it."""
    evidence: dict[str, Any] = {"runs": [], "not_varied": {v.name: v.missing for v in variations if v.missing}}
    asserted: frozenset[str] | None = None
    for number in range(repeats):
        trial = await (ground.trial(task, candidate.script) if number else ground.looked(task, candidate.script))
        evidence["runs"].append(_record(PLAIN, trial))
        if problem := _problem(trial, PLAIN, asserted, first=number == 0):
            return StageResult(Stage.SOLVABLE, False, *problem, evidence)
        asserted = trial.passed
    offered = [variation for variation in variations if not variation.missing]
    if problem := await _varied(candidate, task, ground, offered, asserted, evidence):
        return StageResult(Stage.SOLVABLE, False, *problem, evidence)
    evidence["num_assertions"] = len(asserted or ())
    return StageResult(Stage.SOLVABLE, True, evidence=evidence)


async def _varied(
    candidate: Candidate,
    task: Task,
    ground: Ground,
    variations: Sequence[Variation],
    asserted: frozenset[str] | None,
    evidence: dict[str, Any],
) -> tuple[str, str] | None:
    """What is wrong under other circumstances: all of them at once, and one by one to tell which it was."""

    async def tried(variation: Variation) -> tuple[str, str] | None:
        trial = await ground.trial(task, candidate.script, variation)
        evidence["runs"].append(_record(variation, trial))
        return _problem(trial, variation, asserted, first=False)

    problem = None
    if (together := at_once(variations)) is not None:
        problem = await tried(together)
        if problem is None:
            return None
    for variation in variations:
        if own := await tried(variation):
            return own
    return problem


def _record(variation: Variation, trial: Trial) -> dict[str, Any]:
    """One run, for the record."""
    record = {"under": variation.name, "passed": len(trial.passed), "missed": sorted(trial.missed)}
    return record | ({"how": variation.how} if variation.how else {})


def _problem(
    trial: Trial, variation: Variation, asserted: frozenset[str] | None, *, first: bool
) -> tuple[str, str] | None:
    """(code, what is wrong), or None where all is well."""
    under = "" if variation is PLAIN else f" under another {variation.name} ({variation.how})"
    code = "unsolved" if first else "flaky" if variation is PLAIN else f"depends-on-{variation.code}"
    if trial.error:
        return code if not first else "verifier-error", f"no verdict{under}: {trial.error[-300:]}"
    if not trial.solved:
        ended = "" if trial.exit_code == 0 else f"; solve.sh ended with {trial.exit_code}: {trial.output[-160:]}"
        return code, f"the solution misses{under}: {', '.join(sorted(trial.missed)) or 'everything'}{ended}"
    if trial.exit_code != 0:
        return code, f"everything passes, but solve.sh ended with {trial.exit_code}{under}: {trial.output[-160:]}"
    if trial.tamper:
        return "solution-tampers", f"the solution touches its verifier's ground: {'; '.join(trial.tamper)}"
    if asserted is not None and trial.passed != asserted:
        return code, f"other assertions were reported{under}: {sorted(trial.passed ^ asserted)}"
    return None
