"""Tiny nets and made-up trajectories for the trainers' tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from t1.training.attention import attend_within_segments
from t1.types import Boundary, Case, RolloutId, Trajectory


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One case of memory is enough for every day."""
    for item in items:
        if not config.option.markexpr and item.get_closest_marker("memory") is not None:
            item.add_marker(pytest.mark.skip(reason="ranks are measured for a minute: make test-plan"))


VOCABULARY, LAYERS, EXPERTS, TOP_K = 48, 2, 4, 2
MakeTrajectory: TypeAlias = Callable[..., Trajectory]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums in one order, and two busy test processes that leave one another alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def moe() -> PreTrainedModel:
    """A Mixture-of-Experts policy of two layers whose router has preferences."""
    torch.manual_seed(1)
    model = Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=LAYERS, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, intermediate_size=32, moe_intermediate_size=16, num_experts=EXPERTS,
            num_experts_per_tok=TOP_K, norm_topk_prob=True, tie_word_embeddings=True, max_position_embeddings=128,
        )
    )  # fmt: skip
    for name, weight in model.named_parameters():
        if weight.ndim >= 2:
            torch.nn.init.normal_(weight, std=0.5 if "mlp.gate" in name else 0.15)
    attend_within_segments(model)
    return model


@pytest.fixture
def dense() -> PreTrainedModel:
    """A dense policy of one layer."""
    torch.manual_seed(2)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
            head_dim=16, intermediate_size=32, tie_word_embeddings=True, max_position_embeddings=128,
        )
    )  # fmt: skip
    attend_within_segments(model)
    return model


@pytest.fixture
def make_trajectory() -> MakeTrajectory:
    """A function (seed, length=…, routed=…, routes=…, member=…, first_turn=…) → Trajectory of random tokens."""
    return random_trajectory


def random_trajectory(
    seed: int, *, length: int = 20, routed: bool = False, routes: int = 0, member: int = 0, first_turn: int = 0
) -> Trajectory:
    """Context and actions in runs of random length; `routed`: random distinct experts (seed `routes`) a fed token."""
    rng = np.random.default_rng(seed)
    mask = np.repeat(rng.random(length) < 0.5, rng.integers(1, 4, length))[:length]
    mask[0], mask[-1] = False, True
    routing = None
    if routed:
        routing = (
            np.random.default_rng([seed, routes])
            .random((length - 1, LAYERS, EXPERTS))
            .argsort(-1)[..., :TOP_K]
            .astype(np.uint8)
        )
    starts = np.flatnonzero(np.diff(mask.astype(int), prepend=0) == 1)
    turn = first_turn + np.maximum(0, np.searchsorted(starts, np.arange(length), side="right") - 1)
    return Trajectory(
        rollout=RolloutId("made-up", 0, member),
        segment=0,
        tokens=rng.integers(0, VOCABULARY, length).astype(np.int32),
        mask=mask,
        logprobs=np.where(mask, -rng.random(length) * 4, 0).astype(np.float32),
        turn=turn.astype(np.int32),
        version=np.zeros(length, np.int32),
        routing=routing,
        boundaries=tuple(Boundary(int(t), Case.OPEN if t == first_turn else Case.STRICT) for t in np.unique(turn)),
    )
