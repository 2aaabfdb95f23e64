"""The auditor: from the raw turns, is what was made of them true?

It shares no code with the assembler and trusts nothing that a trajectory says of itself. Boundary: it judges and
counts, it repairs nothing. A finding of severity error keeps the trajectory out of training.

Rules (errors unless marked): `not-trained`, `trained-twice`, `loss-drift`, `wrong-logprob`, `wrong-version`,
`wrong-turn`, `mask`, `context`, `context-logprob`, `boundary`, `residual`, `completion-lost`, `logprob-range`,
`token-range`, `version-order`, `stop` (a warning where it is only odd), `segments`, and the rules of `audit_routing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from t1.tito.audit_location import Decode, Place, locate
from t1.tito.audit_routing import check_rows
from t1.types import (
    Boundary,
    Case,
    Finding,
    FinishReason,
    FloatArray,
    IntArray,
    Rollout,
    Severity,
    StopReason,
    Trajectory,
)

Indices = npt.NDArray[np.intp]
Report = Callable[[str, str, str], None]
"""(rule, where, message) of an error."""


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


@dataclass(frozen=True, slots=True)
class _Record:
    """What the policy sampled, by the raw turns: columns over all turns end to end."""

    ids: IntArray
    """[sampled]"""
    logprobs: FloatArray
    """[sampled]"""
    versions: IntArray
    """[sampled]"""
    turn: IntArray
    """[sampled] the turn that sampled each token."""
    lengths: list[int]
    """[turns] sampled tokens of each turn."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where a trajectory's own mask and turn columns put each completion."""

    trajectory: Trajectory
    sampled: Indices
    """[sampled] positions that the mask trains."""
    turns: list[int]
    """[runs] the turn of each run of sampled tokens."""
    starts: list[int]
    """[runs] position of each run's first token."""
    ends: list[int]
    """[runs] position after each run's last token."""


def audit(
    rollout: Rollout,
    trajectories: Sequence[Trajectory],
    *,
    vocab_size: int | None,
    num_experts: int | None,
    decode: Decode | None = None,
) -> AuditReport:
    """Check the trajectories of one rollout against its raw turns.

    Without `decode`, a completion that came back through other ids is counted as unverified.
    """
    findings: list[Finding] = []
    counters = dict.fromkeys(_COUNTERS, 0)

    def report(rule: str, where: str, message: str) -> None:
        findings.append(Finding(rule, Severity.ERROR, rollout.id, where, message))

    findings.extend(_check_end(rollout, trajectories))
    if not rollout.turns:
        if trajectories:
            report("segments", "rollout", f"{len(trajectories)} trajectories of a rollout without turns")
        return AuditReport(tuple(findings), counters)
    record = _record(rollout)
    layouts = [_layout(trajectory) for trajectory in trajectories]
    counters["segments"] = len(trajectories)
    counters["tokens"] = sum(len(trajectory.tokens) for trajectory in trajectories)
    counters["sampled_tokens"] = sum(len(layout.sampled) for layout in layouts)
    counters["loss_region_drift"] = _check_ownership(record, layouts, report)
    _check_numbers(rollout, record, trajectories, vocab_size, report)
    joined: dict[int, tuple[int, Boundary]] = {}
    for index, layout in enumerate(layouts):
        trajectory = layout.trajectory
        if trajectory.rollout != rollout.id or trajectory.segment != index:
            name = f"{trajectory.rollout} segment {trajectory.segment}"
            report("segments", f"segment {index}", f"expected segment {index} of {rollout.id}, got {name}")
        if _fits(rollout, layout, index, report):
            _check_columns(rollout, layout, index, report)
            _check_stream(rollout, layout, counters, report)
            joined.update((boundary.turn, (index, boundary)) for boundary in trajectory.boundaries)
            rows = check_rows(rollout.turns, trajectory, layout.turns, layout.starts, num_experts=num_experts)
            for rule, message in rows.errors:
                report(rule, f"segment {index}", message)
            counters["routing_rows"] += rows.num_rows
            counters["routing_disagreements"] += rows.disagreements
    _check_locations(rollout, joined, decode, counters, report)
    return AuditReport(tuple(findings), counters)


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


