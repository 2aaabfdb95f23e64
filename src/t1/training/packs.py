"""Trajectories laid end to end, so that a forward pass does no work for padding.

Boundary: a pack knows tokens and where they lie; it knows no model, reward or loss. Axes: **N** tokens of a pack, **S**
its segments, **M** = N − S fed tokens (all but each segment's last), **A** its actions. Index t describes token t; the
one shift is `action_rows`: what the model says about action t stands in the row that token t−1 was fed in.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from t1.types import Trajectory

if TYPE_CHECKING:
    from t1.training.parallel.context import ContextRows


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """Whole trajectories, one after another."""

    tokens: Tensor
    """int64[N]"""
    segment_lengths: tuple[int, ...]
    """[S] tokens of each segment; they add up to N."""
    fed: Tensor
    """int64[M] index in N of each fed token."""
    positions: Tensor
    """int64[M] place of each fed token in its segment, from 0."""
    actions: Tensor
    """int64[A] index in N of each sampled token."""
    action_rows: Tensor
    """int64[A] index in M of the row that predicts each action: that of the token before it."""
    slots: Tensor
    """int64[A] index of each action in the batch's flat arrays."""
    routing: Tensor | None
    """uint8 or int32 [M, L, K] experts of each fed token; None for a dense model."""
    context: ContextRows | None = None
    """Which rows are fed here, where several ranks share a pack; `segment_lengths` are then those of all rows."""

    @property
    def fed_lengths(self) -> tuple[int, ...]:
        """[S] fed tokens of each segment; they add up to M."""
        return tuple(length - 1 for length in self.segment_lengths)

    @property
    def num_tokens(self) -> int:
        """N"""
        return len(self.tokens)

    @property
    def num_actions(self) -> int:
        """A"""
        return len(self.actions)

    def to(self, device: torch.device) -> Pack:
        """The same pack on another device (itself when it is there already)."""
        if self.tokens.device == device:
            return self
        columns = ("tokens", "fed", "positions", "actions", "action_rows", "slots")
        moved = {name: getattr(self, name).to(device) for name in columns}
        return replace(
            self,
            **moved,
            routing=None if self.routing is None else self.routing.to(device),
            context=None if self.context is None else self.context.to(device),
        )


class Packs(Sequence[Pack]):
    """Packs that are made when their turn comes, so that only one of them is in memory: trajectories may be views of
    files (`dataplane.py`), and their routing is far larger than anything else here.
    """

    def __init__(self, makers: Sequence[Callable[[], Pack]], num_actions: int) -> None:
        self._makers, self.num_actions = makers, num_actions
        """`num_actions`: of all trajectories that are shared, those in other ranks' packs too."""

    def __len__(self) -> int:
        return len(self._makers)

    @overload
    def __getitem__(self, index: int) -> Pack: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Pack]: ...

    def __getitem__(self, index: int | slice) -> Pack | Sequence[Pack]:
        if isinstance(index, slice):
            return [make() for make in self._makers[index]]
        return self._makers[index]()


def pack(
    trajectories: Sequence[Trajectory], *, max_tokens: int, slots: Sequence[npt.NDArray[np.int64]] | None = None
) -> list[Pack]:
    """As few packs of at most `max_tokens` as a balanced split needs; nothing is padded or cut.

    A trajectory longer than `max_tokens` gets a pack of its own. `slots[i]` [actions of trajectory i] says where its
    actions lie in the batch's flat arrays (default: in the order of `trajectories`).
    """
    where = slots if slots is not None else _consecutive_slots(trajectories)
    return list(lazy_packs(trajectories, where, max_tokens=max_tokens))


def lazy_packs(trajectories: Sequence[Trajectory], slots: Sequence[npt.NDArray[np.int64]], *, max_tokens: int) -> Packs:
    """The same, one at a time."""
    check_alike(trajectories)
    bins = _balanced_bins([len(t.tokens) for t in trajectories], max_tokens) if trajectories else []
    makers = [partial(join_some, trajectories, slots, members) for members in bins]
    return Packs(makers, sum(map(len, slots)))


def check_alike(trajectories: Sequence[Trajectory]) -> None:
    """Refuse trajectories of which only some have routing."""
    if len({t.routing is None for t in trajectories}) > 1:
        raise ValueError("pack: some trajectories have routing and some have none; a model replays all or nothing")


def join_some(
    trajectories: Sequence[Trajectory], slots: Sequence[npt.NDArray[np.int64]], members: Sequence[int]
) -> Pack:
    """One pack of the trajectories with these indices, in this order."""
    return join([trajectories[i] for i in members], [slots[i] for i in members])


def _consecutive_slots(trajectories: Sequence[Trajectory]) -> list[npt.NDArray[np.int64]]:
    """Slots that number the actions trajectory by trajectory."""
    ends = np.cumsum([t.num_actions for t in trajectories], dtype=np.int64)
    return [np.arange(end - t.num_actions, end, dtype=np.int64) for t, end in zip(trajectories, ends, strict=True)]


def _balanced_bins(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices by bin: longest first, each into the emptiest bin; one more bin until none overflows.

    Members stand in order of length, so that neighbours can share one attention call.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    num_bins = min(len(lengths), max(1, -(-sum(lengths) // max_tokens)))
    while True:
        heap = [(0, b) for b in range(num_bins)]
        bins: list[list[int]] = [[] for _ in range(num_bins)]
        for i in order:
            filled, b = heapq.heappop(heap)
            bins[b].append(i)
            heapq.heappush(heap, (filled + lengths[i], b))
        fits = all(len(members) == 1 or sum(lengths[i] for i in members) <= max_tokens for members in bins)
        if fits or num_bins == len(lengths):
            return bins
        num_bins += 1


def join(trajectories: Sequence[Trajectory], slots: Sequence[npt.NDArray[np.int64]]) -> Pack:
    """One pack of these trajectories in this order."""
    lengths = np.array([len(t.tokens) for t in trajectories], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    segment = np.repeat(np.arange(len(lengths)), lengths)  # [N]
    actions = np.flatnonzero(np.concatenate([t.mask for t in trajectories]))
    is_fed = np.ones(int(lengths.sum()), dtype=np.bool_)
    is_fed[starts + lengths - 1] = False
    fed = np.flatnonzero(is_fed)
    return Pack(
        tokens=torch.from_numpy(np.concatenate([t.tokens for t in trajectories]).astype(np.int64)),
        segment_lengths=tuple(lengths.tolist()),
        fed=torch.from_numpy(fed),
        positions=torch.from_numpy(fed - starts[segment[fed]]),
        actions=torch.from_numpy(actions),
        action_rows=torch.from_numpy(actions - 1 - segment[actions]),
        slots=torch.from_numpy(np.concatenate(slots)),
        routing=_join_routing(trajectories),
    )


def quiet(pack: Pack) -> Pack:
    """The same tokens without actions: a forward and backward over it changes no sum and no gradient."""
    none = slice(0, 0)
    return replace(pack, actions=pack.actions[none], action_rows=pack.action_rows[none], slots=pack.slots[none])


def _join_routing(trajectories: Sequence[Trajectory]) -> Tensor | None:
    """[M, L, K] the segments' rows end to end. torch computes little with uint16, so that becomes int32."""
    rows = [t.routing for t in trajectories if t.routing is not None]
    if not rows:
        return None
    joined = np.concatenate(rows)
    return torch.from_numpy(joined if joined.dtype == np.uint8 else joined.astype(np.int32))
