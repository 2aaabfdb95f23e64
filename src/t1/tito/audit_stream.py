"""The auditor's view of context: is what stands around the completions what the sampler saw, and do boundaries say so?

Boundary: compares a trajectory with the prompts of its own turns. It recomputes what a boundary claims from ids and
texts, and shares no code with what joined them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from t1.tito.audit_record import Layout, Record
from t1.tito.audit_rules import Findings
from t1.types import Boundary, Case, IntArray, Rollout, Turn

Fault = tuple[str, str]
"""(rule, message)"""


@dataclass(frozen=True, slots=True)
class Texts:
    """What is known of the policy's tokenizer; without it, texts are not compared."""

    decode: Callable[[IntArray], str] | None
    boundary_ids: frozenset[int] | None
    """Stop, end-of-turn and white-space tokens: a harness may change them around a completion."""


def check_fits(record: Record, layout: Layout, index: int, findings: Findings) -> bool:
    """The runs of the mask are whole completions of real turns in time order, and every turn has its boundary."""
    turns, where = layout.turns, f"segment {index}"
    if turns[0] < 0 or turns[-1] >= len(record.lengths) or any(a >= b for a, b in pairwise(turns)):
        findings.report("wrong-turn", where, f"sampled tokens belong to turns {turns}, expected ever later ones")
        return False
    lengths = record.lengths[turns].tolist()
    runs = [end - start for start, end in zip(layout.starts, layout.ends, strict=True)]
    if runs != lengths:
        findings.report("mask", where, f"the mask trains runs of {runs} tokens, the turns sampled {lengths}")
        return False
    named = [boundary.turn for boundary in layout.trajectory.boundaries]
    if named != turns:
        findings.report("boundary", where, f"boundaries name turns {named}, the stream holds {turns}")
        return False
    return True


def check_columns(record: Record, layout: Layout, index: int, findings: Findings) -> None:
    """Context carries the turn that brought it, the version of the next sampled token, and no logprob."""
    trajectory, where = layout.trajectory, f"segment {index}"
    brought = [end - start for start, end in pairwise([0, *layout.ends])]
    if trajectory.turn.tobytes() != np.array(layout.turns, dtype=np.int32).repeat(brought).tobytes():
        findings.report("wrong-turn", where, "the turn column differs from the turns that brought the tokens")
    version = record.first_versions[layout.turns].repeat(brought)
    version[layout.sampled] = trajectory.version[layout.sampled]
    if trajectory.version.tobytes() != version.tobytes():
        message = "context must carry the version of the first token sampled after it"
        findings.report("wrong-version", where, message)
    if np.count_nonzero(trajectory.logprobs) != np.count_nonzero(trajectory.logprobs[layout.sampled]):
        findings.report("context-logprob", where, "context must carry no log-probability")


def check_stream(rollout: Rollout, layout: Layout, texts: Texts, findings: Findings) -> int:
    """Each turn's context against the prompt that the sampler saw, and what its boundary claims. Returns the residual.

    Comparing each whole prompt costs turns × tokens, but at the speed of memory.
    """
    trajectory = layout.trajectory
    ids, residual, held = trajectory.tokens.tobytes(), 0, 0
    for index, boundary in enumerate(trajectory.boundaries):
        prompt, start = rollout.turns[boundary.turn].prompt, layout.starts[index]
        if start == len(prompt) and ids.startswith(np.ascontiguousarray(prompt).data):
            fault = _exact_fault(boundary, held, start)
        else:
            residual += boundary.residual
            before = _Before(rollout.turns[layout.turns[index - 1]], trajectory.boundaries[index - 1], held)
            fault = _edited_fault(boundary, trajectory.tokens[:start], prompt, before, texts)
        if fault is not None:
            findings.report(fault[0], f"turn {boundary.turn}", fault[1])
        held = layout.ends[index]
    return residual


@dataclass(frozen=True, slots=True)
class _Before:
    """The turn of a stream before the one that is checked; none before its first, where nothing is held."""

    turn: Turn
    boundary: Boundary
    held: int
    """Tokens of the stream up to the end of its completion."""


def _exact_fault(boundary: Boundary, held: int, start: int) -> Fault | None:
    """(rule, message) where a boundary is wrong about a context that is what the sampler saw."""
    expected = Case.STRICT if held else Case.SPLIT if boundary.turn else Case.OPEN
    if boundary.case is not expected:
        return "boundary", f"case {boundary.case}, expected {expected}: the sampler saw just this context"
    if (boundary.kept, boundary.inserted, boundary.dropped) != (held, start - held, 0):
        return "boundary", f"expected kept {held}, inserted {start - held}, dropped 0; got {boundary}"
    return ("residual", f"expected 0, got {boundary.residual}") if boundary.residual else None


