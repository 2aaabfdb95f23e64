"""The gap table: what is on in a cell takes its part of the gap away, and only that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from t1.errors import RoutingError
from t1.inference import TorchEngine
from t1.tito import assemble
from t1.training.gap.measure import CELLS, Gap, measure
from t1.types import IntArray, RolloutId, SamplingParams, Trajectory, Turn

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRST"
PIECES = ["", "", *LETTERS]
"""Token id → text: two that end, then letters; id 1 is a second spelling of id 2."""
PIECES[1] = "a"
STOP = 0
Measure = Callable[..., dict[str, Gap]]


def decode(ids: IntArray) -> str:
    return "".join(PIECES[i] for i in (ids[:-1] if len(ids) and ids[-1] == STOP else ids))


def encode(text: str) -> IntArray:
    """The canonical spelling never has id 1."""
    return np.array([PIECES.index(letter, 2) for letter in text], dtype=np.int32)


def sample(model: PreTrainedModel, *, count: int = 24, temperature: float = 1.0) -> list[Trajectory]:
    """Two turns each from the embedded engine, with rows from where the last turn's end."""
    engine = TorchEngine(model, max_context=128, num_threads=1)

    async def one(member: int) -> tuple[Trajectory, ...]:
        turns: list[Turn] = []
        prompt, held = np.array([3, 4, 5 + member % 20], dtype=np.int32), 0
        for turn in range(2):
            params = SamplingParams(temperature, max_tokens=16, stop_ids=(STOP,), seed=member * 2 + turn)
            s = await engine.sample(prompt, params, session=str(member), routing_start=held)
            turns.append(Turn(s.prompt, s.completion, s.logprobs, s.versions, s.finish, s.routing, s.routing_start))
            held = len(prompt) + len(s.completion) - 1
            prompt = np.concatenate([prompt, s.completion, np.array([7, 8], dtype=np.int32)])
        return assemble(RolloutId("made-up", 0, member), turns)

    async def all_of_them() -> list[Trajectory]:
        try:
            return [t for segments in await asyncio.gather(*(one(i) for i in range(count))) for t in segments]
        finally:
            await engine.aclose()

    return asyncio.run(all_of_them())


def gaps(trainer: PreTrainedModel, trajectories: Sequence[Trajectory], temperature: float = 1.0) -> dict[str, Gap]:
    table = measure(
        trainer,
        trajectories,
        decode=decode,
        encode=encode,
        engine="embedded",
        temperature=temperature,
        max_pack_tokens=200,
    )
    return dict(table.cells)


def copy_of(model: PreTrainedModel, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The same weights in a module of its own."""
    twin = type(model)(model.config)
    twin.load_state_dict(model.state_dict())
    return twin.to(dtype)


def test_with_equal_arithmetic_only_the_text_stack_has_a_gap(moe: PreTrainedModel) -> None:
    trajectories = sample(copy_of(moe))
    assert any((t.tokens[t.mask] == 1).any() for t in trajectories), "no second spelling was sampled"
    found = gaps(moe, trajectories)
    for name in ("tito_replay", "tito"):
        assert found[name].mean_abs < 1e-5 and found[name].ess > 0.9999
    for name in ("replay", "neither"):
        assert found[name].mean_abs > 1e-3
        assert found[name].k3 > found["tito"].k3
    assert found["tito_replay"].flipped_share == 0


def test_replay_takes_away_what_flipped_experts_add(moe: PreTrainedModel) -> None:
    """The trainer's router is off by a little: that flips experts, and little else."""
    trajectories = sample(copy_of(moe))
    for name, weight in moe.named_parameters():
        if "mlp.gate" in name:
            weight.data += 0.03 * torch.randn_like(weight)
    found = gaps(moe, trajectories)
    assert found["tito"].flipped_share > 0.02
    assert found["tito_replay"].flipped_share == 0
    assert found["tito_replay"].mean_abs < found["tito"].mean_abs
    assert found["tito_replay"].k3 < 0.8 * found["tito"].k3
    assert found["replay"].flipped_share < found["neither"].flipped_share


def test_an_engine_in_half_precision_has_a_gap_that_is_small_and_has_no_sign(moe: PreTrainedModel) -> None:
    found = gaps(moe, sample(copy_of(moe, torch.bfloat16)))
    assert 1e-4 < found["tito_replay"].mean_abs < 0.05
    assert found["tito_replay"].k3 == pytest.approx(found["tito_replay"].k3_reverse, rel=0.2)


def test_the_temperature_is_that_of_sampling(moe: PreTrainedModel) -> None:
    trajectories = sample(copy_of(moe), temperature=0.7)
    assert gaps(moe, trajectories, temperature=0.7)["tito_replay"].mean_abs < 1e-5
    assert gaps(moe, trajectories)["tito_replay"].mean_abs > 0.05


def test_a_dense_model_has_the_same_gap_with_and_without_replay(dense: PreTrainedModel) -> None:
    found = gaps(dense, sample(copy_of(dense)))
    assert found["tito_replay"] == found["tito"] and found["replay"] == found["neither"]
    assert found["tito"].flipped_share == 0


def test_the_table_says_what_was_measured(moe: PreTrainedModel) -> None:
    trajectories = sample(copy_of(moe), count=8)
    table = measure(moe, trajectories, decode=decode, encode=encode, engine="embedded float32")
    answer = table.as_dict()
    assert list(answer) == [*CELLS, "measured"]
    assert answer["measured"]["trainer"] == "transformers float32"
    assert table.num_sampled == sum(t.num_actions for t in trajectories)
    assert table.num_lost == sum(int((t.tokens[t.mask] == 1).sum()) for t in trajectories)
    assert {"mean_abs", "k3", "p99", "flipped_share", "ess"} <= set(answer["tito_replay"])


def test_routes_that_are_missing_are_not_made_up(
    moe: PreTrainedModel, make_trajectory: Callable[..., Trajectory]
) -> None:
    with pytest.raises(RoutingError, match="trajectories without recorded routes"):
        gaps(moe, [make_trajectory(0)])
