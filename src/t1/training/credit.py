"""What a PPO step said of every action before it learned: kept until the next step, for whoever wants to look.

Boundary: flat tensors over actions and where each trajectory's lie in them; no model, and no rollouts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from t1.rollouts.token_stats import TokenStats, tokens_crc
from t1.types import Trajectory


@dataclass(frozen=True, slots=True, eq=False)
class Credit:
    """Axes: **R** rollouts, **A** their actions, as in the step's `Batch`."""

    slots: tuple[tuple[npt.NDArray[np.int64], ...], ...]
    """[R] for each trajectory: int64[its actions], where they lie in the arrays below."""
    logprobs: Tensor
    """float32[A] of the policy that the step began with, routes replayed."""
    values: Tensor
    """float32[A]"""
    advantages: Tensor
    """float32[A] as the policy's loss saw them."""
    returns: Tensor
    """float32[A]"""

    def of(self, trajectories: Sequence[Sequence[Trajectory]]) -> Iterator[TokenStats]:
        """Each trajectory's share; `trajectories`: [R] those that the step trained on, in its order."""
        columns = {
            name: getattr(self, name).float().numpy() for name in ("logprobs", "values", "advantages", "returns")
        }
        for segments, places in zip(trajectories, self.slots, strict=True):
            for trajectory, slots in zip(segments, places, strict=True):
                shares = {name: column[slots] for name, column in columns.items()}
                yield TokenStats(trajectory.rollout, trajectory.segment, tokens_crc(trajectory), **shares)
