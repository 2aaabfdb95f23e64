"""The auditor's view of the loss region: every sampled token trained once, as it was sampled, and sound numbers.

Boundary: compares columns of raw turns with columns of trajectories; context is the business of `audit_stream`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from t1.tito.audit_record import Columns, Layout, Record, trained
from t1.tito.audit_rules import Findings
from t1.types import FinishReason, Turn


def check_ownership(record: Record, layouts: Sequence[Layout], findings: Findings) -> int:
    """Every sampled token is trained exactly once, with its own id, logprob and version. Returns the drift.

    Drift: trained tokens that are not what the policy sampled, and sampled tokens that are not trained once.
    """
    theirs, ours = record.columns, trained(layouts)
    if ours.turn.tobytes() != theirs.turn.tobytes():
        ours = ours.in_time_order()  # branches are interleaved
        if ours.turn.tobytes() != theirs.turn.tobytes():
            return _count_owners(record, ours, findings)
    drift = 0
    if ours.ids.tobytes() != theirs.ids.tobytes():
        wrong = ours.ids != theirs.ids
        drift = int(wrong.sum())
        findings.report("loss-drift", theirs.turns_where(wrong), "trained ids differ from the sampled ids")
    if ours.logprobs.tobytes() != theirs.logprobs.tobytes():
        wrong = ours.logprobs.view(np.int32) != theirs.logprobs.view(np.int32)
        message = "logprobs differ from those that the sampler reported"
        findings.report("wrong-logprob", theirs.turns_where(wrong), message)
    if ours.versions.tobytes() != theirs.versions.tobytes():
        wrong = ours.versions != theirs.versions
        message = "versions differ from those that the sampler reported"
        findings.report("wrong-version", theirs.turns_where(wrong), message)
    return drift


def _count_owners(record: Record, ours: Columns, findings: Findings) -> int:
    """Turns whose tokens are trained too seldom or too often. Returns how many tokens are concerned."""
    nobody = int((ours.turn < 0).sum())
    if nobody:
        findings.report("trained-twice", "no turn", f"{nobody} trained tokens belong to no turn")
    trained_of = np.bincount(ours.turn[nobody:], minlength=len(record.lengths))
    sampled_of = np.zeros_like(trained_of)
    sampled_of[: len(record.lengths)] = record.lengths
    for turn in np.flatnonzero(trained_of != sampled_of).tolist():
        rule = "not-trained" if trained_of[turn] < sampled_of[turn] else "trained-twice"
        message = f"{sampled_of[turn]} tokens were sampled, {trained_of[turn]} are trained"
        findings.report(rule, f"turn {turn}", message)
    return nobody + int(np.abs(trained_of - sampled_of).sum())


def check_numbers(record: Record, layouts: Sequence[Layout], vocab_size: int | None, findings: Findings) -> None:
    """Log-probabilities finite and ≤ 0, versions that never go back within a stream, ids inside the vocabulary."""
    logprobs = record.columns.logprobs
    sound = (logprobs <= 0) & (logprobs > -np.inf)  # NaN fails both
    if np.count_nonzero(sound) < len(sound):
        where = record.columns.turns_where(~sound)
        findings.report("logprob-range", where, "log-probabilities must be finite and at most 0")
    for index, layout in enumerate(layouts):
        trajectory, where = layout.trajectory, f"segment {index}"
        versions = trajectory.version[layout.sampled]
        if np.count_nonzero(versions[1:] < versions[:-1]):
            findings.report("version-order", where, "a token was sampled by older weights than the one before it")
        ids = trajectory.tokens.view(np.uint32)  # a negative id is huge
        if vocab_size is not None and np.count_nonzero(ids >= vocab_size):
            findings.report("token-range", where, f"ids must lie in [0, {vocab_size})")


def check_finish(
    turns: Sequence[Turn], record: Record, boundary_ids: frozenset[int] | None, findings: Findings
) -> None:
    """A completion that was stopped ends with a stop id, one that was cut does not.

    Stop ids are those that end the rollout's stopped completions; where `boundary_ids` are known, stop ids are some of
    them.
    """
    last, stops = record.last_ids.tolist(), set()
    for index, turn in enumerate(turns):
        if turn.finish is FinishReason.STOP:
            stops.add(last[index])
            if boundary_ids and last[index] not in boundary_ids:
                findings.report("finish", f"turn {index}", f"stopped by {last[index]}, which is no boundary token")
    for index, turn in enumerate(turns):
        if turn.finish is not FinishReason.STOP and last[index] in stops:
            findings.report("finish", f"turn {index}", f"cut, but its last token {last[index]} stops other completions")
