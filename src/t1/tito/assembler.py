"""Turns to trajectories: the four cases, tried in order — strict, normalized, retokenized, split.

The ids that were sampled are the truth. A harness's own copy of them never enters a stream; what stands around them
joins as context. Boundary: pure functions on arrays; no model, no reward, no tokenizer but a given `decode`.

Branches. Agents ask aside and run sub-agents in parallel, so the turns of several conversations come interleaved. No
segment is ever closed: a turn joins the one that it continues best, by the first case that fits any of them, and the
longest of those.

Routing. The rows that a turn adds to its segment are the last rows of its capture: those of the token before its new
context (the last sampled token, fed first by this very turn), of the new context, and of its completion but the last
token. Earlier rows stay as they were captured first. A sampled token that no later prompt contains was never fed; it
has no row, so with routing such a turn opens a new segment instead of being joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from t1.errors import RoutingError
from t1.tito.alignment import (
    ID_BYTES,
    Decode,
    Match,
    match_history,
    match_last_text,
    normalize_boundary,
    starts_at,
)
from t1.types import Boundary, Case, IntArray, RolloutId, RoutingArray, Trajectory, Turn

MAX_TEXT_TRIES = 8
"""Segments (those that grew last) whose text a turn is compared with: bounds what a rollout of many splits costs."""


@dataclass(frozen=True, slots=True)
class _Join:
    """One turn in a segment: its prompt brings new context from `start` on."""

    start: int
    boundary: Boundary


def assemble(
    rollout: RolloutId,
    turns: Sequence[Turn],
    *,
    boundary_ids: frozenset[int] = frozenset(),
    decode: Decode | None = None,
    on_residual: Literal["accept", "split"] = "accept",
) -> tuple[Trajectory, ...]:
    """The segments of a rollout in the order of their first turns; every sampled token is in exactly one of them.

    Without `decode` the case retokenized is not tried. `on_residual="split"` keeps only streams whose every token is
    what the sampler saw. Raises RoutingError where a capture is missing, short, or of another version.
    """
    if not turns:
        return ()
    _check_captures(turns)
    segments = _strict_throughout(turns) or _segments(turns, boundary_ids, decode, on_residual == "split")
    return tuple(_build(rollout, index, turns, joins) for index, joins in enumerate(segments))


def truncate(trajectory: Trajectory, num_tokens: int) -> Trajectory:
    """The first `num_tokens` tokens over all columns at once, less the context that nothing sampled follows."""
    sampled = np.flatnonzero(trajectory.mask[: max(num_tokens, 0)])
    if len(sampled) == 0:
        raise ValueError(f"truncate: the first {num_tokens} tokens hold no sampled token")
    size = int(sampled[-1]) + 1
    last_turn = int(trajectory.turn[size - 1])
    return replace(
        trajectory,
        tokens=trajectory.tokens[:size],
        mask=trajectory.mask[:size],
        logprobs=trajectory.logprobs[:size],
        turn=trajectory.turn[:size],
        version=trajectory.version[:size],
        routing=None if trajectory.routing is None else trajectory.routing[: size - 1],
        boundaries=tuple(boundary for boundary in trajectory.boundaries if boundary.turn <= last_turn),
    )


# --------------------------------------------------------------------------------------------------------------------
# Cases


@dataclass(frozen=True, slots=True)
class _Segment:
    """A trajectory that turns may still join."""

    joins: list[_Join]
    held: bytearray
    """Its ids (int32): the first prompt, then every completion and observation so far."""

    @property
    def num_held(self) -> int:
        """Tokens held."""
        return len(self.held) // ID_BYTES

    @property
    def last(self) -> Boundary:
        """How its last turn was joined."""
        return self.joins[-1].boundary

    def add(self, join: _Join, turn: Turn) -> None:
        """Take in the new context of a turn and its completion."""
        self.joins.append(join)
        self.held.extend(turn.prompt[join.start :].tobytes())
        self.held.extend(turn.completion.tobytes())


def _strict_throughout(turns: Sequence[Turn]) -> list[list[_Join]] | None:
    """The one segment of a rollout whose last prompt begins with every earlier prompt and completion, or None."""
    last = len(turns) - 1
    ids = turns[last].prompt.tobytes()
    joins, held = [], 0
    for index, turn in enumerate(turns):
        size = len(turn.prompt)
        if size < held or not starts_at(ids, turn.prompt, 0):
            return None
        if index < last and not starts_at(ids, turn.completion, size):
            return None
        joins.append(_Join(held, Boundary(index, Case.STRICT if index else Case.OPEN, held, size - held)))
        held = size + len(turn.completion)
    return [joins]


def _segments(
    turns: Sequence[Turn], boundary_ids: frozenset[int], decode: Decode | None, exact: bool
) -> list[list[_Join]]:
    """The joins of each segment, in the order in which segments were opened."""
    segments: list[_Segment] = []
    for index, turn in enumerate(turns):
        found = _strict(turn, index, segments)
        if found is None and not exact:
            found = _nearly(turns, index, segments, boundary_ids, decode)
        if found is None:
            segments.append(_Segment([], bytearray()))
            opening = Boundary(index, Case.SPLIT if index else Case.OPEN, 0, len(turn.prompt))
            found = segments[-1], _Join(0, opening)
        segment, join = found
        segment.add(join, turn)
    return [segment.joins for segment in segments]


def _strict(turn: Turn, index: int, segments: Sequence[_Segment]) -> tuple[_Segment, _Join] | None:
    """The longest segment that the prompt starts with, the one that grew last among equals."""
    ids = turn.prompt.tobytes()
    fitting = [segment for segment in segments if ids.startswith(segment.held)]
    if not fitting:
        return None
    segment = max(fitting, key=lambda one: (len(one.held), one.last.turn))
    held = segment.num_held
    return segment, _Join(held, Boundary(index, Case.STRICT, held, len(turn.prompt) - held))


def _nearly(
    turns: Sequence[Turn], index: int, segments: Sequence[_Segment], boundary_ids: frozenset[int], decode: Decode | None
) -> tuple[_Segment, _Join] | None:
    """A segment that the prompt continues with edits: normalized anywhere, then retokenized in one that grew lately."""
    longest_first = sorted(segments, key=lambda one: (-len(one.held), -one.last.turn))
    for segment in longest_first:
        join = _normalized(turns, index, segment, boundary_ids)
        if join is not None and _closes(turns, segment, join):
            return segment, join
    if decode is None:
        return None
    lately = set(sorted(segment.last.turn for segment in segments)[-MAX_TEXT_TRIES:])
    for segment in longest_first:
        if segment.last.turn in lately:
            join = _retokenized(turns, index, segment, boundary_ids, decode)
            if join is not None and _closes(turns, segment, join):
                return segment, join
    return None


def _normalized(turns: Sequence[Turn], index: int, segment: _Segment, boundary_ids: frozenset[int]) -> _Join | None:
    """The prompt goes on from the segment's last prompt and completion, up to boundary tokens.

    Compared with the last prompt and not with the stream: an edit that was accepted once and still stands in the
    history is carried on, with its case.
    """
    carried, prompt = segment.last, turns[index].prompt
    last, ids = turns[carried.turn], prompt.tobytes()
    seen = len(last.prompt)
    if not starts_at(ids, last.prompt, 0):
        return None
    if starts_at(ids, last.completion, seen):
        found: Match | None = Match(len(last.completion), len(last.completion))
    else:
        found = normalize_boundary(prompt[seen:], last.completion, boundary_ids)
    case = carried.case if carried.residual else Case.NORMALIZED
    return _edited(index, case, prompt, segment.num_held, _after(carried, seen, found))


def _retokenized(
    turns: Sequence[Turn], index: int, segment: _Segment, boundary_ids: frozenset[int], decode: Decode
) -> _Join | None:
    """The prompt goes on from what the segment says, through other ids: of the last completion, or of any."""
    carried, prompt = segment.last, turns[index].prompt
    last = turns[carried.turn]
    seen = len(last.prompt)
    if starts_at(prompt.tobytes(), last.prompt, 0):
        found = _after(carried, seen, match_last_text(prompt[seen:], last.completion, decode, boundary_ids))
    else:
        joined = [(turns[join.boundary.turn], join.start) for join in segment.joins]
        messages = [(turn.prompt[start:], turn.completion) for turn, start in joined]
        found = match_history(prompt, messages, decode, boundary_ids)
    return _edited(index, Case.RETOKENIZED, prompt, segment.num_held, found)


def _after(carried: Boundary, seen: int, found: Match | None) -> Match | None:
    """A match behind the `seen` tokens of the last prompt, as a match of the whole prompt."""
    if found is None:
        return None
    return Match(seen + found.end, carried.kept + carried.inserted + found.matched)


def _edited(index: int, case: Case, prompt: IntArray, held: int, match: Match | None) -> _Join | None:
    """A join whose stream and prompt differ: `match` says how far the prompt repeats the stream.

    Residual: stream tokens that the prompt lacks or prompt tokens that the stream lacks, whichever are more; 0 only
    where both are the same.
    """
    if match is None:
        return None
    dropped = match.end - match.matched
    residual = max(held - match.matched, dropped)
    return _Join(match.end, Boundary(index, case, match.matched, len(prompt) - match.end, dropped, residual))


def _closes(turns: Sequence[Turn], segment: _Segment, join: _Join) -> bool:
    """False where a row cannot be had: the last sampled token, missing before the new context, was never fed."""
    turn, last = turns[join.boundary.turn], turns[segment.last.turn]
    return turn.routing is None or bool(turn.prompt[join.start - 1] == last.completion[-1])


# --------------------------------------------------------------------------------------------------------------------
# Columns


def _build(rollout: RolloutId, segment: int, turns: Sequence[Turn], joins: Sequence[_Join]) -> Trajectory:
    """The trajectory of one segment, column by column."""
    owners = [join.boundary.turn for join in joins]
    used = [turns[owner] for owner in owners]
    context = np.array([len(turn.prompt) - join.start for turn, join in zip(used, joins, strict=True)])  # [turns]
    sampled = np.array([len(turn.completion) for turn in used])  # [turns]
    runs = np.empty(2 * len(used), dtype=np.int64)  # context, completion, context, completion, …
    runs[::2], runs[1::2] = context, sampled
    is_sampled = np.zeros(len(runs), dtype=np.bool_)
    is_sampled[1::2] = True
    mask = is_sampled.repeat(runs)
    brought = context + sampled
    logprobs = np.zeros(len(mask), dtype=np.float32)
    logprobs[mask] = np.concatenate([turn.logprobs for turn in used])
    version = np.array([turn.versions[0] for turn in used], dtype=np.int32).repeat(brought)
    version[mask] = np.concatenate([turn.versions for turn in used])
    return Trajectory(
        rollout=rollout,
        segment=segment,
        tokens=_tokens(used, joins),
        mask=mask,
        logprobs=logprobs,
        turn=np.array(owners, dtype=np.int32).repeat(brought),
        version=version,
        routing=_routing(turns, owners, brought),
        boundaries=tuple([join.boundary for join in joins]),
    )


def _tokens(used: Sequence[Turn], joins: Sequence[_Join]) -> IntArray:
    """[T] the stream. Where the last prompt repeats all of it, two pieces are enough."""
    if not joins[-1].boundary.residual:
        return np.concatenate([used[-1].prompt, used[-1].completion])
    pieces = [(turn.prompt[join.start :], turn.completion) for turn, join in zip(used, joins, strict=True)]
    return np.concatenate([piece for pair in pieces for piece in pair])


def _routing(turns: Sequence[Turn], owners: Sequence[int], brought: npt.NDArray[np.int64]) -> RoutingArray | None:
    """[T−1, L, K] rows of a segment of the turns `owners`, each of which `brought` [turns] tokens."""
    first = owners[0]
    if turns[first].routing is None:
        return None
    rows = _rows_before(turns, first)
    rows.append(_capture(turns[first]))
    for owner, num_rows in zip(owners[1:], brought[1:].tolist(), strict=True):
        capture = _capture(turns[owner])
        if len(capture) < num_rows:
            missing = num_rows - len(capture)
            raise RoutingError(f"turn {owner}: the capture starts {missing} rows late, at {turns[owner].routing_start}")
        rows.append(capture[len(capture) - num_rows :])
    joined: RoutingArray = np.concatenate(rows)  # type: ignore[assignment]
    return joined


def _rows_before(turns: Sequence[Turn], index: int) -> list[RoutingArray]:
    """Rows of the tokens before a segment's first capture, from the turns that fed the very same prefix earlier.

    A row belongs to the weights that made it: only turns sampled by the version of this one can lend theirs.
    """
    needed, version = turns[index].routing_start, turns[index].versions[0]
    prefix, rows = turns[index].prompt.tobytes(), []
    for earlier in reversed(turns[:index]):
        num_fed = len(earlier.prompt) + len(earlier.completion) - 1
        if not earlier.routing_start < needed <= num_fed or (earlier.versions != version).any():
            continue
        fed = np.concatenate([earlier.prompt, earlier.completion[:-1]])[:needed]
        if prefix.startswith(fed.tobytes()):
            rows.append(_capture(earlier)[: needed - earlier.routing_start])
            needed = earlier.routing_start
    if needed:
        raise RoutingError(
            f"turn {index}: the capture starts at {turns[index].routing_start}, and no turn of version {version} "
            f"fed the first {needed} tokens of its prompt"
        )
    return rows[::-1]


def _capture(turn: Turn) -> RoutingArray:
    """[rows, L, K] what the turn captured."""
    assert turn.routing is not None
    return turn.routing


def _check_captures(turns: Sequence[Turn]) -> None:
    """Refuse turns that lack a capture others have, or whose captures are of different shapes."""
    captures = [turn.routing for turn in turns]
    lacking = [index for index, capture in enumerate(captures) if capture is None]
    if lacking and len(lacking) < len(turns):
        raise RoutingError(f"turns {lacking}: no capture, while the other turns have one")
    kinds = {(capture.shape[1:], capture.dtype.char) for capture in captures if capture is not None}
    if len(kinds) > 1:
        raise RoutingError(f"captures of several shapes in one rollout: {sorted(map(str, kinds))}")
