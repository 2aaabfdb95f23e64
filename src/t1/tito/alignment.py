"""Where a harness's copy of a completion ends in a prompt: the cases *normalized* and *retokenized*.

Boundary: compares ids, and texts through a given `decode`; knows nothing of turns, columns or routing. What cannot be
recognised with certainty is None, and the assembler splits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from t1.types import IntArray

Decode = Callable[[IntArray], str]
ID_BYTES = np.dtype(np.int32).itemsize
UNDECODABLE, MAX_UNDECODABLE = "\ufffd", 20
_JSON_SPACING = re.compile(r'("(?:[^"\\]|\\.)*")|\s+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Match:
    """A completion found in a prompt through other ids."""

    end: int
    """Prompt tokens that the harness's copy takes."""
    matched: int
    """Completion tokens that stand in the copy as they are."""


def starts_at(ids: bytes, part: IntArray, at: int) -> bool:
    """True when `part` stands in `ids` (int32, as bytes) from token `at` on: one memcmp."""
    return ids.startswith(memoryview(np.ascontiguousarray(part)), at * ID_BYTES)  # type: ignore[arg-type]


def normalize_boundary(rest: IntArray, completion: IntArray, boundary_ids: frozenset[int]) -> Match | None:
    """Match `completion` at the start of `rest` where only the boundary tokens right after its content differ.

    Both must have some: where the prompt has none, more of the message could follow.
    """
    body = len(completion) - _boundary_run(completion[::-1], boundary_ids)
    if body == len(completion) or not np.array_equal(rest[:body], completion[:body]):
        return None
    if not _boundary_run(rest[body:], boundary_ids):
        return None  # the message goes on, or nothing follows: edited, or tried again
    end, matched = _match_tail(rest[body:], completion[body:], boundary_ids)
    return Match(body + end, body + matched)


def match_last_text(rest: IntArray, completion: IntArray, decode: Decode, boundary_ids: frozenset[int]) -> Match | None:
    """Match the last `completion` at the start of `rest` by its text; a message boundary must follow."""
    tail = completion[len(completion) - _boundary_run(completion[::-1], boundary_ids) :]
    for content in _same_text_lengths(rest, completion, decode, boundary_ids):
        if boundary_ids and not _boundary_run(rest[content:], boundary_ids):
            continue
        end = content + _match_tail(rest[content:], tail, boundary_ids)[0]
        if end < len(rest):
            return Match(end, _common_ends(rest[:end], completion))
    return None


def match_history(
    prompt: IntArray,
    messages: Sequence[tuple[IntArray, IntArray]],
    decode: Decode,
    boundary_ids: frozenset[int],
) -> Match | None:
    """Match a whole stream, (context, completion) by turn, to the start of `prompt`.

    Context must be identical; each completion must be there exactly, or as the same text.
    """
    ids, at, matched = prompt.tobytes(), 0, 0
    for (context, completion), following in zip(
        messages, [context for context, _ in messages[1:]] + [None], strict=True
    ):
        if not starts_at(ids, context, at):
            return None
        at += len(context)
        after = at + len(completion)
        if starts_at(ids, completion, at) and (following is None or starts_at(ids, following, after)):
            found: Match | None = Match(len(completion), len(completion))
        elif following is None:
            found = match_last_text(prompt[at:], completion, decode, boundary_ids)
        else:
            found = _match_inner_text(prompt[at:], completion, following, decode, boundary_ids)
        if found is None:
            return None
        at += found.end
        matched += len(context) + found.matched
    return Match(at, matched)


def _match_inner_text(
    rest: IntArray, completion: IntArray, following: IntArray, decode: Decode, boundary_ids: frozenset[int]
) -> Match | None:
    """Match a completion by its text where the context that comes after it is known."""
    for content in _same_text_lengths(rest, completion, decode, boundary_ids):
        for end in range(content, content + _boundary_run(rest[content:], boundary_ids) + 1):
            if np.array_equal(rest[end : end + len(following)], following):
                return Match(end, _common_ends(rest[:end], completion))
    return None


