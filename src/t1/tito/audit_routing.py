"""The auditor's view of routing: does every row stem from the capture that first fed its token?

Boundary: compares rows of raw captures with rows of a trajectory, and shares no code with what joined them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from t1.types import BoolArray, IntArray, RoutingArray, Trajectory, Turn

MIN_REPEATS = 8
"""Shorter runs of one repeated row happen in real models."""
MAX_CHANCE = 1e-9
"""A run is reported when its probability is below this."""


@dataclass(frozen=True, slots=True)
class RowsReport:
    """What was found in the rows of one trajectory."""

    errors: tuple[tuple[str, str], ...]
    """(rule, message)"""
    num_rows: int = 0
    disagreements: int = 0
    """Rows that a later capture of the same position shows otherwise."""


def check_rows(
    turns: Sequence[Turn],
    trajectory: Trajectory,
    owners: Sequence[int],
    starts: Sequence[int],
    *,
    num_experts: int | None,
) -> RowsReport:
    """Check the rows of `trajectory`, whose completions are those of the turns `owners`, at positions `starts`."""
    captured = [turns[owner].routing is not None for owner in owners]
    rows = trajectory.routing
    if rows is None:
        lost = (("routing-missing", "the turns have captures, the trajectory has no rows"),) if any(captured) else ()
        return RowsReport(lost)
    if not all(captured):
        return RowsReport((("routing-missing", "the trajectory has rows, but not every turn has a capture"),))
    errors = [
        *_check_origin(turns, rows, owners, starts),
        *_check_experts(rows, num_experts),
        *_check_repeats(rows, trajectory.tokens[:-1]),
    ]
    return RowsReport(tuple(errors), len(rows), _disagreements(turns, rows, owners, starts))


def _check_origin(
    turns: Sequence[Turn], rows: RoutingArray, owners: Sequence[int], starts: Sequence[int]
) -> list[tuple[str, str]]:
    """Each row must be the one captured by the turn that fed its token first.

    A turn is the first to feed the token before its new context, that context, and its completion but the last token.
    """
    errors: list[tuple[str, str]] = []
    held = 0
    for owner, start in zip(owners, starts, strict=True):
        turn = turns[owner]
        capture = turn.routing
        assert capture is not None
        at, end = held - 1 if held else 0, start + len(turn.completion) - 1
        missing = max(0, end - at - len(capture))
        if missing and (held or not _lent(turns, owner, rows[:missing])):
            errors.append(("routing-gap", f"turn {owner}: {missing} tokens were fed, and no capture has their rows"))
        ours, theirs = rows[at + missing : end], capture[max(0, len(capture) - (end - at)) :]
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            found, wanted = f"{ours.dtype} {ours.shape}", f"{theirs.dtype} {theirs.shape}"
            errors.append(("routing-row", f"turn {owner}: captured {wanted}, trained {found}"))
        elif ours.tobytes() != theirs.tobytes():
            wrong = int((ours != theirs).any(axis=(1, 2)).sum())
            errors.append(("routing-row", f"turn {owner}: {wrong} rows are not as captured when first fed"))
        held = end + 1
    return errors


def _lent(turns: Sequence[Turn], owner: int, rows: RoutingArray) -> bool:
    """True when `rows` [n, L, K] are what earlier turns of the same version captured of the first n prompt tokens."""
    todo, prompt = len(rows), turns[owner].prompt
    for turn in turns[owner - 1 :: -1] if owner else ():
        sequence = np.append(turn.prompt, turn.completion[:-1])
        if not turn.routing_start < todo <= len(sequence) or (turn.versions != turns[owner].versions[0]).any():
            continue
        if turn.routing is None or not np.array_equal(sequence[:todo], prompt[:todo]):
            continue
        if not np.array_equal(turn.routing[: todo - turn.routing_start], rows[turn.routing_start : todo]):
            return False
        todo = turn.routing_start
    return todo == 0


def _check_experts(rows: RoutingArray, num_experts: int | None) -> list[tuple[str, str]]:
    """Experts distinct within a row's layer and in range; a row of zeros only is a hole that was filled."""
    errors = []
    if _has_duplicates(rows):
        empty = np.flatnonzero(~rows.any(axis=(1, 2)))
        if len(empty):
            errors.append(("routing-zero", f"{len(empty)} rows hold only zeros, from row {empty[0]} on"))
        else:
            errors.append(("routing-duplicate", "a token chose one expert twice in a layer"))
    elif rows.shape[2] == 1 and len(rows) and not rows.any():
        errors.append(("routing-zero", "every row holds only zeros"))
    if num_experts is not None and np.count_nonzero(rows >= num_experts):
        errors.append(("routing-range", f"expert {rows.max()} of {num_experts}"))
    return errors


def _check_repeats(rows: RoutingArray, tokens: IntArray) -> list[tuple[str, str]]:
    """One row repeated under different `tokens` [T−1], by far more than chance has it: padding (case R4).

    With p the rate at which neighbouring rows of different tokens are equal outside the run (two more are assumed), a
    run of r has the probability T · pʳ. A router that sends most tokens one way has a high p and is not accused.
    """
    same = rows[1:, 0, 0] == rows[:-1, 0, 0]  # [T−2] two experts first: most rows differ there
    same &= rows[1:, -1, -1] == rows[:-1, -1, -1]
    if np.count_nonzero(same) < MIN_REPEATS or _longest_run(same)[1] < MIN_REPEATS:
        return []
    flat = rows.reshape(len(rows), -1)
    same = (flat[1:] == flat[:-1]).all(axis=1)
    begin, length = _longest_run(same)
    differ = tokens[1:] != tokens[:-1]
    repeats = int(np.count_nonzero(differ[begin : begin + length]))
    differ[begin : begin + length] = False
    rate = (np.count_nonzero(same & differ) + 2) / (np.count_nonzero(differ) + 4)
    if repeats < MIN_REPEATS or len(rows) * rate**repeats > MAX_CHANCE:
        return []
    return [("routing-repeat", f"rows {begin} to {begin + length} are one row under {repeats + 1} different tokens")]


def _longest_run(flags: BoolArray) -> tuple[int, int]:
    """(begin, length) of the longest stretch of True."""
    breaks = np.concatenate([[-1], np.flatnonzero(~flags), [len(flags)]])
    lengths = np.diff(breaks) - 1
    longest = int(lengths.argmax())
    return int(breaks[longest]) + 1, int(lengths[longest])


def _has_duplicates(rows: RoutingArray) -> bool:
    """True when any layer of any row names an expert twice."""
    num_chosen = rows.shape[2]
    if num_chosen <= 4:
        pairs = [(a, b) for a in range(num_chosen) for b in range(a)]
        return any(np.count_nonzero(rows[..., a] == rows[..., b]) for a, b in pairs)
    ordered = np.sort(rows, axis=2)
    return bool((ordered[..., 1:] == ordered[..., :-1]).any())


def _disagreements(turns: Sequence[Turn], rows: RoutingArray, owners: Sequence[int], starts: Sequence[int]) -> int:
    """Rows of earlier turns that a later turn of the same stream captured again, and otherwise."""
    count = held = 0
    for owner, start in zip(owners, starts, strict=True):
        turn = turns[owner]
        again = held - 1 - turn.routing_start  # rows from its routing_start to the last one that was there before
        if again > 0 and start == len(turn.prompt) and turn.routing is not None:
            before = rows[turn.routing_start : held - 1]
            count += int((turn.routing[:again] != before).any(axis=(1, 2)).sum())
        held = start + len(turn.completion)
    return count
