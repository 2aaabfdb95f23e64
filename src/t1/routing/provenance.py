"""Where each routing row comes from: the forward that captured it, and the weights that it ran on.

Nothing is stored for it: a turn's versions, its prompt, and how much of that was cached say it all. Boundary: arrays of
one trajectory and its turns, numpy only. Axes: T tokens of a trajectory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from t1.types import IntArray, Trajectory, Turn


class Captured(IntEnum):
    """Which kind of forward fed a token first."""

    PREFILL = 0
    """With others of its prompt: context, and the last sampled token of the turn before."""
    DECODE = 1
    """Alone, right after it was sampled."""
    CACHED = 2
    """An earlier request's, whose keys, values and rows the engine kept: the shared beginning of many prompts."""


@dataclass(frozen=True, slots=True, eq=False)
class Provenance:
    """Of every row of a trajectory."""

    captured: npt.NDArray[np.uint8]
    """[T−1] a Captured."""
    version: IntArray
    """[T−1] of the weights: those that sampled what follows the token."""

    def share(self, kind: Captured) -> float:
        """How many of the rows were captured so; 0 without rows."""
        return float((self.captured == kind).mean()) if len(self.captured) else 0.0


def provenance(trajectory: Trajectory, turns: Sequence[Turn]) -> Provenance:
    """Of the rows of `trajectory`; `turns` are all those of its rollout.

    A token that was sampled is fed alone by the step that samples the next one. Where the weights changed in between,
    the request was interrupted: it goes on with a prefill under the new ones, and so it does in the next turn.
    """
    mask, turn, version = trajectory.mask, trajectory.turn, trajectory.version
    decoded = mask[:-1] & mask[1:] & (turn[:-1] == turn[1:]) & (version[:-1] == version[1:])
    captured = np.where(decoded, Captured.DECODE, Captured.PREFILL).astype(np.uint8)
    for index in np.unique(turn):
        context = np.flatnonzero(~mask & (turn == index))
        prompt, cached = turns[index].prompt, turns[index].timings.cached_tokens
        first = len(prompt) - len(context)  # the place of its new context in the prompt
        captured[context[: max(0, cached - first)]] = Captured.CACHED
    return Provenance(captured, version[1:])
