"""What a stack that keeps text and not tokens would train on: each completion decoded, and encoded again.

The text of a completion is the same, its ids need not be: a policy samples spellings that the tokenizer would never
choose. Such a stack trains on ids that nobody sampled, where the log-probabilities of those that were have no place.
To compare at all, both spellings are cut where their texts meet: a *stretch* is the shortest piece of text that both
spell with whole tokens. Where the id is the same the stretch is one token; elsewhere only the sums over the stretch
can be compared. Boundary: arrays and two functions, decode and encode; no model. Axes: **A** sampled tokens, **G**
stretches, **T** tokens of the new trajectory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from t1.types import FloatArray, IntArray, Trajectory

Decode = Callable[[IntArray], str]
"""Text of ids, without the closing stop id."""
Encode = Callable[[str], IntArray]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TextTrajectory:
    """A trajectory as a text stack has it, and how its tokens answer to those that were sampled."""

    trajectory: Trajectory
    """Its log-probabilities and routes are not known, so 0 and None; versions are those of each completion's begin."""
    origin: Indices
    """int64[T] index in the sampled trajectory of the token that stands here unchanged; −1 where there is none."""
    stretch: Indices
    """int64[its actions] which stretch each re-encoded action is part of, from 0."""
    sampled_stretch: Indices
    """int64[A] the stretch of each sampled token; −1 where nothing of it is left to compare."""

    @property
    def num_lost(self) -> int:
        """Sampled tokens whose own id is not trained."""
        return len(self.sampled_stretch) - int((self.origin[self.trajectory.mask] >= 0).sum())


def as_text(trajectory: Trajectory, *, decode: Decode, encode: Encode) -> TextTrajectory | None:
    """The trajectory with every completion re-encoded; context stays as it is. None where no action would be left."""
    pieces: list[_Piece] = []
    num_stretches = 0
    for places in np.split(np.arange(len(trajectory.tokens)), _cuts(trajectory)):
        ids, sampled = trajectory.tokens[places], bool(trajectory.mask[places[0]])
        piece = _respell(ids, decode, encode) if sampled else _Piece(ids, np.arange(len(ids)), _NONE, _NONE)
        pieces.append(piece.at(places, num_stretches))
        num_stretches += piece.num_stretches
    mask, turn, version = (
        np.concatenate([np.full(len(p.ids), column[p.first], column.dtype) for p in pieces])
        for column in (trajectory.mask, trajectory.turn, trajectory.version)
    )
    if not mask.any():
        return None
    size = int(np.flatnonzero(mask)[-1]) + 1
    changed = replace(
        trajectory,
        tokens=np.concatenate([p.ids for p in pieces])[:size],
        mask=mask[:size],
        logprobs=np.zeros(size, dtype=np.float32),
        turn=turn[:size],
        version=version[:size],
        routing=None,
    )
    return TextTrajectory(
        trajectory=changed,
        origin=np.concatenate([p.kept for p in pieces])[:size],
        stretch=np.concatenate([p.stretch for p in pieces]),
        sampled_stretch=np.concatenate([p.sampled_stretch for p in pieces]),
    )


def stretch_differences(text: TextTrajectory, trained: FloatArray, sampled: FloatArray) -> npt.NDArray[np.float64]:
    """float64[≤ A] per sampled token that can be compared: the difference of its stretch, shared out evenly.

    Σ_stretch log π_trainer(re-encoded) − Σ_stretch log π_sampler(sampled), over the number of sampled tokens in it;
    `trained` [actions of the text trajectory], `sampled` [A].
    """
    known = text.sampled_stretch >= 0
    size = int(text.stretch.max(initial=-1)) + 1
    groups = text.sampled_stretch[known]
    theirs = np.bincount(groups, weights=sampled[known], minlength=size)
    ours = np.bincount(text.stretch, weights=trained, minlength=size)
    shares: npt.NDArray[np.float64] = ((ours - theirs) / np.maximum(np.bincount(groups, minlength=size), 1))[groups]
    return shares


