"""Expert parallelism: each rank of a group owns its own experts of every MoE layer, and tokens travel to them.

    ids [N, K] ─sort by expert─▶ all-to-all ─▶ the experts at home ─▶ all-to-all ─▶ weigh, sum over K

Who goes where is the router's choice, or the recorded row's: routing replay happens before and is not known here.
Boundary: modules in the shape that transformers gives a layer's experts (weights stacked [E, …], called with hidden
states, ids and weights); the compute at home is that module's own forward, so each family keeps its own rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn

from t1.errors import ConfigError
from t1.training.parallel.collectives import exchange, exchange_counts

ExpertsForward: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(hidden [N, H], ids int64[N, K], weights [N, K]) → [N, H]."""


def experts_of(model: nn.Module) -> list[nn.Module]:
    """The stacked experts of each MoE layer, in order of layer; none for a dense model."""
    return [
        module
        for module in model.modules()
        if isinstance(getattr(module, "num_experts", None), int) and all_stacked(module)
    ]


def all_stacked(module: nn.Module) -> bool:
    """Whether a module's own weights are stacked by expert: [E, …] with at least two more axes for a matrix."""
    own = dict(module.named_parameters(recurse=False))
    count = module.num_experts
    return any(weight.ndim == 3 for weight in own.values()) and all(w.shape[0] == count for w in own.values())


def spread_experts(model: nn.Module, group: dist.ProcessGroup, *, evenly: bool = False) -> None:
    """Keep only this rank's experts of every MoE layer of `model`, and let tokens travel to the others'.

    `evenly`: as if every expert were chosen equally often, without looking: for plans, where nothing is computed.
    Raises ConfigError where the ranks do not divide the experts, or the model has none.
    """
    found, size, rank = experts_of(model), dist.get_world_size(group), dist.get_rank(group)
    if not found:
        raise ConfigError(f"{type(model).__name__} has no experts to spread over {size} ranks; set experts to 1")
    for experts in found:
        module: Any = experts
        if module.num_experts % size:
            raise ConfigError(f"layout: {module.num_experts} experts cannot be spread evenly over {size} ranks")
        count = module.num_experts // size
        for name, weight in list(module.named_parameters(recurse=False)):
            mine = weight.detach()[rank * count : (rank + 1) * count].clone()
            setattr(module, name, nn.Parameter(mine, requires_grad=weight.requires_grad))
        module.forward = _travelling(module.forward, count, group, evenly)
        module.num_experts = count


def _travelling(at_home: ExpertsForward, count: int, group: dist.ProcessGroup, evenly: bool) -> ExpertsForward:
    """A forward over the experts of all ranks, of which `count` are at home here."""
    size = dist.get_world_size(group)

    def forward(hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        num_tokens, chosen = top_k_index.shape
        ids, order = top_k_index.reshape(-1).sort(stable=True)  # [N·K]
        sends, receives, wanted = _evenly(ids, size) if evenly else _counted(ids, size, count, group)
        visitors = exchange(hidden_states[order // chosen], sends, receives, group)
        answers = exchange(_serve(at_home, visitors, wanted), receives, sends, group)
        rows = torch.empty_like(order)
        rows[order] = torch.arange(len(order), device=order.device)
        weighed = answers[rows] * top_k_weights.reshape(-1, 1)
        return weighed.view(num_tokens, chosen, -1).sum(dim=1).to(hidden_states.dtype)

    return forward


def _counted(ids: Tensor, size: int, count: int, group: dist.ProcessGroup) -> tuple[list[int], list[int], Tensor]:
    """Rows to each rank, rows from each, and the expert at home that each visitor wants; `ids` [N·K] are sorted."""
    counts = torch.bincount(ids, minlength=size * count).view(size, count)
    incoming = exchange_counts(counts, group)  # [ranks, experts at home]
    wanted = torch.arange(count, device=ids.device).repeat(size).repeat_interleave(incoming.reshape(-1))
    return counts.sum(1).tolist(), incoming.sum(1).tolist(), wanted


def _evenly(ids: Tensor, size: int) -> tuple[list[int], list[int], Tensor]:
    """The same of even traffic: as many rows from each rank as to it, all for one expert."""
    rows = [(len(ids) + rank) // size for rank in range(size)]
    return rows, rows, torch.zeros_like(ids)


def _serve(at_home: ExpertsForward, visitors: Tensor, wanted: Tensor) -> Tensor:
    """[V, H] what the experts `wanted` int64[V] say about `visitors` [V, H].

    Where nobody comes, a row of zeros is served and dropped: the experts' gradients exist on every rank, as zeros.
    """
    nobody = len(visitors) == 0
    if nobody:
        visitors, wanted = torch.cat([visitors, visitors.new_zeros(1, visitors.shape[1])]), wanted.new_zeros(1)
    answers = at_home(visitors, wanted.unsqueeze(1), visitors.new_ones(len(visitors), 1))
    return answers[:0] if nobody else answers
