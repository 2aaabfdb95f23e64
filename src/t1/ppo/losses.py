"""PPO's losses, one number per action token, and the one way to add them up.

Boundary: no KL term, no entropy bonus, no length shaping and no load-balancing loss exist here. Logits, models and
packs are unknown: every array is [A], one entry an action.
"""

from __future__ import annotations

import torch
from torch import Tensor


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    weights: Tensor | None = None,
) -> Tensor:
    """Clipped surrogate [A] (PPO, arXiv 1707.06347) with the asymmetric range of DAPO (arXiv 2503.14476).

        ρ_i = exp(logprob_i − old_logprob_i)
        L_i = −w_i · min(ρ_i Â_i, clip(ρ_i, 1 − clip_low, 1 + clip_high) Â_i)

    Only `logprobs` carries a gradient. `weights` [A] (see `importance_weights`) are 1 when None.
    """
    ratio = (logprobs - old_logprobs).exp()
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss = -torch.minimum(ratio * advantages, clipped * advantages)
    return loss if weights is None else loss * weights


def importance_weights(old_logprobs: Tensor, sampler_logprobs: Tensor, *, cap: float) -> Tensor:
    """Truncated importance weights [A] for the gap between engine and trainer: w_i = min(π_old / π_sampler, cap).

    Ionides 2008; for this gap: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
    training". They carry no gradient.
    """
    return (old_logprobs - sampler_logprobs).exp().clamp(max=cap).detach()


def value_loss(
    values: Tensor, returns: Tensor, *, old_values: Tensor | None = None, clip: float | None = None
) -> Tensor:
    """Half the squared error [A] of the critic, L_i = ½ (V_i − R_i)²; with `clip`, PPO's pessimistic form.

    L_i = ½ max((V_i − R_i)², (clip(V_i, V_old,i ± clip) − R_i)²)
    """
    error = (values - returns).square()
    if clip is not None:
        if old_values is None:
            raise ValueError("value_loss: a clip needs the old values [A], got None")
        near = old_values + (values - old_values).clamp(-clip, clip)
        error = torch.maximum(error, (near - returns).square())
    return 0.5 * error


def token_mean(loss: Tensor, *, num_actions: int) -> Tensor:
    """Σ_i L_i / num_actions, a scalar.

    `num_actions` counts the whole minibatch, not this pack: however the tokens are packed, and into however many
    segments a rollout was split, each weighs the same (cases P4 and P5).
    """
    if num_actions < max(1, len(loss)):
        raise ValueError(f"num_actions: expected the count of the whole minibatch, ≥ {len(loss)}, got {num_actions}")
    return loss.sum() / num_actions
