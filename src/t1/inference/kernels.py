"""The small kernels of the embedded engine, for modules of transformers that spend their time on bookkeeping.

At a few rows a decode step on the CPU is made of hundreds of operations of microseconds each. Here are the same sums
with fewer of them: experts (registered with transformers by name) and RMS norms. Each falls back to transformers' own
where it does not apply. Boundary: modules in, modules out; nothing here knows a request or a cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, grouped_mm_experts_forward

EXPERTS = "t1_experts"
"""The name under which transformers knows these experts."""

_grouped: Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor] = grouped_mm_experts_forward


def experts_forward(experts: nn.Module, hidden: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """[N, H] the weighted sum of what experts `ids` [N, K] make of `hidden` [N, H]; `weights` [N, K]."""
    layer: Any = experts
    plain = layer.has_gate and not (layer.has_bias or layer.is_transposed or layer.has_post_expert_norm)
    if not plain or hidden.device.type != "cpu" or layer._is_expert_parallel:
        return _grouped(experts, hidden, ids, weights)
    if len(hidden) == 1:
        return _single_token(layer, hidden, ids[0].tolist(), weights)
    return _many_tokens(layer, hidden, ids, weights)


def _single_token(layer: Any, hidden: Tensor, ids: list[int], weights: Tensor) -> Tensor:
    """[1, H] of one token: K products up, the gate once, K products down that accumulate. Nothing is sorted."""
    inner = layer._apply_gate(torch.cat([F.linear(hidden, layer.gate_up_proj[expert]) for expert in ids]))
    inner = inner * weights.reshape(-1, 1)  # [K, I]
    output = F.linear(inner[:1], layer.down_proj[ids[0]])
    for row, expert in enumerate(ids[1:], start=1):
        output = torch.addmm(output, inner[row : row + 1], layer.down_proj[expert].t())
    return output


def _many_tokens(layer: Any, hidden: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """[N, H] by two grouped products over the pairs sorted by expert; numpy sorts, in the ids' own memory."""
    flat = ids.numpy().reshape(-1)  # [S = N·K]
    order = flat.argsort(kind="stable")
    ends = torch.from_numpy(np.bincount(flat, minlength=layer.num_experts).cumsum(dtype=np.int32))
    pairs, sources = torch.from_numpy(order), torch.from_numpy(order // ids.shape[1])
    up = F.grouped_mm(hidden.index_select(0, sources), layer.gate_up_proj.transpose(1, 2), offs=ends)
    inner = layer._apply_gate(up).mul_(weights.reshape(-1, 1).index_select(0, pairs))
    down = F.grouped_mm(inner, layer.down_proj.transpose(1, 2), offs=ends)  # [S, H]
    return torch.empty_like(down).index_copy_(0, pairs, down).view(*ids.shape, -1).sum(1)


def speed_up(model: PreTrainedModel) -> None:
    """Let `model` run on these kernels from now on. Its weights keep their names and their memory."""
    accessor: Any = model
    if any(hasattr(type(module), "_apply_gate") for module in model.modules()):
        accessor.set_experts_implementation(EXPERTS)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if (fused := _fused_norm(child)) is not None:
                setattr(parent, name, fused)


def _fused_norm(norm: nn.Module) -> nn.RMSNorm | None:
    """torch's own RMS norm over the weight of transformers' one, where a trial says that they compute the same."""
    weight, epsilon = getattr(norm, "weight", None), getattr(norm, "variance_epsilon", None)
    if not type(norm).__name__.endswith("RMSNorm") or not isinstance(weight, nn.Parameter) or epsilon is None:
        return None
    fused = nn.RMSNorm(weight.shape[0], eps=epsilon)
    fused.weight = weight
    generator = torch.Generator(weight.device).manual_seed(0)
    trial = torch.randn(4, weight.shape[0], generator=generator, device=weight.device, dtype=torch.float32)
    trial = trial.to(weight.dtype)
    with torch.no_grad():
        same = torch.allclose(fused(trial).float(), norm(trial).float(), atol=1e-6, rtol=1e-6)
    return fused.train(norm.training) if same else None


ALL_EXPERTS_FUNCTIONS.register(EXPERTS, experts_forward)
