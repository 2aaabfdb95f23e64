"""One tiny model with random weights for each Mixture-of-Experts family that can be replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
import torch
import transformers
from torch import nn
from transformers import PreTrainedModel

from t1.routing.replay import routers

EXPERTS, TOP_K = 8, 3
SHAPE = {
    "vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": 64, "initializer_range": 0.3, "num_experts_per_tok": TOP_K,
}  # fmt: skip
SPARSE = {"intermediate_size": 32, "moe_intermediate_size": 16}
SHARED = {**SPARSE, "shared_expert_intermediate_size": 16, "num_experts": EXPERTS}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention", "linear_attention"], "head_dim": 16,
    "linear_num_value_heads": 2, "linear_num_key_heads": 1, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
}  # fmt: skip
LATENT = {
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
    "num_key_value_heads": 2,
}  # fmt: skip
GROUPED = {"n_routed_experts": EXPERTS, "n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5}
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32, "rope_theta": 1e4}

FAMILIES: Mapping[str, Mapping[str, object]] = {
    "Qwen2Moe": SHARED | {"norm_topk_prob": False},
    "Qwen3Moe": SPARSE | {"num_experts": EXPERTS, "norm_topk_prob": True, "head_dim": 16, "mlp_only_layers": [1]},
    "Qwen3Next": SHARED | LINEAR,
    "Qwen3_5Moe": {k: v for k, v in (SHARED | LINEAR).items() if k != "intermediate_size"},
    "Mixtral": {"intermediate_size": 16, "num_local_experts": EXPERTS},
    "DeepseekV3": SPARSE | GROUPED | LATENT | {"n_group": 4, "topk_group": 2},
    "Glm4Moe": SPARSE | GROUPED | {"head_dim": 16, "n_group": 1, "topk_group": 1, "norm_topk_prob": True},
    "GptOss": {
        "intermediate_size": 16, "num_local_experts": EXPERTS, "head_dim": 16, "sliding_window": 32,
        "rope_parameters": YARN,
    },
}  # fmt: skip
"""Family → its config's own keys. DeepSeek and GLM have a dense first layer, this Qwen3-MoE a dense second one."""

Make = Callable[[str], PreTrainedModel]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums in one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def make_family() -> Make:
    """A function family → model in training mode, whose routers have preferences, biases included."""

    def make(family: str) -> PreTrainedModel:
        torch.manual_seed(0)
        name = f"{family}TextConfig" if family == "Qwen3_5Moe" else f"{family}Config"
        config = getattr(transformers, name)(**{**SHAPE, **FAMILIES[family]})
        model: PreTrainedModel = getattr(transformers, f"{family}ForCausalLM")(config)
        for router in routers(model):
            for tensor in (*router.parameters(), *router.buffers()):
                nn.init.normal_(tensor, std=0.5)
        return model.train()

    return make


@pytest.fixture
def families() -> tuple[str, ...]:
    """All of them."""
    return tuple(FAMILIES)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `family` runs once for each."""
    if "family" in metafunc.fixturenames:
        metafunc.parametrize("family", FAMILIES)
