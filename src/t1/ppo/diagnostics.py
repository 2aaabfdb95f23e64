"""What a step's numbers say about its health. Metrics only: nothing here carries a gradient or enters a loss."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def gap(old_logprobs: Tensor, sampler_logprobs: Tensor) -> dict[str, float]:
    """How far the trainer's distribution is from the one that was sampled, over the actions [A].

    `gap`: mean |log π_old − log π_sampler|, the mask-weighted train-to-inference gap; `gap_p99`, `gap_max` likewise.
    With r = π_old / π_sampler, `gap_k3` = mean(r − 1 − log r) estimates KL(sampler ‖ trainer) and `gap_k3_reverse` =
    mean(r log r − r + 1) KL(trainer ‖ sampler), from the sampler's tokens (Schulman, "Approximating KL divergence").
    `gap_ess`: the effective sample share (Σ r)² / (A Σ r²), 1 without a gap.
    """
    log_ratio = old_logprobs.double() - sampler_logprobs.double()
    ratio, distance = log_ratio.exp(), log_ratio.abs()
    return {
        "gap": float(distance.mean()),
        "gap_p99": float(_quantile(distance, 0.99)),
        "gap_max": float(distance.max()),
        "gap_k3": float((ratio - 1 - log_ratio).mean()),
        "gap_k3_reverse": float((ratio * log_ratio - ratio + 1).mean()),
        "gap_ess": float(ratio.sum().square() / (len(ratio) * ratio.square().sum())),
    }


@torch.no_grad()
def policy_drift(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float
) -> dict[str, float]:
    """How far the update has moved the policy, over the actions [A].

    `approx_kl`: k3 estimate of KL(old ‖ new); `clip_fraction`: the share of actions whose gradient the clip took away
    (ratio above the range with Â > 0, or below with Â < 0); `ratio_mean`, `ratio_max`.
    """
    log_ratio = logprobs.double() - old_logprobs.double()
    ratio = log_ratio.exp()
    clipped = ((ratio > 1 + clip_high) & (advantages > 0)) | ((ratio < 1 - clip_low) & (advantages < 0))
    return {
        "approx_kl": float((ratio - 1 - log_ratio).mean()),
        "clip_fraction": float(clipped.double().mean()),
        "ratio_mean": float(ratio.mean()),
        "ratio_max": float(ratio.max()),
    }


@torch.no_grad()
def explained_variance(values: Tensor, returns: Tensor) -> float:
    """1 − Var(R − V) / Var(R) over the actions [A]: 1 is a perfect critic, 0 one that says a constant.

    Constant returns have no variance to explain: 0.
    """
    variance = returns.double().var(correction=0)
    if float(variance) == 0.0:
        return 0.0
    return float(1 - (returns.double() - values.double()).var(correction=0) / variance)


@torch.no_grad()
def entropy(logits: Tensor) -> Tensor:
    """H [A] in nats of the distributions `logits` [A, vocabulary]. A metric, never a bonus."""
    log_probabilities = logits.float().log_softmax(-1)
    return -(log_probabilities.exp() * log_probabilities).sum(-1)


def _quantile(array: Tensor, share: float) -> Tensor:
    """The smallest entry that `share` of `array` [A] does not exceed (any A; torch.quantile stops at 16 million)."""
    rank = max(1, min(len(array), round(share * len(array))))
    return array.kthvalue(rank).values
