"""From the embedded engine to the trainer, family by family: its samples are replayed without a gap, or it refuses."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from t1.errors import ConfigError
from t1.inference import TorchEngine
from t1.routing.replay import replaying
from t1.tito import assemble
from t1.training.attention import attend_within_segments
from t1.training.forward import action_logprobs
from t1.training.packs import pack
from t1.types import RolloutId, SamplingParams, Trajectory, Turn

Make = Callable[[str], PreTrainedModel]
REFUSED = {
    "Qwen3Next": "knows no linear_attention layers",
    "Qwen3_5Moe": "knows no linear_attention layers",
    "GptOss": "knows no attention sinks",
    "DeepseekV3": "knows no latent attention",
}


async def talk(engine: TorchEngine) -> list[Trajectory]:
    """Four conversations of two turns; each turn asks for the rows that are not held yet."""

    async def one(member: int) -> tuple[Trajectory, ...]:
        prompt, held, turns = np.array([1, 2, 3 + member], dtype=np.int32), 0, []
        for turn in range(2):
            s = await engine.sample(
                prompt, SamplingParams(max_tokens=6, seed=turn), session=str(member), routing_start=held
            )
            turns.append(Turn(s.prompt, s.completion, s.logprobs, s.versions, s.finish, s.routing, s.routing_start))
            held = len(prompt) + len(s.completion) - 1
            prompt = np.concatenate([prompt, s.completion, np.array([7, 8, 9], dtype=np.int32)])
        return assemble(RolloutId("made-up", 0, member), turns)

    try:
        return [t for segments in await asyncio.gather(*map(one, range(4))) for t in segments]
    finally:
        await engine.aclose()


def test_what_the_engine_samples_is_replayed_without_a_gap_or_it_refuses_by_name(
    family: str, make_family: Make
) -> None:
    model = make_family(family)
    if family in REFUSED:
        with pytest.raises(ConfigError, match=REFUSED[family]):
            TorchEngine(model, max_context=32, num_threads=1)
        return
    trajectories = asyncio.run(talk(TorchEngine(copy.deepcopy(model), max_context=32, num_threads=1)))
    attend_within_segments(model)
    (together,) = pack(trajectories, max_tokens=1000)
    assert together.routing is not None
    sampled = torch.zeros(together.num_actions)
    sampled[:] = torch.from_numpy(np.concatenate([t.logprobs[t.mask] for t in trajectories]))
    with torch.no_grad(), replaying(model, together.routing) as replay:
        trained = action_logprobs(model, together)
    torch.testing.assert_close(trained, sampled[together.slots], atol=1e-4, rtol=0)
    assert not replay.flipped.any()
