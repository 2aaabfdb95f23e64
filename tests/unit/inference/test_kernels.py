"""The engine's kernels compute what transformers' own compute, and change no weight."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import GemmaConfig, PreTrainedModel

from t1.inference import load_model
from t1.inference.kernels import EXPERTS, speed_up

from .conftest import dense_model, moe_model


def logits(model: PreTrainedModel, num_tokens: int) -> torch.Tensor:
    """[num_tokens, V]"""
    with torch.no_grad():
        return model(input_ids=torch.arange(num_tokens)[None] * 5 % 48, use_cache=False).logits[0]


@pytest.mark.parametrize("num_tokens", [1, 2, 33])
def test_a_faster_model_says_the_same(num_tokens: int) -> None:
    for model in (moe_model(), dense_model()):
        plain = logits(model, num_tokens)
        speed_up(model)
        torch.testing.assert_close(logits(model, num_tokens), plain, atol=1e-5, rtol=1e-5)


def test_weights_keep_their_names_and_their_memory() -> None:
    model = moe_model()
    before = {name: weight.data_ptr() for name, weight in model.state_dict().items()}
    speed_up(model)
    assert {name: weight.data_ptr() for name, weight in model.state_dict().items()} == before
    assert model.config._experts_implementation == EXPERTS
    assert isinstance(model.model.norm, torch.nn.RMSNorm)


def test_a_norm_that_means_something_else_stays_as_it_is() -> None:
    """Gemma's norm scales by 1 + weight."""
    model = load_model(
        GemmaConfig(
            vocab_size=48, hidden_size=16, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
            head_dim=16, intermediate_size=16,
        )
    )  # fmt: skip
    for norm in (module for module in model.modules() if type(module).__name__ == "GemmaRMSNorm"):
        norm.variance_epsilon = norm.eps
    plain = logits(model, 4)
    speed_up(model)
    assert type(model.model.norm).__name__ == "GemmaRMSNorm"
    torch.testing.assert_close(logits(model, 4), plain, atol=0, rtol=0)


def test_another_model_of_the_same_config_is_untouched() -> None:
    model = moe_model()
    other = copy.deepcopy(model)
    speed_up(model)
    assert other.config._experts_implementation == "grouped_mm"
    assert type(other.model.norm).__name__ == "Qwen3MoeRMSNorm"
