"""The auditor's view of the loss region: every sampled token trained once, as it was sampled, and sound numbers.

Boundary: compares columns of raw turns with columns of trajectories; context is the business of `audit_stream`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from t1.tito.audit_record import Columns, Layout, trained
from t1.tito.audit_rules import Findings
from t1.types import FinishReason, Turn


def check_ownership(record: Columns, layouts: Sequence[Layout], num_turns: int, findings: Findings) -> int:
    """Every sampled token is trained exactly once, with its own id, logprob and version. Returns the drift.

    Drift: trained tokens that are not what the policy sampled, and sampled tokens that are not trained once.
    """
    ours = trained(layouts)
    if ours.turn.tobytes() != record.turn.tobytes():
        ours = ours.in_time_order()  # branches are interleaved
        if ours.turn.tobytes() != record.turn.tobytes():
            return _count_owners(record, ours, num_turns, findings)
    drift = 0
    if ours.ids.tobytes() != record.ids.tobytes():
        wrong = ours.ids != record.ids
        drift = int(wrong.sum())
        findings.report("loss-drift", record.turns_where(wrong), "trained ids differ from the sampled ids")
    if ours.logprobs.tobytes() != record.logprobs.tobytes():
        wrong = ours.logprobs.view(np.int32) != record.logprobs.view(np.int32)
        message = "logprobs differ from those that the sampler reported"
        findings.report("wrong-logprob", record.turns_where(wrong), message)
    if ours.versions.tobytes() != record.versions.tobytes():
        wrong = ours.versions != record.versions
        message = "versions differ from those that the sampler reported"
        findings.report("wrong-version", record.turns_where(wrong), message)
    return drift


def _count_owners(record: Columns, ours: Columns, num_turns: int, findings: Findings) -> int:
    """Turns whose tokens are trained too seldom or too often. Returns how many tokens are concerned."""
    nobody = int((ours.turn < 0).sum())
    if nobody:
        findings.report("trained-twice", "no turn", f"{nobody} trained tokens belong to no turn")
    trained_of = np.bincount(ours.turn[nobody:], minlength=num_turns)
    sampled_of = np.bincount(record.turn, minlength=len(trained_of))
    for turn in np.flatnonzero(trained_of != sampled_of).tolist():
        rule = "not-trained" if trained_of[turn] < sampled_of[turn] else "trained-twice"
        message = f"{sampled_of[turn]} tokens were sampled, {trained_of[turn]} are trained"
        findings.report(rule, f"turn {turn}", message)
    return nobody + int(np.abs(trained_of - sampled_of).sum())


def check_numbers(record: Columns, layouts: Sequence[Layout], vocab_size: int | None, findings: Findings) -> None:
    """Log-probabilities finite and ≤ 0, versions that never go back within a stream, ids inside the vocabulary."""
    if not (record.logprobs.max() <= 0 and record.logprobs.min() > -np.inf):  # NaN fails both
        bad = ~((record.logprobs <= 0) & (record.logprobs > -np.inf))
        findings.report("logprob-range", record.turns_where(bad), "log-probabilities must be finite and at most 0")
    for index, layout in enumerate(layouts):
        trajectory, where = layout.trajectory, f"segment {index}"
        versions = trajectory.version[layout.sampled]
        if (versions[1:] < versions[:-1]).any():
            findings.report("version-order", where, "a token was sampled by older weights than the one before it")
        if vocab_size is not None and trajectory.tokens.view(np.uint32).max() >= vocab_size:  # a negative id is huge
            findings.report("token-range", where, f"ids must lie in [0, {vocab_size})")


def check_finish(turns: Sequence[Turn], boundary_ids: frozenset[int] | None, findings: Findings) -> None:
    """A completion that was stopped ends with a stop id, one that was cut does not.

    Stop ids are those that end the rollout's stopped completions; where `boundary_ids` are known, stop ids are some of
    them.
    """
    last = [int(turn.completion[-1]) for turn in turns]
    stops = {token for token, turn in zip(last, turns, strict=True) if turn.finish is FinishReason.STOP}
    for index, (token, turn) in enumerate(zip(last, turns, strict=True)):
        stopped = turn.finish is FinishReason.STOP
        if stopped and boundary_ids and token not in boundary_ids:
            findings.report("finish", f"turn {index}", f"stopped by {token}, which is no boundary token")
        elif not stopped and token in stops:
            findings.report("finish", f"turn {index}", f"cut, but its last token {token} stops other completions")
