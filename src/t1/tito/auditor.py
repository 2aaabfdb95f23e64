"""The auditor: from the raw turns, is what was made of them true?

It shares no code with the assembler and trusts nothing that a trajectory says of itself. Boundary: it judges and
counts, it repairs nothing. A finding of severity error keeps the trajectory out of training. What each rule means:
`audit_rules`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from t1.tito.audit_location import Place, check_locations
from t1.tito.audit_loss import check_finish, check_numbers, check_ownership
from t1.tito.audit_record import layout_of, recorded
from t1.tito.audit_routing import check_rows
from t1.tito.audit_rules import Findings
from t1.tito.audit_stream import Texts, check_columns, check_fits, check_segments, check_stream
from t1.types import Case, Finding, FinishReason, IntArray, Rollout, Severity, StopReason, Trajectory


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What the auditor found in one rollout."""

    findings: tuple[Finding, ...]
    counters: dict[str, int]
    """tokens, sampled_tokens, segments, loss_region_drift, residual, routing_rows, routing_disagreements,
    case_<case> for each of the cases, completion_<exact|same_text|gone|unverified> (its place in the next prompt)."""

    @property
    def trainable(self) -> bool:
        """No finding of severity error."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)


_COUNTERS = (
    "tokens",
    "sampled_tokens",
    "segments",
    "loss_region_drift",
    "residual",
    "routing_rows",
    "routing_disagreements",
    *(f"case_{case}" for case in Case),
    *(f"completion_{place}" for place in Place),
)
_CASE_COUNTER = {case: f"case_{case}" for case in Case}
_PLACE_COUNTER = {place: f"completion_{place}" for place in Place}


def audit(
    rollout: Rollout,
    trajectories: Sequence[Trajectory],
    *,
    vocab_size: int | None,
    num_experts: int | None,
    decode: Callable[[IntArray], str] | None = None,
    boundary_ids: frozenset[int] | None = None,
) -> AuditReport:
    """Check the trajectories of one rollout against its raw turns.

    Without `decode`, a completion that came back through other ids is counted as unverified; without `boundary_ids` it
    is not checked that nothing else was normalized.
    """
    findings, counters = Findings(rollout.id), dict.fromkeys(_COUNTERS, 0)
    _check_end(rollout, bool(trajectories), findings)
    if not rollout.turns:
        if trajectories:
            findings.report("segments", "rollout", f"{len(trajectories)} trajectories of a rollout without turns")
        return AuditReport(tuple(findings.found), counters)
    record = recorded(rollout.turns)
    layouts = [layout_of(trajectory) for trajectory in trajectories]
    counters["segments"] = len(trajectories)
    counters["tokens"] = sum(len(trajectory.tokens) for trajectory in trajectories)
    counters["sampled_tokens"] = sum(len(layout.sampled) for layout in layouts)
    counters["loss_region_drift"] = check_ownership(record, layouts, findings)
    check_numbers(record, layouts, vocab_size, findings)
    check_finish(rollout.turns, record, boundary_ids, findings)
    check_segments(rollout, layouts, findings)
    sound = []
    for index, layout in enumerate(layouts):
        if not check_fits(record, layout, index, findings):
            continue
        sound.append(layout)
        check_columns(record, layout, index, findings)
        counters["residual"] += check_stream(rollout, layout, Texts(decode, boundary_ids), findings)
        for boundary in layout.trajectory.boundaries:
            counters[_CASE_COUNTER[boundary.case]] += 1
        rows = check_rows(rollout.turns, layout.trajectory, layout.turns, layout.starts, num_experts=num_experts)
        for rule, message in rows.errors:
            findings.report(rule, f"segment {index}", message)
        counters["routing_rows"] += rows.num_rows
        counters["routing_disagreements"] += rows.disagreements
    for place in check_locations(rollout, sound, decode, findings):
        counters[_PLACE_COUNTER[place]] += 1
    return AuditReport(tuple(findings.found), counters)


def _check_end(rollout: Rollout, is_trained: bool, findings: Findings) -> None:
    """The stop reason explains the end, and only what was scored is trained."""
    outcome, turns = rollout.outcome, rollout.turns
    if outcome.reward is not None and not math.isfinite(outcome.reward):
        findings.report("reward", "rollout", f"a reward of {outcome.reward}")
    if is_trained and (outcome.reward is None or outcome.stop is StopReason.FAILED):
        findings.report("stop", "rollout", f"infrastructure failed ({outcome.failure}): not a score")
    if outcome.stop in (StopReason.SUBMITTED, StopReason.TURN_LIMIT) and not turns:
        findings.report("stop", "rollout", f"ended by {outcome.stop} without a turn")
    elif outcome.stop is StopReason.SUBMITTED and turns[-1].finish is FinishReason.LENGTH:
        findings.report("stop-cut", "rollout", "submitted by a completion that was cut at its token limit")
