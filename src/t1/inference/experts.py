"""The expert kernel of the embedded engine: transformers' `grouped_mm`, with a short way for a single token.

One token visits K experts; sorting, counting and grouping K pairs costs more than the products themselves, so on the
CPU they are made one after another (62 instead of 170 µs a layer at hidden 128, 8 experts, top-2; 92 instead of 208 µs
at 16 experts, top-4). From two tokens on nothing that was tried beats `grouped_mm` by more than it loses elsewhere: a
loop over the experts that are hit, all experts densely, gathered weights (`batched_mm`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, grouped_mm_experts_forward

EXPERTS = "t1_experts"
"""The name under which transformers knows this kernel."""

_grouped: Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor] = grouped_mm_experts_forward


def experts_forward(experts: nn.Module, hidden: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """[N, H] the weighted sum of what experts `ids` [N, K] make of `hidden` [N, H]; `weights` [N, K]."""
    layer: Any = experts
    plain = layer.has_gate and not (layer.has_bias or layer.is_transposed or layer.has_post_expert_norm)
    if len(hidden) == 1 and plain and hidden.device.type == "cpu" and not layer._is_expert_parallel:
        return _single_token(layer, hidden, ids[0].tolist(), weights)
    return _grouped(experts, hidden, ids, weights)


def _single_token(layer: Any, hidden: Tensor, ids: list[int], weights: Tensor) -> Tensor:
    """[1, H] of one token: K products up, the gate once, K products down that accumulate."""
    inner = layer._apply_gate(torch.cat([F.linear(hidden, layer.gate_up_proj[expert]) for expert in ids]))
    inner = inner * weights.reshape(-1, 1)  # [K, I]
    output = F.linear(inner[:1], layer.down_proj[ids[0]])
    for row, expert in enumerate(ids[1:], start=1):
        output = torch.addmm(output, inner[row : row + 1], layer.down_proj[expert].t())
    return output


def use_experts_of_engine(model: PreTrainedModel) -> None:
    """Run the experts of `model` through this kernel from now on, where transformers lets one choose."""
    accessor: Any = model
    if getattr(model.config, "_experts_implementation", None) is not None:
        accessor.set_experts_implementation(EXPERTS)


ALL_EXPERTS_FUNCTIONS.register(EXPERTS, experts_forward)
