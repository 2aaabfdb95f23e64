"""Losses and diagnostics: where the gradient flows and where it stops."""

from __future__ import annotations

import math

import pytest
import torch

from t1.ppo import (
    entropy,
    explained_variance,
    gap,
    importance_weights,
    policy_drift,
    policy_loss,
    token_mean,
    value_loss,
)


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [
        (1.27, 1.0, True),
        (1.29, 1.0, False),
        (1.29, -1.0, True),
        (0.81, -1.0, True),
        (0.79, -1.0, False),
        (0.79, 1.0, True),
    ],
)
def test_the_clip_stops_only_what_would_go_further_out(ratio: float, advantage: float, moves: bool) -> None:
    logprob = torch.tensor([math.log(ratio)], requires_grad=True)
    policy_loss(logprob, torch.zeros(1), torch.tensor([advantage])).sum().backward()
    assert logprob.grad is not None
    assert (float(logprob.grad) != 0.0) is moves
    drift = policy_drift(logprob.detach(), torch.zeros(1), torch.tensor([advantage]), clip_low=0.2, clip_high=0.28)
    assert drift["clip_fraction"] == float(not moves)


def test_at_ratio_one_the_gradient_is_minus_the_advantage() -> None:
    logprobs = torch.full((3,), -1.0, requires_grad=True)
    policy_loss(logprobs, torch.full((3,), -1.0), torch.tensor([1.0, -2.0, 0.5])).sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [-1.0, 2.0, -0.5]


def test_importance_weights_are_capped_above_and_free_below() -> None:
    weights = importance_weights(torch.tensor([0.0, 0.0]), torch.tensor([-2.0, 2.0]), cap=2.0)
    assert weights.tolist() == pytest.approx([2.0, math.exp(-2.0)])


def test_a_clipped_value_loss_needs_the_old_values() -> None:
    with pytest.raises(ValueError, match="old values"):
        value_loss(torch.zeros(1), torch.zeros(1), clip=0.2)


def test_a_denominator_smaller_than_the_pack_is_refused() -> None:
    """Case P5: the count of a microbatch passed by mistake."""
    with pytest.raises(ValueError, match="whole minibatch"):
        token_mean(torch.zeros(4), num_actions=3)


def test_no_gap_means_zero_divergence_and_a_full_sample() -> None:
    old = -torch.rand(50)
    numbers = gap(old, old)
    assert numbers == {
        "gap": 0.0, "gap_p99": 0.0, "gap_max": 0.0, "gap_k3": 0.0, "gap_k3_reverse": 0.0, "gap_ess": pytest.approx(1.0)
    }  # fmt: skip


def test_the_two_divergences_are_those_of_their_direction() -> None:
    """Over all of a distribution's outcomes, weighted by it, k3 is KL exactly."""
    sampler, trainer = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.5, 0.3, 0.2])
    counts = (sampler * 10).round().long()
    numbers = gap(trainer.log().repeat_interleave(counts), sampler.log().repeat_interleave(counts))
    assert numbers["gap_k3"] == pytest.approx(float((sampler * (sampler / trainer).log()).sum()), abs=1e-6)
    assert numbers["gap_k3_reverse"] == pytest.approx(float((trainer * (trainer / sampler).log()).sum()), abs=1e-6)
    assert numbers["gap_ess"] < 1.0


def test_a_perfect_critic_explains_everything_and_a_constant_one_nothing() -> None:
    returns = torch.tensor([0.0, 1.0, 2.0])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(torch.full((3,), 5.0), returns) == pytest.approx(0.0)


def test_entropy_of_a_uniform_distribution_is_the_log_of_its_size() -> None:
    assert entropy(torch.zeros(2, 8)).tolist() == pytest.approx([math.log(8)] * 2)
