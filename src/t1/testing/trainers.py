"""A Trainer that learns nothing and counts everything. Held to the same contract test as the real one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t1.types import Trajectory


class CountingTrainer:
    """Its one weight is the number of steps that it took."""

    def __init__(self) -> None:
        self.num_steps = 0
        self.seen: list[list[float]] = []
        """The rewards of every step."""

    def step(self, rollouts: Sequence[tuple[Sequence[Trajectory], float]]) -> Mapping[str, float]:
        """See `protocols.Trainer.step`."""
        if not rollouts:
            raise ValueError("rollouts: expected at least one, got none")
        self.num_steps += 1
        self.seen.append([reward for _, reward in rollouts])
        return {"num_actions": float(sum(t.num_actions for segments, _ in rollouts for t in segments))}

    def save(self, path: Path) -> None:
        """See `protocols.Trainer.save`."""
        path.mkdir(parents=True)
        (path / "steps.json").write_text(json.dumps(self.num_steps), encoding="utf-8")

    def load(self, path: Path) -> None:
        """See `protocols.Trainer.load`."""
        self.num_steps = json.loads((path / "steps.json").read_text(encoding="utf-8"))

    def weights(self) -> Mapping[str, Any]:
        """See `protocols.Trainer.weights`."""
        return {"num_steps": self.num_steps}
