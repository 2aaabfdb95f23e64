"""One rollout as the page shows it: its turns, and the tokens of its segments.

Texts are cut to what a person looks at, with the number of characters left out; the whole text is one question away.
Boundary: turns values into JSON-ready dicts. Nothing is escaped or interpreted here: the page makes text nodes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from t1.rollouts.cost import FREE, Prices, usage_of
from t1.types import FloatArray, IntArray, Rollout, Trajectory, Turn
from t1.viewer.pieces import Pieces

HEAD, TAIL = 48_000, 16_000
"""Characters of a text that are sent at once."""
MAX_TOKENS = 20_000
"""Tokens of one answer; the page asks for the next ones."""


def describe(rollout: Rollout, segments: Sequence[Trajectory], prices: Prices = FREE) -> dict[str, Any]:
    """All about a rollout but its tokens."""
    outcome, verdict = rollout.outcome, rollout.outcome.verdict
    return {
        "task": rollout.id.task,
        "group": rollout.id.group,
        "member": rollout.id.member,
        "task_digest": rollout.task_digest,
        "attempts": rollout.attempts,
        "stop": str(outcome.stop),
        "reward": outcome.reward,
        "reward_source": str(outcome.reward_source),
        "solved": outcome.solved,
        "failure": None if outcome.failure is None else asdict(outcome.failure),
        "assertions": None if verdict is None or verdict.assertions is None else _assertions(verdict.assertions),
        "report_error": "" if verdict is None else verdict.report_error,
        "tamper": [] if verdict is None else [asdict(evidence) for evidence in verdict.tamper],
        "timings": asdict(rollout.timings),
        "usage": asdict(usage_of(rollout, prices)),
        "priced": prices != FREE,
        "turns": [_turn(index, turn) for index, turn in enumerate(rollout.turns)],
        "segments": [_segment(part) for part in segments],
        "num_tokens": sum(len(part.tokens) for part in segments),
    }


def _assertions(assertions: Sequence[Any]) -> list[dict[str, Any]]:
    return [{**asdict(a), "message": cut(a.message, 4000, 1000)["text"]} for a in assertions]


def _turn(index: int, turn: Turn) -> dict[str, Any]:
    return {
        "index": index,
        "action": cut(turn.action),
        "observation": cut(turn.observation),
        "finish": str(turn.finish),
        "prompt_tokens": len(turn.prompt),
        "sampled_tokens": len(turn.completion),
        "versions": sorted(set(turn.versions.tolist())),
        "logprob": float(np.nan_to_num(turn.logprobs.astype(np.float64)).sum()),
        "timings": asdict(turn.timings),
        "sandbox_s": turn.sandbox_s,
    }


def _segment(part: Trajectory) -> dict[str, Any]:
    return {
        "segment": part.segment,
        "num_tokens": len(part.tokens),
        "num_actions": part.num_actions,
        "routing": None if part.routing is None else list(part.routing.shape),
        "boundaries": [{**asdict(boundary), "case": str(boundary.case)} for boundary in part.boundaries],
    }


def cut(text: str, head: int = HEAD, tail: int = TAIL) -> dict[str, Any]:
    """The beginning and the end of a text that is too long to show, and how much the middle lacks."""
    left_out = len(text) - head - tail
    if left_out <= 0:
        return {"text": text, "left_out": 0}
    return {"text": text[:head], "tail": text[-tail:], "left_out": left_out}


def prompt_text(rollout: Rollout, pieces: Pieces) -> dict[str, Any]:
    """What the policy was told first, as its tokens read."""
    if not rollout.turns:
        return cut("")
    return cut(pieces.join(rollout.turns[0].prompt))


# --------------------------------------------------------------------------------------------------------------------
# Tokens


def tokens_of(
    rollout: Rollout,
    segments: Sequence[Trajectory],
    index: int,
    pieces: Pieces,
    *,
    start: int = 0,
) -> dict[str, Any]:
    """Columns of up to MAX_TOKENS tokens of a segment; of the raw turns where nothing was assembled."""
    columns = _columns(rollout, segments[index]) if segments else _raw_columns(rollout)
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


def _columns(rollout: Rollout, part: Trajectory) -> dict[str, npt.NDArray[Any]]:
    """[T] each."""
    agreement = routing_agreement(rollout.turns, part)
    return {
        "ids": part.tokens,
        "mask": part.mask,
        "logprob": np.where(part.mask, part.logprobs, np.nan),
        "turn": part.turn,
        "version": part.version,
        **({} if agreement is None else {"agreement": agreement}),
    }


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
    """A column as JSON has it: numbers to five digits, null where there is none."""
    if column.dtype.kind != "f":
        return list(column.tolist())
    return [None if value != value or abs(value) == np.inf else round(value, 5) for value in column.tolist()]
