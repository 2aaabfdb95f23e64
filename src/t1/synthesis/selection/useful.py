"""Stage 5, useful: a reference policy solves it sometimes, neither never nor always, and the audit has nothing on it.

Boundary: attempts and audits come from outside; here they are counted, and an interval is put around the count.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from t1.evaluation.metrics import wilson
from t1.synthesis.candidate import Stage, StageResult
from t1.types import Task

Attempt = Callable[[Task, int], Awaitable[bool]]
"""One rollout of the reference policy, by its number: whether it solved the task."""


class Audited(Protocol):
    """What an audit says, as far as selection asks."""

    @property
    def score(self) -> float: ...

    @property
    def rejects(self) -> Sequence[Any]: ...


Audit = Callable[[Task], Awaitable[Audited]]


async def useful(
    task: Task,
    *,
    attempt: Attempt | None,
    num_rollouts: int,
    band: tuple[float, float],
    audit: Audit | None,
    min_audit: float,
) -> StageResult:
    """The result of the stage. The solve rate stands beside its 95 % interval."""
    evidence: dict[str, Any] = {"policy": attempt is not None, "audited": audit is not None}
    if audit is not None:
        found = await audit(task)
        evidence |= {"audit_score": round(found.score, 4), "audit_rejects": [str(r) for r in found.rejects]}
        if found.rejects:
            return StageResult(Stage.USEFUL, False, "audit-rejects", str(found.rejects[0]), evidence)
        if found.score < min_audit:
            detail = f"the audit gives {found.score:.2f}, less than {min_audit:g}"
            return StageResult(Stage.USEFUL, False, "audit-score", detail, evidence)
    if attempt is not None:
        solved = [await attempt(task, number) for number in range(num_rollouts)]
        rate = sum(solved) / num_rollouts
        low, high = wilson(rate, num_rollouts)
        evidence |= {"solved": sum(solved), "rollouts": num_rollouts, "solve_rate": rate, "ci95": [low, high]}
        if rate < band[0]:
            return StageResult(Stage.USEFUL, False, "too-hard", _outside(rate, low, high, band), evidence)
        if rate > band[1]:
            return StageResult(Stage.USEFUL, False, "too-easy", _outside(rate, low, high, band), evidence)
    return StageResult(Stage.USEFUL, True, evidence=evidence)


def _outside(rate: float, low: float, high: float, band: tuple[float, float]) -> str:
    return (
        f"solved in {rate:.0%} of the attempts (95 %: {low:.0%} to {high:.0%}), outside {band[0]:.0%} to {band[1]:.0%}"
    )
