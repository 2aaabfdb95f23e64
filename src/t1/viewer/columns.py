"""The tokens of one segment as columns: what was sampled, how likely, by which weights, and what the trainer said.

Boundary: arrays in, JSON-ready lists out. A column that nothing is known of is absent, never filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from t1.rollouts.token_stats import TokenStats
from t1.types import FloatArray, IntArray, Rollout, Trajectory, Turn
from t1.viewer.pieces import Pieces

MAX_TOKENS = 20_000
"""Tokens of one answer; the page asks for the next ones."""


def tokens_of(
    rollout: Rollout,
    segments: Sequence[Trajectory],
    index: int,
    pieces: Pieces,
    *,
    stats: TokenStats | None = None,
    start: int = 0,
) -> dict[str, Any]:
    """Columns of up to MAX_TOKENS tokens of a segment; of the raw turns where nothing was assembled."""
    columns = _columns(rollout, segments[index], stats) if segments else _raw_columns(rollout)
    size, end = len(columns["ids"]), start + MAX_TOKENS
    window = {name: _listed(column[start:end]) for name, column in columns.items()}
    return {
        "segment": segments[index].segment if segments else None,
        "start": start,
        "size": size,
        "next": end if end < size else None,
        "text": [pieces.text(token) for token in window["ids"]],
        **window,
    }


def _columns(rollout: Rollout, part: Trajectory, stats: TokenStats | None) -> dict[str, npt.NDArray[Any]]:
    """[T] each."""
    agreement = routing_agreement(rollout.turns, part)
    return {
        "ids": part.tokens,
        "mask": part.mask,
        "logprob": np.where(part.mask, part.logprobs, np.nan),
        "turn": part.turn,
        "version": part.version,
        **({} if agreement is None else {"agreement": agreement}),
        **({} if stats is None else _told(part, stats)),
    }


def _told(part: Trajectory, stats: TokenStats) -> dict[str, npt.NDArray[Any]]:
    """[T] what the trainer said of each action, NaN elsewhere; `gap` is its log-probability minus the engine's."""
    shares = {
        "trainer_logprob": stats.logprobs,
        "gap": stats.logprobs - part.logprobs[part.mask],
        "value": stats.values,
        "advantage": stats.advantages,
        "return": stats.returns,
    }
    columns = {name: np.full(len(part.tokens), np.nan, np.float32) for name in shares}
    for name, share in shares.items():
        columns[name][part.mask] = share
    return columns


def _raw_columns(rollout: Rollout) -> dict[str, npt.NDArray[Any]]:
    """What each turn added to the one before, as it was recorded."""
    ids, mask, logprobs, turns, versions = [], [], [], [], []
    held = np.empty(0, np.int32)
    for index, turn in enumerate(rollout.turns):
        added = turn.prompt[_common_prefix(held, turn.prompt) :]
        both = np.concatenate([added, turn.completion])
        ids.append(both)
        mask.append(np.arange(len(both)) >= len(added))
        logprobs.append(np.concatenate([np.full(len(added), np.nan, np.float32), turn.logprobs]))
        versions.append(np.concatenate([np.full(len(added), turn.versions[0], np.int32), turn.versions]))
        turns.append(np.full(len(both), index, np.int32))
        held = np.concatenate([turn.prompt, turn.completion])
    parts = {"ids": ids, "mask": mask, "logprob": logprobs, "turn": turns, "version": versions}
    return {name: np.concatenate(part) if part else np.empty(0, np.int32) for name, part in parts.items()}


def routing_agreement(turns: Sequence[Turn], part: Trajectory) -> FloatArray | None:
    """[T] the smallest share of experts that a later capture of the token chose again; NaN where there was none."""
    if part.routing is None:
        return None
    size = len(part.tokens)
    seen, agreement = np.zeros(size, np.int32), np.full(size, np.nan, np.float32)
    for index in np.unique(part.turn).tolist():
        turn = turns[index]
        if turn.routing is None:
            continue
        fed = np.concatenate([turn.prompt, turn.completion])[:-1]
        first = turn.routing_start
        last = min(_common_prefix(fed, part.tokens), size - 1, first + len(turn.routing))
        if last <= first:
            continue
        rows, again = part.routing[first:last], turn.routing[: last - first]
        same = (rows[..., :, None] == again[..., None, :]).any(-1).mean((1, 2)).astype(np.float32)
        seen[first:last] += 1
        agreement[first:last] = np.fmin(agreement[first:last], same)
    return np.where(seen > 1, agreement, np.float32(np.nan))


def _common_prefix(a: IntArray, b: IntArray) -> int:
    size = min(len(a), len(b))
    differ = np.flatnonzero(a[:size] != b[:size])
    return int(differ[0]) if len(differ) else size


def _listed(column: npt.NDArray[Any]) -> list[Any]:
    """A column as JSON has it: numbers to five significant digits, null where there is none."""
    if column.dtype.kind != "f":
        return list(column.tolist())
    return [None if value != value or abs(value) == np.inf else float(f"{value:.5g}") for value in column.tolist()]