def _record(rollout: Rollout) -> _Record:
    """The columns of everything that was sampled."""
    turns = rollout.turns
    lengths = [len(turn.completion) for turn in turns]
    return _Record(
        ids=np.concatenate([turn.completion for turn in turns]),
        logprobs=np.concatenate([turn.logprobs for turn in turns]),
        versions=np.concatenate([turn.versions for turn in turns]),
        turn=np.repeat(np.arange(len(turns), dtype=np.int32), lengths),
        lengths=lengths,
    )


def _layout(trajectory: Trajectory) -> _Layout:
    """Read the runs of sampled tokens off the mask and turn columns."""
    sampled = trajectory.mask.nonzero()[0]
    owner = trajectory.turn[sampled]
    changes = (owner[1:] != owner[:-1]).nonzero()[0].tolist()
    last = [*changes, len(owner) - 1]  # of each run, in `sampled`
    first = [0, *(index + 1 for index in changes)]
    ends = (sampled[last] + 1).tolist()
    return _Layout(trajectory, sampled, owner[last].tolist(), sampled[first].tolist(), ends)


# --------------------------------------------------------------------------------------------------------------------
# The loss region


def _check_ownership(record: _Record, layouts: Sequence[_Layout], report: Report) -> int:
    """Every sampled token is trained exactly once, with its own id, logprob and version. Returns the drift.

    Drift: trained tokens that are not what the policy sampled, and sampled tokens that are not trained once.
    """
    ids, logprobs, versions, turn = _trained(layouts)
    if turn.tobytes() != record.turn.tobytes():
        counts = np.bincount(turn[turn >= 0], minlength=len(record.lengths))
        drift = int((turn < 0).sum())
        for index, trained in enumerate(counts.tolist()):
            expected = record.lengths[index] if index < len(record.lengths) else 0
            drift += abs(trained - expected)
            if trained != expected:
                rule = "not-trained" if trained < expected else "trained-twice"
                report(rule, f"turn {index}", f"{expected} tokens were sampled, {trained} are trained")
        if not drift:
            report("wrong-turn", "rollout", "the segments do not hold the turns in time order")
        return max(drift, 1)
    drift = 0
    if ids.tobytes() != record.ids.tobytes():
        wrong = ids != record.ids
        drift = int(wrong.sum())
        report("loss-drift", _turns_of(record, wrong), "trained ids differ from the sampled ids")
    if logprobs.tobytes() != record.logprobs.tobytes():
        wrong = logprobs.view(np.int32) != record.logprobs.view(np.int32)
        report("wrong-logprob", _turns_of(record, wrong), "logprobs differ from those that the sampler reported")
    if versions.tobytes() != record.versions.tobytes():
        wrong = versions != record.versions
        report("wrong-version", _turns_of(record, wrong), "versions differ from those that the sampler reported")
    return drift


def _trained(layouts: Sequence[_Layout]) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    """(ids, logprobs, versions, turns) of all trained tokens, segment by segment."""
    parts = [(layout.trajectory, layout.sampled) for layout in layouts]
    if len(parts) == 1:
        whole, at = parts[0]
        return whole.tokens[at], whole.logprobs[at], whole.version[at], whole.turn[at]
    if not parts:
        none = np.empty(0, dtype=np.int32)
        return none, none.astype(np.float32), none, none
    return (
        np.concatenate([one.tokens[at] for one, at in parts]),
        np.concatenate([one.logprobs[at] for one, at in parts]),
        np.concatenate([one.version[at] for one, at in parts]),
        np.concatenate([one.turn[at] for one, at in parts]),
    )


def _turns_of(record: _Record, wrong: npt.NDArray[np.bool_]) -> str:
    """The turns that `wrong` [sampled] points at."""
    return f"turns {sorted(set(record.turn[wrong].tolist()))}"


