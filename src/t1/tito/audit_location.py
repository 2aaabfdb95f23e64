"""Where a completion is found again inside the next prompt: the auditor's own search.

Boundary: looks anywhere in the prompt and knows nothing of how a turn was joined, so that it can contradict it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import numpy as np

from t1.types import IntArray

Decode = Callable[[IntArray], str]


class Place(StrEnum):
    """How a completion stands in the next prompt."""

    EXACT = "exact"
    """The same ids in a row (less boundary tokens at their end, where the boundary says so)."""
    SAME_TEXT = "same_text"
    """Other ids, the same text up to white space."""
    GONE = "gone"
    UNVERIFIED = "unverified"
    """Not there exactly, and without `decode` nobody can say more."""


def locate(completion: IntArray, prompt: IntArray, decode: Decode | None, *, may_lack: int = 0) -> Place:
    """Find `completion` in `prompt`; up to `may_lack` of its last tokens, never all, may be missing."""
    haystack = prompt.tobytes()
    for lacking in range(min(may_lack, len(completion) - 1) + 1):
        if _contains(haystack, completion[: len(completion) - lacking].tobytes()):
            return Place.EXACT
    if decode is None:
        return Place.UNVERIFIED
    text = _squeeze(decode(completion))
    return Place.SAME_TEXT if text and text in _squeeze(decode(prompt)) else Place.GONE


def _contains(haystack: bytes, needle: bytes) -> bool:
    """True when the ids stand in the haystack at a whole id."""
    size = np.dtype(np.int32).itemsize
    at = haystack.find(needle)
    while at >= 0 and at % size:
        at = haystack.find(needle, at + 1)
    return at >= 0


def _squeeze(text: str) -> str:
    return "".join(text.split())
