"""Oracle: PPO and GAE in plain Python loops over plain floats, slow, obvious, and sharing nothing with `t1.ppo`.

A rollout is a list of segments; a segment is a list of tokens; a token is a dict with `action` (did the policy sample
it?), and, for actions, `reward` and `value`; observation tokens may carry any value, which must not matter.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch

from t1.ppo import gae, importance_weights, policy_loss, token_mean, turn_gae, value_loss


def naive_gae(segments: list[list[dict[str, Any]]], gamma: float, lam: float) -> list[float]:
    """Advantage of each action of one rollout, in time order, walked backwards through all its segments."""
    actions = [token for segment in segments for token in segment if token["action"]]
    advantages = [0.0] * len(actions)
    next_value, next_advantage = 0.0, 0.0
    for index in range(len(actions) - 1, -1, -1):
        delta = actions[index]["reward"] + gamma * next_value - actions[index]["value"]
        advantages[index] = delta + gamma * lam * next_advantage
        next_value, next_advantage = actions[index]["value"], advantages[index]
    return advantages


def naive_turn_gae(turns: list[list[dict[str, Any]]], gamma: float, lam: float) -> list[float]:
    """The same where each turn (a list of actions) is one step; every action of a turn gets the turn's advantage."""
    advantages: list[float] = []
    next_value, next_advantage = 0.0, 0.0
    for turn in reversed(turns):
        earned = sum(token["reward"] for token in turn)
        value = turn[0]["value"]
        next_advantage = earned + gamma * next_value - value + gamma * lam * next_advantage
        next_value = value
        advantages = [next_advantage] * len(turn) + advantages
    return advantages


def naive_policy_loss(
    logprobs: list[float],
    old_logprobs: list[float],
    advantages: list[float],
    clip_low: float,
    clip_high: float,
    sampler_logprobs: list[float] | None = None,
    cap: float | None = None,
) -> float:
    """The mean clipped surrogate, one action after another."""
    total = 0.0
    for index, advantage in enumerate(advantages):
        ratio = math.exp(logprobs[index] - old_logprobs[index])
        clipped = min(max(ratio, 1 - clip_low), 1 + clip_high)
        term = -min(ratio * advantage, clipped * advantage)
        if cap is not None and sampler_logprobs is not None:
            term *= min(math.exp(old_logprobs[index] - sampler_logprobs[index]), cap)
        total += term
    return total / len(advantages)


def naive_value_loss(values: list[float], returns: list[float], old_values: list[float], clip: float | None) -> float:
    """The mean half squared error, clipped pessimistically where `clip` is given."""
    total = 0.0
    for value, target, old in zip(values, returns, old_values, strict=True):
        error = (value - target) ** 2
        if clip is not None:
            near = old + min(max(value - old, -clip), clip)
            error = max(error, (near - target) ** 2)
        total += 0.5 * error
    return total / len(values)


def _random_rollout(rng: random.Random) -> list[list[dict[str, Any]]]:
    """One to four segments of mixed observations and actions, at least one action each."""
    segments = []
    for _ in range(rng.randint(1, 4)):
        kinds = [rng.random() < 0.5 for _ in range(rng.randint(1, 20))] + [True]
        segments.append(
            [{"action": kind, "reward": rng.gauss(0, 1), "value": rng.gauss(0, 1) if kind else 100.0} for kind in kinds]
        )
    return segments


def _column(rollouts: list[list[list[dict[str, Any]]]], name: str) -> torch.Tensor:
    """[A] one field of every action, rollout after rollout."""
    tokens = (token for rollout in rollouts for segment in rollout for token in segment)
    return torch.tensor([token[name] for token in tokens if token["action"]], dtype=torch.float64)


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (1.0, 0.95), (0.99, 0.9), (0.9, 0.0), (0.0, 0.5)])
def test_gae_equals_the_oracle_over_many_rollouts_of_several_segments(gamma: float, lam: float) -> None:
    rng = random.Random(7)
    rollouts = [_random_rollout(rng) for _ in range(30)]
    lengths = torch.tensor([sum(t["action"] for segment in rollout for t in segment) for rollout in rollouts])
    ours = gae(_column(rollouts, "reward"), _column(rollouts, "value"), gamma=gamma, lam=lam, lengths=lengths)
    theirs = [a for rollout in rollouts for a in naive_gae(rollout, gamma, lam)]
    torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.97, 0.9), (0.9, 0.0)])
def test_turn_gae_equals_the_oracle(gamma: float, lam: float) -> None:
    rng = random.Random(8)
    rollouts = [
        [
            [{"reward": rng.gauss(0, 1), "value": rng.gauss(0, 1), "action": True} for _ in range(rng.randint(1, 6))]
            for _ in range(rng.randint(1, 5))
        ]
        for _ in range(20)
    ]
    turns = torch.tensor([k for rollout in rollouts for k, turn in enumerate(rollout) for _ in turn])
    lengths = torch.tensor([sum(map(len, rollout)) for rollout in rollouts])
    ours = turn_gae(
        _column(rollouts, "reward"), _column(rollouts, "value"), turns, gamma=gamma, lam=lam, lengths=lengths
    )
    theirs = [a for rollout in rollouts for a in naive_turn_gae(rollout, gamma, lam)]
    torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("cap", [None, 1.5])
def test_policy_loss_equals_the_oracle(cap: float | None) -> None:
    torch.manual_seed(0)
    logprobs, old, sampler = -torch.rand(3, 200, dtype=torch.float64)
    advantages = torch.randn(200, dtype=torch.float64)
    weights = None if cap is None else importance_weights(old, sampler, cap=cap)
    ours = token_mean(
        policy_loss(logprobs, old, advantages, clip_low=0.2, clip_high=0.28, weights=weights), num_actions=200
    )
    theirs = naive_policy_loss(logprobs.tolist(), old.tolist(), advantages.tolist(), 0.2, 0.28, sampler.tolist(), cap)
    assert float(ours) == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("clip", [None, 0.2])
def test_value_loss_equals_the_oracle(clip: float | None) -> None:
    torch.manual_seed(1)
    values, returns, old = torch.randn(3, 200, dtype=torch.float64)
    ours = token_mean(value_loss(values, returns, old_values=old, clip=clip), num_actions=200)
    assert float(ours) == pytest.approx(
        naive_value_loss(values.tolist(), returns.tolist(), old.tolist(), clip), abs=1e-6
    )
