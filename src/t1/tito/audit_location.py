"""Where a completion is found again inside the next prompt: the auditor's own search.

Boundary: it looks anywhere in the prompt and not where a turn was joined, so that it can contradict it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise

import numpy as np

from t1.tito.audit_record import Layout
from t1.tito.audit_rules import Findings
from t1.types import Boundary, Case, IntArray, Rollout

Decode = Callable[[IntArray], str]
_ID_BYTES = np.dtype(np.int32).itemsize


class Place(StrEnum):
    """How a completion stands in the next prompt."""

    EXACT = "exact"
    """The same ids in a row (less boundary tokens at their end, where the boundary says so)."""
    SAME_TEXT = "same_text"
    """Other ids, the same text up to white space."""
    GONE = "gone"
    UNVERIFIED = "unverified"
    """Not there exactly, and without `decode`, or without any text, nobody can say more."""


def check_locations(
    rollout: Rollout, layouts: Sequence[Layout], decode: Decode | None, findings: Findings
) -> Iterator[Place]:
    """Where each completion stands in the next prompt of its stream. Gone from there is an error.

    After the last turn of a stream the next prompt is that of the turn which opens a stream next, if any does.
    """
    openings = [layout.turns[0] for layout in layouts]
    for layout in layouts:
        for (turn, _), (following, boundary) in pairwise(zip(layout.turns, layout.trajectory.boundaries, strict=True)):
            yield _place_in_stream(rollout, turn, following, boundary, decode, findings)
        later = bisect_right(openings, layout.turns[-1])
        if later < len(openings):
            last, opening = rollout.turns[layout.turns[-1]], rollout.turns[openings[later]]
            yield locate(last.completion, opening.prompt, decode)


def _place_in_stream(
    rollout: Rollout, turn: int, following: int, boundary: Boundary, decode: Decode | None, findings: Findings
) -> Place:
    """Where the completion of `turn` stands in the prompt of the turn `following`, which `boundary` joined to it."""
    if not boundary.residual:
        return Place.EXACT  # the prompt was found to be the stream
    completion = rollout.turns[turn].completion
    may_lack = boundary.residual if boundary.case is Case.NORMALIZED else 0
    place = locate(completion, rollout.turns[following].prompt, decode, may_lack=may_lack)
    lost = place is Place.GONE or (place is Place.UNVERIFIED and boundary.case is Case.NORMALIZED)
    if lost and len(completion) > may_lack:
        message = "the stream goes on, but the next prompt lacks the completion"
        findings.report("completion-lost", f"turn {turn}", message)
    return place


def locate(completion: IntArray, prompt: IntArray, decode: Decode | None, *, may_lack: int = 0) -> Place:
    """Find `completion` in `prompt`, as it is or less up to `may_lack` of the tokens at its end."""
    haystack, size = prompt.tobytes(), len(completion)
    for cut in range(min(2 * may_lack + 8 if may_lack else 0, size - 1) + 1):
        if (at := _find_last(haystack, completion[: size - cut].tobytes())) >= 0:
            after = prompt[at + size - cut :][: cut + may_lack]
            lacking = np.count_nonzero(np.isin(completion[size - cut :], after, invert=True))
            if lacking <= may_lack:
                return Place.EXACT
    text = _squeeze(decode(completion)) if decode is not None else ""
    if decode is None or not text:
        return Place.UNVERIFIED
    return Place.SAME_TEXT if text in _squeeze(decode(prompt)) else Place.GONE


def _find_last(haystack: bytes, needle: bytes) -> int:
    """Index of the last token where the ids of `needle` stand in a row, or −1."""
    at = haystack.rfind(needle)
    while at >= 0 and at % _ID_BYTES:
        at = haystack.rfind(needle, 0, at + len(needle) - 1)
    return at // _ID_BYTES if at >= 0 else -1


def _squeeze(text: str) -> str:
    return "".join(text.split())
