"""What the auditor reads off: the record of what was sampled, and where each trajectory puts it.

Boundary: gathers columns as they are and judges nothing. Axes: S sampled tokens, R runs of them (a run is one
completion where all is well).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from t1.types import FloatArray, IntArray, Trajectory, Turn

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns over sampled tokens."""

    ids: IntArray
    """[S]"""
    logprobs: FloatArray
    """[S]"""
    versions: IntArray
    """[S]"""
    turn: IntArray
    """[S] the turn that sampled each token."""

    def turns_where(self, wrong: npt.NDArray[np.bool_]) -> str:
        """The turns that `wrong` [S] points at, in words."""
        return f"turns {sorted(set(self.turn[wrong].tolist()))}"

    def in_time_order(self) -> Columns:
        """The same tokens by turn; those of one turn keep their order."""
        order = np.argsort(self.turn, kind="stable")
        return Columns(self.ids[order], self.logprobs[order], self.versions[order], self.turn[order])


@dataclass(frozen=True, slots=True)
class Record:
    """What the policy sampled, by the raw turns."""

    columns: Columns
    """Over the completions of all turns, end to end."""
    ends: Indices
    """[turns] where each completion ends in the columns."""
    lengths: Indices
    """[turns] sampled tokens of each turn."""

    @property
    def last_ids(self) -> IntArray:
        """[turns] the last token of each completion."""
        ids: IntArray = self.columns.ids[self.ends - 1]
        return ids

    @property
    def first_versions(self) -> IntArray:
        """[turns] the version that sampled each completion's first token."""
        versions: IntArray = self.columns.versions[self.ends - self.lengths]
        return versions


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a trajectory's own mask and turn columns put each completion."""

    trajectory: Trajectory
    sampled: Indices
    """[S] positions that the mask trains."""
    turns: list[int]
    """[R] the turn of each run of sampled tokens."""
    starts: list[int]
    """[R] position of each run's first token."""
    ends: list[int]
    """[R] position after each run's last token."""


def recorded(turns: Sequence[Turn]) -> Record:
    """The record of some turns, at least one."""
    lengths = np.array([len(turn.completion) for turn in turns])
    columns = Columns(
        ids=np.concatenate([turn.completion for turn in turns]),
        logprobs=np.concatenate([turn.logprobs for turn in turns]),
        versions=np.concatenate([turn.versions for turn in turns]),
        turn=np.arange(len(turns), dtype=np.int32).repeat(lengths),
    )
    return Record(columns, lengths.cumsum(), lengths)


def trained(layouts: Sequence[Layout]) -> Columns:
    """What the trajectories train, segment by segment."""
    parts = [(layout.trajectory, layout.sampled) for layout in layouts]
    columns = [Columns(one.tokens[at], one.logprobs[at], one.version[at], one.turn[at]) for one, at in parts]
    if len(columns) == 1:
        return columns[0]
    ints, floats = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
    return Columns(
        ids=np.concatenate([ints, *(column.ids for column in columns)]),
        logprobs=np.concatenate([floats, *(column.logprobs for column in columns)]),
        versions=np.concatenate([ints, *(column.versions for column in columns)]),
        turn=np.concatenate([ints, *(column.turn for column in columns)]),
    )


def layout_of(trajectory: Trajectory) -> Layout:
    """Read the runs of sampled tokens off the mask and turn columns: a run ends where either changes."""
    sampled = trajectory.mask.nonzero()[0]
    owner = trajectory.turn[sampled]
    changes = (owner[1:] != owner[:-1]).nonzero()[0].tolist()
    last = [*changes, len(owner) - 1]  # of each run, in `sampled`
    first = [0, *(index + 1 for index in changes)]
    ends = (sampled[last] + 1).tolist()
    return Layout(trajectory, sampled, owner[last].tolist(), sampled[first].tolist(), ends)
