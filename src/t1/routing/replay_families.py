"""How each Mixture-of-Experts family weighs the experts selected for it: one function a rule, one line a family.

Such a router is a module that returns (logits [N, E], weights [N, K], ids [N, K]). An adapter repeats what the router
does *after* it has selected, with the same operations in the same dtypes, so that where the routes agree the weights
and their gradients are the router's own. How it selects (groups, correction biases, top-k) is what the recorded row
replaces, and does not appear here. Boundary: one router's tensors; models, hooks and captures are in `replay.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from t1.errors import ConfigError

Weigh: TypeAlias = Callable[[Any, Tensor, Tensor], Tensor]
"""(router, its live logits [N, E], ids [N, K]) → the weights [N, K] that the router would give to these experts."""


def softmax_over_all(router: Any, logits: Tensor, ids: Tensor) -> Tensor:
    """w_k = p_k / Σ_j p_j with p = softmax(logits) over all experts; as they are where `norm_topk_prob` is off."""
    weights = logits.softmax(-1, dtype=torch.float32).gather(1, ids)
    if getattr(router, "norm_topk_prob", True):
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights.to(logits.dtype)


def softmax_in_float32(router: Any, logits: Tensor, ids: Tensor) -> Tensor:
    """As `softmax_over_all`, always renormalised, and left in float32 (Mixtral)."""
    weights = logits.float().softmax(-1).gather(1, ids)
    return weights / weights.sum(dim=-1, keepdim=True)


def softmax_over_selected(router: Any, logits: Tensor, ids: Tensor) -> Tensor:
    """w = softmax(logits_k over the selected experts alone) in the logits' own dtype (gpt-oss)."""
    return logits.gather(1, ids).softmax(dim=1, dtype=logits.dtype)


def sigmoid_scores(router: Any, logits: Tensor, ids: Tensor) -> Tensor:
    """w_k = c · s_k / Σ_j s_j with s = sigmoid(logits), c the scaling factor (DeepSeek-V3 and its kin).

    The correction bias and the groups only ever selected; they weigh nothing.
    """
    weights = logits.sigmoid().gather(1, ids)
    if router.norm_topk_prob:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
    scaled: Tensor = weights * router.routed_scaling_factor
    return scaled


ADAPTERS: Mapping[str, Weigh] = {
    "Qwen2MoeTopKRouter": softmax_over_all,
    "Qwen3MoeTopKRouter": softmax_over_all,
    "Qwen3NextTopKRouter": softmax_over_all,
    "Qwen3_5MoeTopKRouter": softmax_over_all,
    "MixtralTopKRouter": softmax_in_float32,
    "GptOssTopKRouter": softmax_over_selected,
    "DeepseekV3TopkRouter": sigmoid_scores,
    "Glm4MoeTopkRouter": sigmoid_scores,
}
"""Router class in transformers → its adapter."""


def routers(model: nn.Module) -> list[nn.Module]:
    """A model's routers in order of layer; none for a dense one. Raises ConfigError for a family without adapter."""
    found = [module for module in model.modules() if type(module).__name__ in ADAPTERS]
    unknown = sorted({name for module in model.modules() if _routes(name := type(module).__name__)} - set(ADAPTERS))
    if unknown or (not found and num_experts(model)):
        named = " and ".join(unknown) or "none of its modules, by name"
        raise ConfigError(
            f"{type(model).__name__}: this Mixture-of-Experts family has no adapter for replay (router: {named}). "
            "Write one: a function (router, logits, ids) → weights and a line in ADAPTERS of "
            "t1/routing/replay_families.py, and a case in tests/unit/routing/test_families.py; docs/routing.md says how"
        )
    return found


def _routes(name: str) -> bool:
    """Whether a class of this name is a router."""
    return name.lower().endswith(("router", "moegate"))


def num_experts(model: nn.Module) -> int:
    """What the model's config says; 0 for a dense model."""
    config: Any = getattr(model, "config", None)
    if config is None:
        return 0
    text = config.get_text_config()
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    return int(next((count for name in names if (count := getattr(text, name, None))), 0))
