"""Stage 3, discriminating: nothing done, empty outputs, wrong solutions and attacks on the verifier do not pass.

A mutant counts only where it leaves other files than the solution does: an equivalent one says nothing about the
verifier. Boundary: scripts and verdicts; a policy never takes part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from t1.synthesis.attacks import Attacks, attack, expected_files
from t1.synthesis.candidate import Candidate, Stage, StageResult
from t1.synthesis.mutants import emptied, output_mutants, source_mutants
from t1.synthesis.trials import Ground, Trial
from t1.types import Task


async def discriminating(
    candidate: Candidate,
    task: Task,
    ground: Ground,
    *,
    max_mutants: int,
    min_score: float,
    attacks: Attacks,
) -> StageResult:
    """The result of the stage: the mutation score, the survivors, and what each attack earned."""
    evidence: dict[str, Any] = {}
    nothing = await ground.trial(task, ":", look=True)
    evidence["nothing_passes"] = sorted(nothing.passed)
    if nothing.error:
        return _rejected("verifier-error", f"no verdict where nothing was done: {nothing.error[-300:]}", evidence)
    if nothing.passed:
        return _rejected("noop-passes", f"doing nothing passes {', '.join(sorted(nothing.passed))}", evidence)
    right = await ground.looked(task, candidate.script)
    changed = sorted(path for path, digest in right.files.items() if nothing.files.get(path) != digest)
    if changed:
        known = {right.state: right}
        empty = await ground.trial(task, emptied(candidate.script, changed).script, look=True, known=known)
        evidence["empty_outputs_pass"] = sorted(empty.passed)
        if empty.solved and empty.state != right.state:
            return _rejected("empty-outputs-pass", "every output may be empty", evidence)
    killed, survivors = await _mutate(candidate, task, ground, (nothing, right), changed, max_mutants)
    evidence |= {"mutants": killed + len(survivors), "killed": killed, "survivors": survivors}
    effective = killed + len(survivors)
    if not effective:
        return _rejected("no-mutants", "no change of the solution changes anything: it does nothing", evidence)
    evidence["mutation_score"] = round(killed / effective, 4)
    if killed < min_score * effective:
        return _rejected(
            "mutants-pass", f"{killed} of {effective} wrong solutions fail; {survivors[0]} passes", evidence
        )
    aims = expected_files(candidate.tests, {path: right.files[path] for path in changed})
    tried = await attack(task, ground, attacks, outputs=changed, expected=aims)
    evidence["exploits"] = {each.name: each.reward for each in tried}
    evidence["volley"] = sorted(name for each in tried for name in each.members)
    if paid := [each for each in tried if each.reward > 0]:
        what = ", ".join(sorted(paid[0].passed))
        return _rejected("exploit-earns", f"{paid[0].name} earns {paid[0].reward:.2f}: it passes {what}", evidence)
    return StageResult(Stage.DISCRIMINATING, True, evidence=evidence)


def _rejected(reason: str, detail: str, evidence: dict[str, Any]) -> StageResult:
    return StageResult(Stage.DISCRIMINATING, False, reason, detail, evidence)


async def _mutate(
    candidate: Candidate, task: Task, ground: Ground, ends: tuple[Trial, Trial], changed: Sequence[str], limit: int
) -> tuple[int, list[str]]:
    """How many wrong solutions failed, and the names of those that passed. `ends`: nothing done, and all of it."""
    right = ends[1]
    known = {trial.state: trial for trial in ends if trial.state}
    half = max(1, limit // 2)
    spoiled = output_mutants(candidate.script, changed, half, candidate.digest)
    mutants = [*source_mutants(candidate.script, limit - len(spoiled), candidate.digest), *spoiled]
    killed, survivors = 0, []
    for mutant in mutants:
        trial = await ground.trial(task, mutant.script, look=True, known=known)
        if right.state and trial.state == right.state:
            continue
        if trial.solved:
            survivors.append(mutant.name)
        else:
            killed += 1
    return killed, survivors
