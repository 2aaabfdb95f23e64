"""How a trainer's processes divide the work: the same ranks, seen along three axes.

    data      W / context   each draws its own packs
    context   context       each feeds its own rows of one pack's sequences
    experts   experts       each owns its own experts of every MoE layer; a second view of the same W ranks

Dense weights, their gradients and their optimizer state are sharded over all W ranks; an expert's over the
W / experts ranks that hold it. Boundary: arithmetic, without torch, so that a plan is made where no GPU is.
"""

from __future__ import annotations

from dataclasses import dataclass

from t1.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of the axes."""

    world: int = 1
    """W, processes of one group: one a GPU."""
    experts: int = 1
    """Ranks that share the experts of a MoE layer."""
    context: int = 1
    """Ranks that share the rows of a pack."""

    def __post_init__(self) -> None:
        for name in ("world", "experts", "context"):
            if getattr(self, name) < 1:
                raise ConfigError(f"layout: {name} is {getattr(self, name)}, expected at least 1")
        for name in ("experts", "context"):
            if self.world % getattr(self, name):
                raise ConfigError(
                    f"layout: {name} = {getattr(self, name)} does not divide {self.world} ranks; "
                    f"choose one of {', '.join(map(str, divisors(self.world)))}"
                )

    @property
    def data(self) -> int:
        """Ranks (or groups of `context` ranks) with packs of their own."""
        return self.world // self.context

    @property
    def replicas(self) -> int:
        """Ranks over which one expert is sharded."""
        return self.world // self.experts


def divisors(number: int) -> list[int]:
    """Every divisor, smallest first."""
    return [d for d in range(1, number + 1) if number % d == 0]
