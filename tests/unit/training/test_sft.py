"""SFT learns what it is shown, and only the actions of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from t1.errors import IntegrityError
from t1.training.config import SFTConfig
from t1.training.sft import SFTTrainer
from t1.types import Trajectory

Make = Callable[..., Trajectory]


def test_sft_overfits_a_tiny_batch(moe: PreTrainedModel, make_trajectory: Make) -> None:
    trainer = SFTTrainer(moe, SFTConfig(lr=2e-2))
    demonstrations = [make_trajectory(seed) for seed in range(3)]
    before = trainer.loss(demonstrations)
    for _ in range(60):
        metrics = trainer.step(demonstrations)
    assert before > 3.0
    assert metrics["loss"] < 0.1
    assert trainer.num_steps == 60


def test_the_loss_is_the_mean_over_all_action_tokens(moe: PreTrainedModel, make_trajectory: Make) -> None:
    """Case P5: not the mean of each pack's or trajectory's mean."""
    short, long = make_trajectory(0, length=6), make_trajectory(1, length=60)
    trainer = SFTTrainer(moe, SFTConfig(max_pack_tokens=60))
    total = trainer.loss([short]) * short.num_actions + trainer.loss([long]) * long.num_actions
    expected = total / (short.num_actions + long.num_actions)
    assert trainer.loss([short, long]) == pytest.approx(expected, abs=1e-5)
    assert trainer.step([short, long])["loss"] == pytest.approx(expected, abs=1e-5)


def test_the_gradient_does_not_depend_on_the_packing(moe: PreTrainedModel, make_trajectory: Make) -> None:
    """Case P5: one pack or four."""
    trajectories = [make_trajectory(seed, length=10 + seed) for seed in range(8)]
    start = {name: weight.clone() for name, weight in moe.state_dict().items()}
    norms = []
    for max_tokens in (1000, 30):
        moe.load_state_dict(start)
        norms.append(SFTTrainer(moe, SFTConfig(max_pack_tokens=max_tokens)).step(trajectories)["grad_norm"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_what_the_sampler_said_is_not_looked_at(moe: PreTrainedModel, make_trajectory: Make) -> None:
    plain = make_trajectory(0)
    other = dataclasses.replace(plain, logprobs=plain.logprobs * 2, routing=make_trajectory(0, routed=True).routing)
    trainer = SFTTrainer(moe, SFTConfig())
    assert trainer.loss([plain]) == trainer.loss([other])


def test_a_gradient_that_is_no_number_stops_the_program_before_it_reaches_the_weights(
    moe: PreTrainedModel, make_trajectory: Make
) -> None:
    with torch.no_grad():
        moe.get_decoder().norm.weight[0] = float("nan")
    before = {name: weight.clone() for name, weight in moe.named_parameters()}
    with pytest.raises(IntegrityError, match="nan"):
        SFTTrainer(moe, SFTConfig()).step([make_trajectory(0)])
    for name, weight in moe.named_parameters():
        np.testing.assert_array_equal(weight.detach().numpy(), before[name].detach().numpy())


def test_no_demonstrations_are_refused(moe: PreTrainedModel) -> None:
    with pytest.raises(ValueError, match="at least one"):
        SFTTrainer(moe, SFTConfig()).step([])
