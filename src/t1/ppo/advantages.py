"""Generalised advantage estimation over action tokens.

Boundary: nothing here learns of observation tokens. Every array holds the *actions* of one or more rollouts, each
rollout's in time order and rollouts one after another, so that a token which the policy did not sample has no value, no
reward and no decay (cases P1 and P2). A rollout that was split into segments is one chain.
"""

from __future__ import annotations

import torch
from torch import Tensor


def gae(
    rewards: Tensor, values: Tensor, *, gamma: float = 1.0, lam: float = 1.0, lengths: Tensor | None = None
) -> Tensor:
    """Advantages [A] of each action (Schulman et al., arXiv 1506.02438).

        δ_i = r_i + γ V_{i+1} − V_i
        A_i = δ_i + γλ A_{i+1}          V and A are 0 after the last action of a rollout

    `rewards` [A]: what each action earned; `values` [A]: V of the state before it. `lengths` [R]: how many actions each
    rollout has (default: one rollout). Computed in float64, returned in the dtype of `values`. The targets of a critic
    are `gae(...) + values`; with another λ for them than for the policy this is the decoupled GAE of VC-PPO
    (arXiv 2503.01491).
    """
    ends = _ends(values, lengths)
    _check_alike(rewards, values)
    exact_values = values.double()
    after = torch.where(ends, 0.0, exact_values.roll(-1))
    deltas = rewards.double() + gamma * after - exact_values
    return _discounted_sum(deltas, ends, gamma * lam).to(values.dtype)


def turn_gae(
    rewards: Tensor,
    values: Tensor,
    turns: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    lengths: Tensor | None = None,
) -> Tensor:
    """Advantages [A] where a whole turn is one step (Turn-PPO, arXiv 2512.17008): its tokens share one advantage.

    Turn k is worth V_k = the value before its first token and earns r_k = the sum of its tokens' rewards; then `gae`
    over turns. `turns` [A]: the turn that sampled each action; only changes of it matter. Shapes else as in `gae`.
    """
    ends = _ends(values, lengths)
    _check_alike(rewards, values)
    _check_alike(turns, values)
    if len(values) == 0:
        return values.clone()
    last_of_turn = ends | (turns != turns.roll(-1))
    first_of_turn = last_of_turn.roll(1)
    first_of_turn[0] = True
    step = first_of_turn.long().cumsum(0) - 1
    num_steps = int(step[-1]) + 1
    turn_rewards = torch.zeros(num_steps, dtype=torch.float64, device=values.device)
    turn_rewards.index_add_(0, step, rewards.double())
    bounds = torch.nn.functional.pad(step[ends] + 1, (1, 0))
    advantages = gae(
        turn_rewards, values[first_of_turn].double(), gamma=gamma, lam=lam, lengths=bounds[1:] - bounds[:-1]
    )
    return advantages[step].to(values.dtype)


def group_advantages(returns: Tensor, groups: Tensor) -> Tensor:
    """Advantages [R] of whole rollouts without a critic: A_r = R_r − mean of R over the rollouts of r's group.

    The group's mean is the baseline of GRPO (arXiv 2402.03300), without its division by the group's deviation, which
    favours easy and hard tasks (Dr. GRPO, arXiv 2503.20783). `returns` [R], `groups` int64[R] from 0. A rollout that is
    alone in its group has nothing to be compared with: 0.
    """
    _check_alike(groups, returns)
    exact = returns.double()
    sums = torch.zeros(len(returns), dtype=torch.float64, device=returns.device).index_add_(0, groups, exact)
    counts = torch.bincount(groups, minlength=len(returns))
    return (exact - sums[groups] / counts[groups]).to(returns.dtype)


def whiten(advantages: Tensor, *, eps: float = 1e-8) -> Tensor:
    """Advantages [A] with mean 0 and standard deviation 1 over the batch: Â = (A − mean A) / (std A + ε).

    A constant batch becomes zeros. The mean is over tokens, so the sign of one action's advantage depends on the batch.
    """
    exact = advantages.double()
    centred = exact - exact.mean()
    return (centred / (centred.square().mean().sqrt() + eps)).to(advantages.dtype)


def _ends(values: Tensor, lengths: Tensor | None) -> Tensor:
    """[A] True at the last action of each rollout; refuses lengths that do not add up to A."""
    ends = torch.zeros(len(values), dtype=torch.bool, device=values.device)
    if lengths is None:
        ends[-1:] = True
        return ends
    if int(lengths.sum()) != len(values) or bool((lengths < 1).any()):
        raise ValueError(f"lengths: expected positive counts that add up to {len(values)}, got {lengths.tolist()}")
    ends[lengths.to(values.device).cumsum(0) - 1] = True
    return ends


def _check_alike(array: Tensor, values: Tensor) -> None:
    """Refuse two arrays that do not describe the same actions."""
    if array.ndim != 1 or array.shape != values.shape:
        raise ValueError(f"expected [{len(values)}] as the values have, got {list(array.shape)}")


def _discounted_sum(deltas: Tensor, ends: Tensor, decay: float) -> Tensor:
    """S [A] with S_i = δ_i + decay · S_{i+1} within a rollout, by doubling: log₂ A vectorised steps instead of A.

    After step k, S_i is the sum of the first 2^k terms of its chain.
    """
    size = len(deltas)
    if size == 0 or decay == 0.0:
        return deltas
    position = torch.arange(size, device=deltas.device)
    ends_at = torch.where(ends, position, size).flip(0).cummin(0).values.flip(0)
    room = ends_at - position
    longest = int(room.max())
    total, reach, weight = deltas, 1, decay
    while reach <= longest:
        shifted = torch.where(room[:-reach] >= reach, total[reach:], 0.0)
        total = torch.cat([total[:-reach] + weight * shifted, total[-reach:]])
        reach, weight = reach * 2, weight * weight
    return total
