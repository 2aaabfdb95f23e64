"""What a routing capture must be, how the rows of turns join, and how far two captures disagree.

Boundary: arrays of expert ids, numpy only. A broken capture raises RoutingError and is never mended: no row is
invented, repeated or zero-filled (design law 4). Axes: N rows, L Mixture-of-Experts layers, K experts per token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from t1.errors import RoutingError
from t1.types import IntArray, RoutingArray, Turn

MIN_REPEATS = 8
"""Shorter runs of one repeated row are left to the row count: a real model makes them now and then."""
MAX_CHANCE = 1e-9
"""A run of repeated rows is refused when its probability, by the capture's own rate of repeats, is below this."""


def check_capture(
    routing: RoutingArray | None,
    *,
    num_rows: int,
    num_experts: int,
    top_k: int,
    num_layers: int,
    tokens: IntArray | None = None,
) -> None:
    """Refuse (RoutingError) a capture that is missing, short, out of range, all zero, or repeats experts or rows.

    `tokens` [num_rows] are those that the rows belong to: equal tokens in a row may well be routed alike, so that only
    with them a stretch of repeated rows can be told from repeated text. Without them a repeat counts when it fills the
    whole capture.
    """
    if routing is None:
        raise RoutingError(f"routing: missing, expected [{num_rows}, {num_layers}, {top_k}]")
    if routing.dtype not in (np.uint8, np.uint16) or routing.shape != (num_rows, num_layers, top_k):
        raise RoutingError(
            f"routing: expected uint8 or uint16 [{num_rows}, {num_layers}, {top_k}], "
            f"got {routing.dtype} {list(routing.shape)}"
        )
    if num_rows == 0:
        return
    if (highest := int(routing.max())) >= num_experts:
        raise RoutingError(f"routing: expert {highest} out of range, the model has {num_experts}")
    _check_experts(routing, num_experts)
    _check_repeats(routing, tokens)


def _check_experts(routing: RoutingArray, num_experts: int) -> None:
    """Refuse rows of zeros, and rows that name an expert twice in a layer."""
    zero: npt.NDArray[np.bool_] = np.equal(routing.max(axis=(1, 2)), 0)  # [N]
    if num_experts > 1 and zero.any() and (routing.shape[2] > 1 or zero.all()):
        raise RoutingError(f"routing: {int(zero.sum())} of {len(zero)} rows are all zero, first {int(zero.argmax())}")
    ordered = np.sort(routing, axis=2)
    twice = (ordered[:, :, 1:] == ordered[:, :, :-1]).any(axis=2)  # [N, L]
    if twice.any():
        row, layer = (int(index) for index in np.argwhere(twice)[0])
        raise RoutingError(f"routing: row {row}, layer {layer} names an expert twice: {routing[row, layer].tolist()}")


def _check_repeats(routing: RoutingArray, tokens: IntArray | None) -> None:
    """Refuse the mark of padding: one row that stands again and again under different tokens (case R4).

    A run of r repeats has the probability num_pairs · pʳ, where p is the rate at which neighbouring rows repeat outside
    the run (two repeats more are assumed than were seen). A router that really sends most tokens one way has a high p
    and is not accused.
    """
    if len(routing) < 2:
        return
    same = (routing[1:] == routing[:-1]).all(axis=(1, 2))  # [N−1]
    if tokens is None:
        if same.all() and len(same) >= MIN_REPEATS:
            raise RoutingError(f"routing: all {len(routing)} rows are the same row")
        return
    if len(tokens) != len(routing):
        raise ValueError(f"tokens: expected [{len(routing)}], got {list(tokens.shape)}")
    differ = tokens[1:] != tokens[:-1]
    begin, end = _longest_run(same)
    repeats = int(differ[begin:end].sum())
    outside = differ.copy()
    outside[begin:end] = False
    rate = (int((same & outside).sum()) + 2) / (int(outside.sum()) + 4)
    chance = len(same) * rate**repeats
    if repeats >= MIN_REPEATS and chance < MAX_CHANCE:
        raise RoutingError(f"routing: rows {begin} to {end} are one row repeated under {repeats + 1} different tokens")


def _longest_run(flags: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """(begin, end) of the longest stretch of True."""
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0))
    begins, ends = edges[::2], edges[1::2]
    if len(begins) == 0:
        return 0, 0
    best = int((ends - begins).argmax())
    return int(begins[best]), int(ends[best])


def join(turns: Sequence[Turn]) -> RoutingArray:
    """[T − 1, L, K] the rows of consecutive turns of one growing conversation; T = tokens up to the last completion.

    A position that two turns captured keeps the row of the first (case R7). Refuses turns without a capture, a gap
    between two captures, a turn that ends before the rows that are already there, and one that older weights sampled
    (case R5): its rows would be of a version that was gone.
    """
    parts: list[RoutingArray] = []
    held = newest = 0
    for index, turn in enumerate(turns):
        rows = turn.routing
        if rows is None:
            raise RoutingError(f"turn {index}: no routing was captured")
        if (oldest := int(turn.versions.min())) < newest or (np.diff(turn.versions) < 0).any():
            raise RoutingError(f"turn {index}: sampled by version {oldest} after version {max(newest, oldest)}")
        newest = int(turn.versions[-1])
        stop = len(turn.prompt) + len(turn.completion) - 1
        if turn.routing_start > held:
            raise RoutingError(f"turn {index}: rows {held} to {turn.routing_start} were never captured")
        if stop < held:
            raise RoutingError(f"turn {index}: ends at row {stop}, but {held} rows are held: it extends nothing")
        if parts and rows.shape[1:] != parts[0].shape[1:]:
            raise RoutingError(f"turn {index}: expected rows {list(parts[0].shape[1:])}, got {list(rows.shape[1:])}")
        parts.append(rows[held - turn.routing_start :])
        held = stop
    if not parts:
        raise RoutingError("no turns, so no routing")
    joined: Any = np.concatenate(parts)
    routing: RoutingArray = joined
    return routing


def disagreement(one: RoutingArray, other: RoutingArray) -> float:
    """The share of (row, layer) pairs whose expert *sets* differ: the order inside a row means nothing. 0 if empty."""
    if one.shape != other.shape:
        raise ValueError(f"disagreement: expected equal shapes, got {list(one.shape)} and {list(other.shape)}")
    if one.size == 0:
        return 0.0
    return float((np.sort(one, axis=2) != np.sort(other, axis=2)).any(axis=2).mean())