def trained_as_text(trajectory: Trajectory, *, decode: Decode, encode: Encode) -> Trajectory | None:
    """What a text stack trains on in place of the trajectory; None where no action would be left.

    Its log-probabilities are the sampler's: a stretch of other ids has the sum of those that were sampled, in equal
    shares, and an unchanged token its own.
    """
    text = as_text(trajectory, decode=decode, encode=encode)
    if text is None:
        return None
    sampled, known = trajectory.logprobs[trajectory.mask], text.sampled_stretch >= 0
    counts = np.bincount(text.stretch)
    sums = np.bincount(text.sampled_stretch[known], weights=sampled[known], minlength=len(counts))
    logprobs = text.trajectory.logprobs.copy()
    logprobs[text.trajectory.mask] = (sums / np.maximum(counts, 1))[text.stretch]
    return replace(text.trajectory, logprobs=logprobs)


def _cuts(trajectory: Trajectory) -> Indices:
    """Where context and completions of single turns begin, but for the first."""
    mask, turn = trajectory.mask, trajectory.turn
    return np.flatnonzero((mask[1:] != mask[:-1]) | (turn[1:] != turn[:-1])) + 1


_NONE: Indices = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """A stretch of context, or one completion re-encoded to n ids from o sampled ones; places count within it."""

    ids: IntArray
    """[n]"""
    kept: Indices
    """[n] place of the token that stands here unchanged, or −1."""
    stretch: Indices
    """[n], or empty for context."""
    sampled_stretch: Indices
    """[o], or empty for context."""
    first: int = 0
    """Where the piece begins in the sampled trajectory."""

    @property
    def num_stretches(self) -> int:
        """Stretches of this piece, those included that have nothing on one side."""
        return int(max(self.stretch.max(initial=-1), self.sampled_stretch.max(initial=-1))) + 1

    def at(self, places: Indices, before: int) -> _Piece:
        """The same with places of the whole trajectory, and stretches numbered from `before` on."""
        kept = np.where(self.kept >= 0, places[self.kept], -1)
        comparable = np.isin(self.sampled_stretch, self.stretch)
        sampled = np.where(comparable, self.sampled_stretch + before, -1)
        return _Piece(self.ids, kept, self.stretch + before, sampled, int(places[0]))


def _respell(ids: IntArray, decode: Decode, encode: Encode) -> _Piece:
    """One completion re-encoded; its stop id stays as it is."""
    body = ids[:-1] if decode(ids) == decode(ids[:-1]) else ids
    stop = ids[len(body) :]
    spelled = encode(decode(body)).astype(np.int32)
    if np.array_equal(spelled, body):
        same = np.arange(len(ids))
        return _Piece(ids, same, same, same)
    meet = [*_meetings(body, spelled, decode), *([(len(ids), len(spelled) + 1)] if len(stop) else [])]
    sampled_stretch, stretch = np.zeros(len(ids), np.int64), np.zeros(len(spelled) + len(stop), np.int64)
    for i, j in meet[:-1]:
        sampled_stretch[i:] += 1
        stretch[j:] += 1
    whole = np.concatenate([spelled, stop])
    return _Piece(whole, _unchanged(ids, whole, sampled_stretch, stretch, len(meet)), stretch, sampled_stretch)


def _meetings(one: IntArray, other: IntArray, decode: Decode) -> Sequence[tuple[int, int]]:
    """(i, j), increasing in both: the first i ids of one spelling and the first j of the other are the same text.

    The ends always meet. A prefix that ends inside a character meets nothing.
    """
    ends = {decode(other[:j]): j for j in range(1, len(other))}
    found = [(0, 0)]
    for i in range(1, len(one)):
        text = decode(one[:i])
        j = ends.get(text, 0)
        if j > found[-1][1] and not text.endswith("\N{REPLACEMENT CHARACTER}"):
            found.append((i, j))
    return [*found[1:], (len(one), len(other))]


def _unchanged(
    ids: IntArray, spelled: IntArray, sampled_stretch: Indices, stretch: Indices, num_stretches: int
) -> Indices:
    """int64[n] index in `ids` of the token that is alone in its stretch on both sides and the same, or −1."""
    kept = np.full(len(spelled), -1)
    alone = (np.bincount(stretch, minlength=num_stretches) == 1) & (
        np.bincount(sampled_stretch, minlength=num_stretches) == 1
    )
    groups = np.flatnonzero(alone)
    new, old = np.searchsorted(stretch, groups), np.searchsorted(sampled_stretch, groups)
    same = spelled[new] == ids[old]
    kept[new[same]] = old[same]
    return kept