def _check_numbers(
    rollout: Rollout, record: _Record, trajectories: Sequence[Trajectory], vocab_size: int | None, report: Report
) -> None:
    """Log-probabilities finite and ≤ 0, versions that never go back, ids inside the vocabulary."""
    if not (record.logprobs.max() <= 0 and record.logprobs.min() > -np.inf):  # NaN fails both
        bad = ~((record.logprobs <= 0) & (record.logprobs > -np.inf))
        report("logprob-range", _turns_of(record, bad), "log-probabilities must be finite and at most 0")
    if (record.versions[1:] < record.versions[:-1]).any():
        report("version-order", "rollout", "a token was sampled by older weights than the one before it")
    if vocab_size is not None:
        for index, tokens in enumerate(trajectory.tokens for trajectory in trajectories):
            if tokens.view(np.uint32).max() >= vocab_size:  # a negative id is a huge one
                report("token-range", f"segment {index}", f"ids must lie in [0, {vocab_size})")


# --------------------------------------------------------------------------------------------------------------------
# The stream


def _fits(rollout: Rollout, layout: _Layout, index: int, report: Report) -> bool:
    """The runs of the mask are whole completions of real turns, and every turn has its boundary."""
    turns, where = layout.turns, f"segment {index}"
    if turns != list(range(turns[0], turns[0] + len(turns))) or turns[0] < 0 or turns[-1] >= len(rollout.turns):
        report("wrong-turn", where, f"sampled tokens belong to turns {turns}, expected consecutive ones")
        return False
    lengths = [len(turn.completion) for turn in rollout.turns[turns[0] : turns[-1] + 1]]
    runs = [end - start for start, end in zip(layout.starts, layout.ends, strict=True)]
    if runs != lengths:
        report("mask", where, f"the mask trains runs of {runs} tokens, the turns sampled {lengths}")
        return False
    if [boundary.turn for boundary in layout.trajectory.boundaries] != turns:
        named = [boundary.turn for boundary in layout.trajectory.boundaries]
        report("boundary", where, f"boundaries name turns {named}, the stream holds {turns}")
        return False
    return True


def _check_columns(rollout: Rollout, layout: _Layout, index: int, report: Report) -> None:
    """Context carries the turn that brought it, the version of the next sampled token, and no logprob."""
    trajectory, where = layout.trajectory, f"segment {index}"
    brought = [end - start for start, end in pairwise([0, *layout.ends])]
    if trajectory.turn.tobytes() != np.array(layout.turns, dtype=np.int32).repeat(brought).tobytes():
        report("wrong-turn", where, "the turn column differs from the turns that brought the tokens")
    first = np.array([rollout.turns[turn].versions[0] for turn in layout.turns], dtype=np.int32)
    version = first.repeat(brought)
    version[layout.sampled] = trajectory.version[layout.sampled]
    if trajectory.version.tobytes() != version.tobytes():
        report("wrong-version", where, "context must carry the version of the first token sampled after it")
    if np.count_nonzero(trajectory.logprobs) != np.count_nonzero(trajectory.logprobs[layout.sampled]):
        report("context-logprob", where, "context must carry no log-probability")


def _check_stream(rollout: Rollout, layout: _Layout, counters: dict[str, int], report: Report) -> None:
    """Each turn's context against the prompt that the sampler saw, and what its boundary claims."""
    tokens = layout.trajectory.tokens
    ids, held = tokens.tobytes(), 0
    for turn, start, end, boundary in zip(
        layout.turns, layout.starts, layout.ends, layout.trajectory.boundaries, strict=True
    ):
        prompt = rollout.turns[turn].prompt
        counters[_CASE_COUNTER[boundary.case]] += 1
        if start == len(prompt) and ids.startswith(np.ascontiguousarray(prompt).data):
            fault = _exact_fault(boundary, held, start)
        else:
            counters["residual"] += boundary.residual
            fault = _edited_fault(boundary, tokens[:start], prompt, held)
        if fault is not None:
            report(fault[0], f"turn {turn}", fault[1])
        held = end


def _exact_fault(boundary: Boundary, held: int, start: int) -> tuple[str, str] | None:
    """(rule, message) where a boundary is wrong about a context that is what the sampler saw."""
    cases = (Case.STRICT,) if held else (Case.SPLIT,) if boundary.turn else (Case.OPEN,)
    if boundary.case not in cases:
        return "boundary", f"case {boundary.case}, expected {cases[0]}: the sampler saw just this context"
    if (boundary.kept, boundary.inserted, boundary.dropped) != (held, start - held, 0):
        return "boundary", f"expected kept {held}, inserted {start - held}, dropped 0; got {boundary}"
    return ("residual", f"expected 0, got {boundary.residual}") if boundary.residual else None


