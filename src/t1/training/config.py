"""Settings of the trainers. Free of torch, so that a configuration can be read and checked without it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class SFTConfig(BaseModel):
    """Supervised fine-tuning: mean negative log-likelihood over action tokens, AdamW, constant learning rate."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    num_demonstrations: int = Field(300, ge=1)
    """Training tasks whose reference solution is played as a demonstration."""
    lr: float = Field(2e-3, gt=0)
    steps: int = Field(150, ge=0)
    batch_size: int = Field(32, ge=1)
    """Trajectories per step."""
    max_pack_tokens: int = Field(4096, ge=2)
    grad_clip: float = Field(1.0, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    seed: int = Field(0, ge=0)


class PPOConfig(BaseModel):
    """PPO with a separate critic. No KL, entropy bonus, length shaping or load-balancing loss (see docs)."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    lr: float = Field(4e-4, gt=0)
    critic_lr: float = Field(1e-3, gt=0)
    clip_low: float = Field(0.2, gt=0)
    clip_high: float = Field(0.28, gt=0)
    """Asymmetric clipping (DAPO, arXiv 2503.14476)."""
    value_clip: float | None = Field(None, gt=0)
    gamma: float = Field(1.0, gt=0, le=1)
    lam_policy: float = Field(0.99, ge=0, le=1)
    lam_critic: float = Field(1.0, ge=0, le=1)
    """Decoupled GAE (VC-PPO, arXiv 2503.01491)."""
    credit: Literal["token", "turn"] = "token"
    """What one step of GAE is: an action token, or a whole turn (Turn-PPO, arXiv 2512.17008)."""
    epochs: int = Field(1, ge=1)
    num_minibatches: int = Field(2, ge=1)
    max_pack_tokens: int = Field(4096, ge=2)
    grad_clip: float = Field(1.0, gt=0)
    critic_warmup_steps: int = Field(2, ge=0)
    """Steps that train only the critic, before the policy moves."""
    baseline: Literal["critic", "group"] = "critic"
    """What a return is compared with: the critic's value, or the mean reward of the step's rollouts of the same group
    (`rollouts.group_size` ≥ 2). Without a critic nothing warms up, and λ has no say."""
    whiten: bool = True
    """Advantages of a batch get mean 0 and deviation 1."""
    importance_weights: Literal["lagging", "all", "off"] = "lagging"
    """Which actions count by exp(old_logprobs − sampler_logprobs): those that earlier weights sampled (so a step whose
    rollouts are all fresh has none), all of them, or none. docs/ablations.md has runs with and without."""
    importance_cap: float = Field(2.0, gt=0)
    """Where those weights are truncated (Ionides 2008)."""
    replay_routing: bool = True
    """Route a Mixture-of-Experts policy as its sampler was routed (arXiv 2510.11370). Off only to measure the gap."""
    gap_alarm: float = Field(0.05, gt=0)
    """Mean |log π_trainer − log π_sampler| above which a step says what kind of mismatch it looks like."""
    activation_checkpointing: bool = False
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Of matrix products and activations where nets are sharded over ranks; weights, moments and sums of gradients keep
    the dtype that the checkpoint was loaded in."""
    weight_decay: float = Field(0.0, ge=0)
    seed: int = Field(0, ge=0)