def _edited_fault(
    boundary: Boundary, stream: IntArray, prompt: IntArray, before: _Before, texts: Texts
) -> Fault | None:
    """(rule, message) where a context differs from the prompt in a way that its boundary does not account for.

    `stream` [start] is the trajectory before the completion.
    """
    if not before.held or boundary.case not in (Case.NORMALIZED, Case.RETOKENIZED):
        return "context", f"case {boundary.case}, but the context is not what the sampler saw"
    held, inserted = stream[: before.held], len(stream) - before.held
    if inserted > len(prompt) or not np.array_equal(stream[before.held :], prompt[len(prompt) - inserted :]):
        return "context", "the new context is not the end of the prompt"
    copy = prompt[: len(prompt) - inserted]
    if boundary.inserted != inserted or boundary.kept + boundary.dropped != len(copy):
        return "boundary", f"a prompt of {len(prompt)} tokens with {inserted} new ones is not {boundary}"
    seen = len(before.turn.prompt)
    goes_on = len(copy) >= seen and np.array_equal(copy[:seen], before.turn.prompt)
    if goes_on:  # what was accepted before still stands: only the last completion is new
        if before.boundary.residual and (before.boundary.case, boundary.case) == (Case.RETOKENIZED, Case.NORMALIZED):
            return "boundary", "case normalized, but an edit that was accepted as retokenized still stands"
        ours, theirs = before.turn.completion, copy[seen:]
        least = most = before.boundary.kept + before.boundary.inserted + _shared_ends(ours, theirs)
    else:
        ours, theirs = held, copy
        least, most = 0, _shared(held, copy)
    if not least <= boundary.kept <= most:
        return "boundary", f"{least} to {most} tokens of the stream stand in the prompt as they are; got {boundary}"
    if boundary.residual != (expected := max(len(held) - boundary.kept, boundary.dropped)):
        return "residual", f"expected {expected}, got {boundary.residual}"
    return _text_fault(boundary, ours, theirs, texts)


def _text_fault(boundary: Boundary, ours: IntArray, theirs: IntArray, texts: Texts) -> Fault | None:
    """Normalized: the same ids less boundary tokens. Retokenized: the same text less those and white space."""
    if texts.boundary_ids is None:
        return None
    apart = np.array(sorted(texts.boundary_ids), dtype=np.int32)
    ours, theirs = (ids[~np.isin(ids, apart)] for ids in (ours, theirs))
    if np.array_equal(ours, theirs):
        return None
    if boundary.case is Case.NORMALIZED:
        return "other-text", "case normalized, but more than boundary tokens differ"
    if texts.decode is None or _squeeze(texts.decode(ours)) == _squeeze(texts.decode(theirs)):
        return None
    return "other-text", "case retokenized, but the prompt reads otherwise than the stream"


def _squeeze(text: str) -> str:
    return "".join(text.split())


def _shared_ends(a: IntArray, b: IntArray) -> int:
    """How many tokens two sequences share from their starts on and, of what is left, from their ends on."""
    size, count = min(len(a), len(b)), 0
    while count < size and a[count] == b[count]:
        count += 1
    head = count
    while count < size and a[head - 1 - count] == b[head - 1 - count]:
        count += 1
    return count


def _shared(a: IntArray, b: IntArray) -> int:
    """How many tokens two sequences can share at most, whatever their order."""
    (ids, left), (others, right) = np.unique(a, return_counts=True), np.unique(b, return_counts=True)
    _, at, there = np.intersect1d(ids, others, assume_unique=True, return_indices=True)
    return int(np.minimum(left[at], right[there]).sum())


def check_segments(rollout: Rollout, layouts: Sequence[Layout], findings: Findings) -> None:
    """Segments are numbered in the order of their first turns, and none was opened without need."""
    for index, layout in enumerate(layouts):
        trajectory = layout.trajectory
        if trajectory.rollout != rollout.id or trajectory.segment != index:
            name = f"{trajectory.rollout} segment {trajectory.segment}"
            findings.report("segments", f"segment {index}", f"expected segment {index} of {rollout.id}, got {name}")
    firsts = [layout.turns[0] for layout in layouts]
    if any(a >= b for a, b in pairwise(firsts)):
        findings.report("segments", "rollout", f"segments start at turns {firsts}, expected ever later ones")
        return
    for index, first in enumerate(firsts):
        if not 0 <= first < len(rollout.turns):
            continue
        prompt = rollout.turns[first].prompt
        for other in layouts[:index]:
            if _continues(prompt, other, first):
                message = f"its prompt begins with segment {other.trajectory.segment} as it was then"
                findings.report("needless-split", f"turn {first}", message)


def _continues(prompt: IntArray, layout: Layout, turn: int) -> bool:
    """True when `prompt` begins with all that the stream held before `turn`."""
    num_runs = bisect_left(layout.turns, turn)
    end = layout.ends[num_runs - 1] if num_runs else 0
    held = layout.trajectory.tokens[:end]
    return 0 < end <= len(prompt) and bool(prompt[end - 1] == held[-1]) and np.array_equal(prompt[:end], held)
