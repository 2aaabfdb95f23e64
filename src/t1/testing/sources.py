"""A Source that has its rollouts already. Held to the same contract test as the real one."""

from __future__ import annotations

from collections.abc import Sequence

from t1.types import Rollout


class ListSource:
    """The rollouts of step n are the n-th entry of a list."""

    def __init__(self, steps: Sequence[Sequence[Rollout]]) -> None:
        self._steps = tuple(tuple(rollouts) for rollouts in steps)
        self.closed = False

    def next(self, step: int) -> Sequence[Rollout]:
        """See `protocols.Source.next`."""
        return self._steps[step]

    def close(self) -> None:
        """Note it."""
        self.closed = True
