"""Collectives that gradients flow through: rows to the ranks that ask for them, and back.

Boundary: tensors and process groups; what the rows mean is known to the callers. Each function is called by every
rank of its group, in the same order, whatever its own share is.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor


class _Exchange(torch.autograd.Function):
    """All-to-all of rows; its gradient is the all-to-all the other way."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sends: list[int], receives: list[int], group: dist.ProcessGroup) -> Tensor:
        ctx.sends, ctx.receives, ctx.group = sends, receives, group
        return _all_to_all(rows, sends, receives, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return _all_to_all(gradients[0], ctx.receives, ctx.sends, ctx.group), None, None, None


class _Gather(torch.autograd.Function):
    """All-gather along dim 0; its gradient is the sum over ranks of what each had to say about a row."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group, size = group, dist.get_world_size(group)
        gathered = rows.new_empty(size * rows.shape[0], *rows.shape[1:])
        dist.all_gather_single(gathered, rows.contiguous(), group=group)
        return gathered

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        whole = gradients[0].contiguous()
        mine = whole.new_empty(whole.shape[0] // dist.get_world_size(ctx.group), *whole.shape[1:])
        dist.reduce_scatter_single(mine, whole, group=ctx.group)
        return mine, None


def exchange(rows: Tensor, sends: list[int], receives: list[int], group: dist.ProcessGroup) -> Tensor:
    """[Σ receives, …] from `rows` [Σ sends, …]: the first `sends[0]` rows go to rank 0 of the group, and so on."""
    return cast(Tensor, _Exchange.apply(rows, sends, receives, group))  # type: ignore[no-untyped-call]


def exchange_counts(counts: Tensor, group: dist.ProcessGroup) -> Tensor:
    """int64[ranks, …] how many rows each rank will send here, from `counts` [ranks, …], how many go to each."""
    incoming = torch.empty_like(counts)
    dist.all_to_all_single(incoming, counts.contiguous(), group=group)
    return incoming


def gather_rows(rows: Tensor, sizes: list[int], group: dist.ProcessGroup) -> Tensor:
    """[Σ sizes, …] the rows of every rank of the group, one rank after another; rank r brings `sizes[r]`."""
    longest = max(sizes)
    if rows.shape[0] < longest:
        rows = torch.cat([rows, rows.new_zeros(longest - rows.shape[0], *rows.shape[1:])])
    gathered = cast(Tensor, _Gather.apply(rows, group))  # type: ignore[no-untyped-call]
    if min(sizes) == longest:
        return gathered
    return torch.cat([gathered[rank * longest : rank * longest + size] for rank, size in enumerate(sizes)])


def _all_to_all(rows: Tensor, sends: list[int], receives: list[int], group: dist.ProcessGroup) -> Tensor:
    """[Σ receives, …]"""
    incoming = rows.new_empty(sum(receives), *rows.shape[1:])
    dist.all_to_all_single(incoming, rows.contiguous(), receives, sends, group=group)
    return incoming
