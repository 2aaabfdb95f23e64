"""Tiny models, and what a plain full forward says about a sample."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3MoeConfig

from t1.inference import TorchEngine, load_model
from t1.routing.replay import capturing
from t1.types import FloatArray, RoutingArray, Sample

VOCABULARY, MAX_CONTEXT = 48, 128
OpenEngine: TypeAlias = Callable[..., TorchEngine]

MOE = Qwen3MoeConfig(
    vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
    head_dim=8, intermediate_size=32, moe_intermediate_size=16, num_experts=8, num_experts_per_tok=2,
    norm_topk_prob=True, max_position_embeddings=1024, initializer_range=0.3,
)  # fmt: skip
DENSE = Qwen3Config(
    vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
    head_dim=16, intermediate_size=32, max_position_embeddings=1024, initializer_range=0.3,
)  # fmt: skip


def moe_model(seed: int = 0) -> PreTrainedModel:
    """Three layers of eight experts, top-2."""
    torch.manual_seed(seed)
    return load_model(MOE)


def dense_model(seed: int = 0) -> PreTrainedModel:
    """Two dense layers."""
    torch.manual_seed(seed)
    return load_model(DENSE)


@pytest.fixture
async def open_engine() -> AsyncIterator[OpenEngine]:
    """A function (model, **settings) → an engine that is closed after the test."""
    opened: list[TorchEngine] = []

    def make(model: PreTrainedModel, *, max_context: int = MAX_CONTEXT, **settings: int) -> TorchEngine:
        opened.append(TorchEngine(model, max_context=max_context, num_threads=1, **settings))
        return opened[-1]

    yield make
    for engine in opened:
        await engine.aclose()


@torch.no_grad()
def full_forward(model: PreTrainedModel, sample: Sample) -> tuple[FloatArray, RoutingArray | None]:
    """([C] log-probabilities at temperature 1, [P+C−1, L, K] routes) by transformers' own attention, no cache."""
    tokens = torch.from_numpy(np.concatenate([sample.prompt, sample.completion])).long()
    with capturing(model) as captured:
        logprobs = model(input_ids=tokens[None], use_cache=False).logits[0].log_softmax(-1)
    start = len(sample.prompt)
    chosen = logprobs[start - 1 : -1].gather(1, tokens[start:, None])[:, 0].numpy()
    return chosen, captured.routing().numpy()[:-1] if captured.num_layers else None


def random_prompt(seed: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCABULARY, size).astype(np.int32)