def _match_tail(rest: IntArray, tail: IntArray, boundary_ids: frozenset[int]) -> tuple[int, int]:
    """(prompt tokens taken, tail tokens matched) of a completion's trailing boundary tokens at the start of `rest`.

    Up to the token that closed the completion where the prompt has it, else as far as both agree: all other boundary
    tokens of the prompt join the stream as context.
    """
    if len(tail) == 0:
        return 0, 0
    run = rest[: _boundary_run(rest, boundary_ids)]
    closing = np.flatnonzero(run == tail[-1])
    end = int(closing[0]) + 1 if len(closing) else _common_prefix(run, tail)
    return end, _common_ends(run[:end], tail)


def _boundary_run(ids: IntArray, boundary_ids: frozenset[int]) -> int:
    """How many boundary tokens `ids` starts with."""
    for index, token in enumerate(ids):
        if int(token) not in boundary_ids:
            return index
    return len(ids)


def _common_prefix(a: IntArray, b: IntArray) -> int:
    """Length of the longest common prefix."""
    size = min(len(a), len(b))
    differ = np.flatnonzero(a[:size] != b[:size])
    return int(differ[0]) if len(differ) else size


def _common_ends(a: IntArray, b: IntArray) -> int:
    """Tokens that `a` and `b` share at their start and, beyond that, at their end."""
    head = _common_prefix(a, b)
    return head + _common_prefix(a[head:][::-1], b[head:][::-1])


# --------------------------------------------------------------------------------------------------------------------
# Text


def _same_text_lengths(
    ids: IntArray, completion: IntArray, decode: Decode, boundary_ids: frozenset[int]
) -> Iterator[int]:
    """Lengths of prefixes of `ids` with the text of `completion`, up to the declared normalization; shortest first.

    Visible text only grows with the prefix, so the end is found by bisection: few calls of `decode`. A control token
    is not the text that spells it: what is left without boundary tokens must be the same text, too.
    """
    text = decode(completion)
    wanted = _num_visible(text)
    if not wanted:
        return  # nothing to recognise it by

    def is_short(length: int) -> bool:
        return _num_visible(decode(ids[:length])) < wanted

    low, high = 0, min(len(ids), len(completion))
    while is_short(high):
        if high == len(ids):
            return
        low, high = high, min(len(ids), 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_short(middle) else (low, middle)
    canonical, apart = normalize_text(text), _without_space(decode(_without(completion, boundary_ids)))
    for length in range(high, min(len(ids), high + _num_bytes_after(text)) + 1):
        copy = ids[:length]
        if normalize_text(decode(copy)) != canonical:
            continue
        if _without_space(decode(_without(copy, boundary_ids))) == apart:
            yield length


def _num_bytes_after(text: str) -> int:
    """How many tokens may follow the last visible character: bytes that make none, each copied as three of them."""
    trailing = text.rstrip()
    return 3 * (1 + min(len(trailing) - len(trailing.rstrip(UNDECODABLE)), MAX_UNDECODABLE))


def normalize_text(text: str) -> str:
    """Text up to newline style, trailing white space, and spacing in JSON objects outside of their strings."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").rstrip()
    if "{" not in text:
        return text
    decoder, parts, at = json.JSONDecoder(), [], 0
    while (start := text.find("{", at)) >= 0:
        parts.append(text[at:start])
        try:
            _, at = decoder.raw_decode(text, start)
            parts.append(_JSON_SPACING.sub(lambda m: m.group(1) or "", text[start:at]))
        except (ValueError, RecursionError):
            parts.append("{")
            at = start + 1
    return "".join(parts) + text[at:]


def _num_visible(text: str) -> int:
    """Characters but white space and U+FFFD: bytes that do not make a character yet may count as several of those."""
    return len(_without_space(text)) - text.count(UNDECODABLE)


def _without(ids: IntArray, some: frozenset[int]) -> IntArray:
    return ids[np.isin(ids, list(some), invert=True)]


def _without_space(text: str) -> str:
    return "".join(text.split())
