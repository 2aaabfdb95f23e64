"""Which finished rollouts a step trains on: pure rules over who is running and who has finished.

More trials are launched than a batch needs, since the slowest would hold up everyone. What becomes of the slow ones is
the policy's whole difference: `first` throws them away (T1's rule, and its bias: the hardest trials are the slowest),
`carry` admits them to a later step while they are young enough, `all` waits. Boundary: no clocks, no tasks, no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Admission(StrEnum):
    """What happens to the trials that are not finished when a batch is full."""

    CARRY = "carry"
    """They go on and are admitted later, within `max_lag`: nothing is lost."""
    FIRST = "first"
    """They are stopped and dropped. Biased towards what is quickly done; the bias meter shows by how much."""
    ALL = "all"
    """They are waited for."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One launched trial as the rules see it."""

    position: int
    """Where it stands in the stream of launches."""
    version: int
    """Weights version when it was launched."""
    finished: int | None = None
    """Its place in the order of completion; None while it runs."""


@dataclass(frozen=True, slots=True)
class Rule:
    """An admission policy with its numbers."""

    admission: Admission
    num_needed: int
    """Rollouts of a step."""
    max_lag: int
    """Steps that a carried rollout may be older than the weights that learn from it."""
    oversample: float = 1.0
    """Trials launched for every one needed."""

    def __post_init__(self) -> None:
        if self.num_needed < 1 or self.max_lag < 0 or not self.oversample >= 1:
            raise ValueError(f"admission: needs num_needed ≥ 1, max_lag ≥ 0 and oversample ≥ 1, got {self}")

    @property
    def num_launched(self) -> int:
        """Trials that are out at once while a batch fills."""
        return math.ceil(self.num_needed * self.oversample)

    def choose(self, trials: Sequence[Trial], version: int) -> list[Trial] | None:
        """The batch of the step at weights `version`, in launch order, or None: wait for more.

        `carry` takes those that would be too old for the next step first, and waits for them if it must.
        """
        if self.admission is Admission.ALL:
            chosen = sorted(trials, key=_position)[: self.num_launched]
            return chosen if all(t.finished is not None for t in chosen) else None
        finished = sorted((t for t in trials if t.finished is not None), key=_completion)
        if len(finished) < self.num_needed:
            return None
        if self.admission is Admission.FIRST:
            return sorted(finished[: self.num_needed], key=_position)
        last_call = [t for t in trials if version - t.version >= self.max_lag]
        if any(t.finished is None for t in last_call):
            return None
        others = [t for t in finished if version - t.version < self.max_lag]
        return sorted([*last_call, *others[: max(0, self.num_needed - len(last_call))]], key=_position)


def _position(trial: Trial) -> int:
    return trial.position


def _completion(trial: Trial) -> int:
    return -1 if trial.finished is None else trial.finished
