"""Which forward captured a row, and under which weights."""

from __future__ import annotations

import asyncio

import numpy as np
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from t1.inference import TorchEngine
from t1.routing import Captured, provenance
from t1.tito import assemble
from t1.types import FinishReason, RolloutId, SampleTimings, SamplingParams, Trajectory, Turn

P, D, C = Captured.PREFILL, Captured.DECODE, Captured.CACHED


def turn(prompt: list[int], completion: list[int], versions: list[int], *, cached: int = 0) -> Turn:
    """Without routes: provenance is of tokens."""
    return Turn(
        np.array(prompt, np.int32),
        np.array(completion, np.int32),
        np.zeros(len(completion), np.float32),
        np.array(versions, np.int32),
        FinishReason.STOP,
        timings=SampleTimings(cached_tokens=cached),
    )


def of(turns: list[Turn]) -> tuple[list[int], list[int]]:
    (trajectory,) = assemble(RolloutId("t", 0, 0), turns)
    found = provenance(trajectory, turns)
    return found.captured.tolist(), found.version.tolist()


def test_context_is_prefilled_and_sampled_tokens_are_decoded_but_the_last_of_a_turn() -> None:
    turns = [turn([1, 2, 3], [4, 5, 6], [0, 0, 0]), turn([1, 2, 3, 4, 5, 6, 7], [8, 9], [1, 1], cached=5)]
    assert of(turns) == ([P, P, P, D, D, P, P, D], [0, 0, 0, 0, 0, 1, 1, 1])


def test_an_interrupted_completion_goes_on_with_a_prefill_under_the_new_weights() -> None:
    """Case R5: the row of the token before the change is the new version's, those before it stay the old one's."""
    assert of([turn([1, 2], [3, 4, 5, 6], [0, 0, 1, 1])]) == ([P, P, D, P, D], [0, 0, 0, 1, 1])


def test_a_shared_beginning_comes_from_the_cache() -> None:
    assert of([turn([1, 2, 3], [4, 5], [2, 2], cached=2)]) == ([C, C, P, D], [2, 2, 2, 2])


def test_shares_add_up() -> None:
    turns = [turn([1, 2, 3], [4, 5], [0, 0], cached=1)]
    (trajectory,) = assemble(RolloutId("t", 0, 0), turns)
    found = provenance(trajectory, turns)
    assert [found.share(kind) for kind in (P, D, C)] == [0.5, 0.25, 0.25]


def test_what_it_says_of_the_embedded_engine_is_what_that_fed() -> None:
    """The engine's own spans: one token a row while it decodes, more in a prefill."""
    torch.manual_seed(0)
    model = Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
            head_dim=8, moe_intermediate_size=8, num_experts=4, num_experts_per_tok=2, max_position_embeddings=64,
        )
    )  # fmt: skip
    fed: list[int] = []
    model.model.register_forward_pre_hook(
        lambda module, inputs, named: fed.append(named["input_ids"].shape[1]), with_kwargs=True
    )
    turns = asyncio.run(two_turns(TorchEngine(model, max_context=64, num_threads=1)))
    (trajectory,) = assemble(RolloutId("t", 0, 0), turns)
    found = provenance(trajectory, turns)
    assert (found.captured == D).sum() == fed.count(1)
    assert (found.captured == P).sum() == sum(size for size in fed if size > 1)
    assert isinstance(trajectory, Trajectory) and found.share(C) == 0


async def two_turns(engine: TorchEngine) -> list[Turn]:
    turns: list[Turn] = []
    prompt = np.array([1, 2, 3, 4], dtype=np.int32)
    for _ in range(2):
        s = await engine.sample(prompt, SamplingParams(max_tokens=5, seed=0), session="s")
        turns.append(
            Turn(
                s.prompt, s.completion, s.logprobs, s.versions, s.finish, s.routing, s.routing_start, timings=s.timings
            )
        )
        prompt = np.concatenate([prompt, s.completion, np.array([7, 8], dtype=np.int32)])
    await engine.aclose()
    return turns
