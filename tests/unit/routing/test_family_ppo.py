"""A whole PPO step on each family: packs of several trajectories, routes replayed forward and backward."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from transformers import PreTrainedModel

from t1.routing.replay import capturing, routers
from t1.training.attention import attend_within_segments
from t1.training.config import PPOConfig
from t1.training.critic import Critic
from t1.training.forward import action_logprobs
from t1.training.packs import pack
from t1.training.ppo import PPOTrainer
from t1.types import Boundary, Case, RolloutId, Trajectory

Make = Callable[[str], PreTrainedModel]


@torch.no_grad()
def sampled(model: PreTrainedModel, member: int) -> Trajectory:
    """A trajectory of random tokens, scored and routed by the model itself, alone."""
    rng, size = np.random.default_rng(member), 12 + member
    zeros, mask = np.zeros(size, np.int32), np.arange(size) % 4 > 1
    mask[-1] = True
    logprobs, tokens = np.zeros(size, np.float32), rng.integers(0, 40, size).astype(np.int32)
    boundaries = (Boundary(0, Case.OPEN),)
    bare = Trajectory(RolloutId("t", 0, member), 0, tokens, mask, logprobs, zeros, zeros, None, boundaries)
    with capturing(model) as captured:
        logprobs[mask] = action_logprobs(model, pack([bare], max_tokens=99)[0]).numpy()
    rows = captured.routing().numpy()
    return Trajectory(RolloutId("t", 0, member), 0, tokens, mask, logprobs, zeros, zeros, rows, boundaries)


def test_a_step_learns_on_recorded_routes_without_a_gap(family: str, make_family: Make) -> None:
    model = make_family(family)
    attend_within_segments(model)
    rollouts = [((sampled(model, member),), member / 4) for member in range(5)]
    gates = [router.weight.detach().clone() for router in routers(model)]
    config = PPOConfig(critic_warmup_steps=0, num_minibatches=1, activation_checkpointing=True)
    metrics = PPOTrainer(model, Critic.from_policy(model), config).step(rollouts)
    assert metrics["gap"] < 1e-4 and metrics["gap_flipped"] == 0
    assert all(not torch.equal(old, router.weight) for old, router in zip(gates, routers(model), strict=True))