def _edited_fault(boundary: Boundary, stream: IntArray, prompt: IntArray, held: int) -> tuple[str, str] | None:
    """(rule, message) where a context differs from the prompt in a way that its boundary does not account for.

    `stream` [start] is the trajectory before the completion, its first `held` tokens those of earlier turns.
    """
    inserted = len(stream) - held
    if not held or boundary.case not in (Case.NORMALIZED, Case.RETOKENIZED):
        return "context", f"case {boundary.case}, but the context is not what the sampler saw"
    if inserted > len(prompt) or not np.array_equal(stream[held:], prompt[len(prompt) - inserted :]):
        return "context", "the new context is not the end of the prompt"
    copy = prompt[: len(prompt) - inserted]
    if boundary.inserted != inserted or boundary.kept + boundary.dropped != len(copy):
        return "boundary", f"a prompt of {len(prompt)} tokens with {inserted} new ones is not {boundary}"
    most = _shared(stream[:held], copy)
    if not 0 <= boundary.kept <= most:
        return "boundary", f"at most {most} tokens of the stream stand in the prompt; got {boundary}"
    expected = max(held - boundary.kept, boundary.dropped)
    if boundary.residual != expected:
        return "residual", f"expected {expected}, got {boundary.residual}"
    return None


def _shared(a: IntArray, b: IntArray) -> int:
    """How many tokens two sequences can share at most, whatever their order."""
    (ids, left), (others, right) = np.unique(a, return_counts=True), np.unique(b, return_counts=True)
    _, at, there = np.intersect1d(ids, others, assume_unique=True, return_indices=True)
    return int(np.minimum(left[at], right[there]).sum())


def _check_locations(
    rollout: Rollout,
    joined: dict[int, tuple[int, Boundary]],
    decode: Decode | None,
    counters: dict[str, int],
    report: Report,
) -> None:
    """Each completion in the next prompt: exactly, as the same text, or gone. Gone from its own stream is an error.

    `joined` {turn: (segment, boundary)} holds every turn that stands in a stream.
    """
    for turn in range(len(rollout.turns) - 1):
        completion, prompt = rollout.turns[turn].completion, rollout.turns[turn + 1].prompt
        segment, boundary = joined.get(turn + 1, (-1, None))
        if boundary is None or joined.get(turn, (-2,))[0] != segment:
            counters[f"completion_{locate(completion, prompt, decode)}"] += 1
            continue
        if not boundary.residual:
            counters[f"completion_{Place.EXACT}"] += 1  # the prompt was found to be the stream
            continue
        may_lack = boundary.residual if boundary.case is Case.NORMALIZED else 0
        place = locate(completion, prompt, decode, may_lack=may_lack)
        counters[f"completion_{place}"] += 1
        lost = place is Place.GONE or (place is Place.UNVERIFIED and boundary.case is Case.NORMALIZED)
        if lost and len(completion) > may_lack:
            report("completion-lost", f"turn {turn}", "the stream goes on, but the next prompt lacks the completion")


def _check_end(rollout: Rollout, trajectories: Sequence[Trajectory]) -> list[Finding]:
    """The stop reason explains the end, and only what was scored is trained."""
    stop, turns = rollout.outcome.stop, rollout.turns

    def finding(severity: Severity, message: str) -> Finding:
        return Finding("stop", severity, rollout.id, "rollout", message)

    findings = []
    if trajectories and (rollout.outcome.reward is None or stop is StopReason.FAILED):
        findings.append(finding(Severity.ERROR, f"infrastructure failed ({rollout.outcome.failure}): not a score"))
    if stop is StopReason.SUBMITTED and not turns:
        findings.append(finding(Severity.ERROR, "submitted without a turn"))
    elif stop is StopReason.SUBMITTED and turns[-1].finish is FinishReason.LENGTH:
        findings.append(finding(Severity.WARNING, "submitted by a completion that was cut at its token limit"))
    return findings
