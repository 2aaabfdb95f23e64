"""Where a completion is found again inside the next prompt: the auditor's own search.

Boundary: looks anywhere in the prompt and knows nothing of how a turn was joined, so that it can contradict it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import numpy as np

from t1.types import IntArray

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
