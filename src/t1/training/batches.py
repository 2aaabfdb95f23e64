"""One PPO step's experience as flat arrays over its actions, rollout after rollout, each in time order.

Boundary: numbers that the rollouts brought; no model has seen them yet. Axes: **R** rollouts, **A** their actions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from t1.training.packs import Packs
from t1.training.parallel.ranks import ALONE, Ranks
from t1.types import Trajectory

Rewarded: TypeAlias = tuple[Sequence[Trajectory], float]
"""The segments of one rollout, and its reward."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """What one step trains on."""

    segments: tuple[tuple[Trajectory, ...], ...]
    """[R] trajectories of each rollout."""
    slots: tuple[tuple[npt.NDArray[np.int64], ...], ...]
    """[R] for each trajectory: int64[its actions], where they lie in the arrays below."""
    lengths: Tensor
    """int64[R] actions of each rollout; they add up to A."""
    rewards: Tensor
    """float32[A] the rollout's reward at its last action, 0 elsewhere."""
    turns: Tensor
    """int64[A] the turn that sampled each action."""
    sampler_logprobs: Tensor
    """float32[A]"""

    @classmethod
    def of(cls, rollouts: Sequence[Rewarded]) -> Batch:
        """Chain each rollout's actions in time order: by turn, then by position, across its segments."""
        if not rollouts:
            raise ValueError("batch: expected at least one rollout, got none")
        slots, turns, logprobs, lengths, offset = [], [], [], [], 0
        for segments, reward in rollouts:
            if not segments or not math.isfinite(reward):
                raise ValueError(f"batch: expected segments and a finite reward, got {len(segments)} and {reward}")
            turn = np.concatenate([t.turn[t.mask] for t in segments])
            order = np.argsort(turn, kind="stable")
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            bounds = np.cumsum([t.num_actions for t in segments])[:-1]
            slots.append(tuple(np.split(rank + offset, bounds)))
            turns.append(turn[order])
            logprobs.append(np.concatenate([t.logprobs[t.mask] for t in segments])[order])
            lengths.append(len(order))
            offset += len(order)
        rewards = torch.zeros(offset)
        rewards[np.cumsum(lengths) - 1] = torch.tensor([reward for _, reward in rollouts], dtype=torch.float32)
        return cls(
            segments=tuple(tuple(segments) for segments, _ in rollouts),
            slots=tuple(slots),
            lengths=torch.tensor(lengths),
            rewards=rewards,
            turns=torch.from_numpy(np.concatenate(turns).astype(np.int64)),
            sampler_logprobs=torch.from_numpy(np.concatenate(logprobs)),
        )

    @property
    def num_actions(self) -> int:
        """A"""
        return len(self.rewards)

    @property
    def num_tokens(self) -> int:
        """Tokens of all trajectories."""
        return sum(len(t.tokens) for segments in self.segments for t in segments)

    @property
    def returns(self) -> Tensor:
        """float32[R] each rollout's reward."""
        return self.rewards[self.lengths.cumsum(0) - 1]

    @property
    def groups(self) -> Tensor:
        """int64[R] which rollouts are of the same group of the same task, counted from 0 in order of appearance."""
        numbers: dict[tuple[str, int], int] = {}
        owners = [segments[0].rollout for segments in self.segments]
        return torch.tensor([numbers.setdefault((owner.task, owner.group), len(numbers)) for owner in owners])

    @property
    def mean_reward(self) -> float:
        """The reward of an action's rollout, on average over actions."""
        return float((self.returns * self.lengths).sum() / self.num_actions)

    def packs(self, rollouts: Sequence[int], *, max_tokens: int, ranks: Ranks = ALONE) -> Packs:
        """This rank's packs of some of the rollouts (by index), whose slots point into this batch."""
        trajectories = [t for r in rollouts for t in self.segments[r]]
        return ranks.packs(trajectories, [s for r in rollouts for s in self.slots[r]], max_tokens=max_tokens)

    def minibatches(
        self, num_minibatches: int, *, max_tokens: int, generator: torch.Generator, ranks: Ranks = ALONE
    ) -> list[Packs]:
        """A random split of whole rollouts into at most `num_minibatches` shares, each as this rank's packs of it.

        Ranks whose generators agree draw the same split.
        """
        order = torch.randperm(len(self.segments), generator=generator).tolist()
        shares = np.array_split(np.array(order), min(num_minibatches, len(order)))
        return [self.packs(share.tolist(), max_tokens=max_tokens, ranks=ranks) for share in shares]
