"""Context parallelism: the rows of one pack are fed by several ranks, and each attends to what the others hold.

Rank r of c feeds chunks r and 2c−1−r of 2c equal ones, so that causal attention costs all of them alike. In attention,
keys and values are gathered along the sequence, queries stay; a layer that carries a state along the sequence (linear
attention) sees all rows on every rank and keeps its own: exact, at the price of doing that layer's work c times.
Everything else in a transformer works by row. Boundary: rows and where they lie; packs and models are the callers'.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from t1.training.packs import Pack
from t1.training.parallel.collectives import gather_rows

Piece: TypeAlias = tuple[int, int, int, int]
"""Queries [start, stop) among this rank's rows, and keys [start, stop) among all rows, seen by the last of them."""


@dataclass(frozen=True, slots=True, eq=False)
class ContextRows:
    """Which of a pack's M fed rows this rank feeds, and how to get those of the others."""

    group: dist.ProcessGroup
    chunks: tuple[tuple[int, int], ...]
    """[start, stop) of the chunks of this rank, in the order in which it feeds them."""
    sizes: tuple[int, ...]
    """Rows of each rank of the group."""
    rows: Tensor
    """int64[m] this rank's rows among all M."""
    places: Tensor
    """int64[M] where each row stands in the gathered rows, one rank after another."""

    def gather(self, rows: Tensor, dim: int) -> Tensor:
        """The rows of all ranks in the order of the pack: `rows` has m along `dim`, the result M."""
        first = rows.movedim(dim, 0)
        return gather_rows(first, list(self.sizes), self.group)[self.places].movedim(0, dim)

    def to(self, device: torch.device) -> ContextRows:
        """The same with its indices on another device."""
        return replace(self, rows=self.rows.to(device), places=self.places.to(device))

    def pieces(self, segment_lengths: tuple[int, ...]) -> list[Piece]:
        """This rank's queries, cut where a segment ends; in order, and together all of its rows."""
        starts = [0, *itertools.accumulate(segment_lengths)]
        pieces, here = [], 0
        for start, stop in self.chunks:
            for left, right in itertools.pairwise(starts):
                low, high = max(start, left), min(stop, right)
                if low < high:
                    pieces.append((here, here + high - low, left, high))
                    here += high - low
        return pieces


def slice_pack(pack: Pack, group: dist.ProcessGroup) -> Pack:
    """The rows and actions of `pack` that this rank of the group feeds; its segments stay those of the whole pack."""
    size, rank, total = dist.get_world_size(group), dist.get_rank(group), len(pack.fed)
    if total < 2 * size:
        raise ValueError(f"context parallelism: a pack of {total} fed tokens cannot be shared by {size} ranks")
    bounds = [total * i // (2 * size) for i in range(2 * size + 1)]
    chunks = [tuple((bounds[c], bounds[c + 1]) for c in (r, 2 * size - 1 - r)) for r in range(size)]
    by_rank = [np.concatenate([np.arange(*chunk) for chunk in both]) for both in chunks]
    places, rows = np.empty(total, np.int64), by_rank[rank]
    places[np.concatenate(by_rank)] = np.arange(total)
    local = np.full(total, -1, np.int64)
    local[rows] = np.arange(len(rows))
    where = torch.from_numpy(local)[pack.action_rows]
    mine, picked = where >= 0, torch.from_numpy(rows)
    return replace(
        pack,
        fed=pack.fed[picked],
        positions=pack.positions[picked],
        actions=pack.actions[mine],
        action_rows=where[mine],
        slots=pack.slots[mine],
        routing=None if pack.routing is None else pack.routing[picked],
        context=ContextRows(group, chunks[rank], tuple(len(r) for r in by_rank), picked, torch.from_numpy(places)),
    )
