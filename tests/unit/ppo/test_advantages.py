"""Advantages: exact values, independence of rollouts, independence of observations."""

from __future__ import annotations

import pytest
import torch

from t1.ppo import gae, group_advantages, turn_gae, whiten


def test_a_terminal_reward_reaches_every_action_undecayed_by_observations() -> None:
    """Case P2: γ = λ = 1 and no critic, so that each action's advantage is the reward itself."""
    advantages = gae(torch.tensor([0.0, 0.0, 1.0]), torch.zeros(3))
    assert advantages.tolist() == [1.0, 1.0, 1.0]


def test_decay_counts_actions_and_nothing_else() -> None:
    """Case P2: three actions are two steps apart, whatever lies between them in the stream."""
    advantages = gae(torch.tensor([0.0, 0.0, 1.0]), torch.zeros(3), gamma=0.5)
    assert advantages.tolist() == [0.25, 0.5, 1.0]


def test_exact_values_by_hand() -> None:
    """Case P1: the arithmetic on paper, γ = 1 and λ = 0.5."""
    advantages = gae(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.5, 0.25, 0.75]), lam=0.5)
    # δ = −0.25, 0.5, 0.25; A₃ = 0.25, A₂ = 0.5 + 0.125, A₁ = −0.25 + 0.3125
    assert advantages.tolist() == [0.0625, 0.625, 0.25]


def test_rollouts_do_not_leak_into_one_another() -> None:
    rewards, values = torch.randn(9), torch.randn(9)
    together = gae(rewards, values, gamma=0.9, lam=0.8, lengths=torch.tensor([4, 1, 4]))
    apart = [gae(rewards[a:b], values[a:b], gamma=0.9, lam=0.8) for a, b in ((0, 4), (4, 5), (5, 9))]
    torch.testing.assert_close(together, torch.cat(apart))


def test_with_lambda_one_the_target_of_the_critic_is_the_sum_of_later_rewards() -> None:
    rewards, values = torch.tensor([1.0, 2.0, 3.0]), torch.randn(3)
    torch.testing.assert_close(gae(rewards, values) + values, torch.tensor([6.0, 5.0, 3.0]))


def test_lengths_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="add up to 3"):
        gae(torch.zeros(3), torch.zeros(3), lengths=torch.tensor([1, 1]))


def test_rewards_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected \[3\].*got \[2\]"):
        gae(torch.zeros(2), torch.zeros(3))


def test_tokens_of_a_turn_share_one_advantage() -> None:
    advantages = turn_gae(
        torch.tensor([0.0, 0.0, 0.0, 1.0]), torch.tensor([0.5, 9.0, 0.25, 9.0]), torch.tensor([0, 0, 1, 1])
    )
    assert advantages.tolist() == [0.5, 0.5, 0.75, 0.75]


def test_equal_turn_numbers_of_neighbouring_rollouts_stay_apart() -> None:
    advantages = turn_gae(torch.tensor([1.0, 5.0]), torch.zeros(2), torch.tensor([0, 0]), lengths=torch.tensor([1, 1]))
    assert advantages.tolist() == [1.0, 5.0]


def test_whitened_advantages_have_mean_zero_and_deviation_one() -> None:
    white = whiten(torch.randn(1000) * 3 + 2)
    assert float(white.mean()) == pytest.approx(0, abs=1e-6)
    assert float(white.std(correction=0)) == pytest.approx(1, abs=1e-6)


def test_a_constant_batch_whitens_to_zero() -> None:
    assert whiten(torch.full((1000,), 0.1)).abs().max() < 1e-6


def test_a_rollout_is_compared_with_the_mean_of_its_group() -> None:
    returns, groups = torch.tensor([1.0, 0.0, 0.5, 0.3, 0.1]), torch.tensor([0, 1, 0, 2, 1])
    assert group_advantages(returns, groups).tolist() == pytest.approx([0.25, -0.05, -0.25, 0.0, 0.05])


def test_groups_of_another_length_than_the_returns_are_refused() -> None:
    with pytest.raises(ValueError, match="expected"):
        group_advantages(torch.zeros(3), torch.zeros(2, dtype=torch.long))
