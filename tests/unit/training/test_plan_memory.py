"""Memory on paper is memory in fact: traces against the allocator of real ranks, estimates against traces."""

from __future__ import annotations

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from transformers import Qwen3MoeConfig

from t1.testing.ranked import Training, measured_memory
from t1.training.parallel.launch import on_ranks
from t1.training.parallel.layout import Layout
from t1.training.planning.memory import (
    Recipe,
    bytes_a_token,
    estimate,
    held,
    imaginary_ranks,
    sharded_net,
    trace,
)


def small(**changes) -> Qwen3MoeConfig:
    """A Mixture of Experts of 0.8 million parameters."""
    shape = {
        "vocab_size": 4096, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 32,
        "num_key_value_heads": 2, "intermediate_size": 256, "moe_intermediate_size": 64, "num_experts": 8,
        "num_experts_per_tok": 2, "norm_topk_prob": True, "tie_word_embeddings": True, "max_position_embeddings": 4096,
    }  # fmt: skip
    return Qwen3MoeConfig(**{**shape, **changes})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experts", "checkpointing"),
    [
        pytest.param(2, True, id="spread"),
        pytest.param(1, True, id="recomputed", marks=pytest.mark.memory),
        pytest.param(1, False, id="kept", marks=pytest.mark.memory),
    ],
)
@pytest.mark.long
def test_the_plan_of_a_small_model_is_within_a_tenth_of_what_two_ranks_allocate(experts, checkpointing):
    config, layout, tokens = small(vocab_size=1024, num_hidden_layers=2), Layout(2, experts), 2048
    planned = held(config, layout, tokens=tokens, recipe=Recipe(checkpointing=checkpointing))
    nets = ("policy", "critic")
    trainings = [Training(config, layout, tokens, name == "critic", checkpointing) for name in nets]
    for measured in on_ranks(2, measured_memory, trainings, timeout_s=900.0):
        for name, (shards, working) in zip(nets, measured, strict=True):
            plan = planned[name]
            assert plan.weights == pytest.approx(shards["weights"], rel=0.01), name
            assert plan.moments == pytest.approx(shards["optimizer"], rel=0.01), name
            total = plan.weights + plan.gradients + plan.moments + plan.working
            assert total == pytest.approx(sum(shards.values()) + working, rel=0.1), name


@pytest.mark.parametrize("vocabulary", [512, 8192], ids=["layers", "logits"])
def test_an_estimate_is_within_a_tenth_of_the_trace_that_it_saves(vocabulary):
    config, recipe, tokens = small(num_hidden_layers=8, vocab_size=vocabulary), Recipe(), 3072
    with imaginary_ranks(Layout(8, 2)) as ranks:
        whole = trace(config, ranks, tokens, recipe)
        adds = bytes_a_token(config, ranks, recipe)
        net = sharded_net(config, ranks, recipe, critic=False)
    kept = config.num_hidden_layers * tokens * config.hidden_size * torch.bfloat16.itemsize
    assert kept + estimate(config, net, tokens, adds, recipe, critic=False) == pytest.approx(whole, rel=0.1)


@pytest.mark.parametrize("critic", [False, True], ids=["policy", "critic"])
def test_nothing_that_frees_a_storage_is_copied_with_what_is_traced(critic, monkeypatch):
    """A fake tensor that is copied deeply takes its mode along, and with it references that each free a storage once:
    memory is freed twice, and the process dies some time later, somewhere else."""
    copied = []
    monkeypatch.setattr(StorageWeakRef, "__deepcopy__", lambda one, memo: copied.append(one) or one, raising=False)
    with imaginary_ranks(Layout(2)) as ranks:
        trace(small(num_hidden_layers=1, vocab_size=512), ranks, 64, Recipe(), critic=critic)
    assert not copied
