"""How far the rollouts that were trained on differ from those that were started.

An admission rule that drops slow trials drops hard ones, and no metric over the admitted shows it. The meter keeps
both sides: of a dropped trial it knows how long it had run and which task it was. Boundary: counts and means; it
never decides who is admitted.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Side:
    """Running sums over trials."""

    count: int = 0
    duration_s: float = 0.0
    turns: float = 0.0
    num_turned: int = 0
    solved: float = 0.0
    num_outcomes: int = 0
    hardness: float = 0.0
    num_known: int = 0

    def add(self, duration_s: float, turns: int | None, solved: bool | None, hardness: float | None) -> None:
        """One trial; what is unknown of it is not counted."""
        self.count += 1
        self.duration_s += duration_s
        if turns is not None:
            self.turns += turns
            self.num_turned += 1
        if solved is not None:
            self.solved += solved
            self.num_outcomes += 1
        if hardness is not None:
            self.hardness += hardness
            self.num_known += 1


@dataclass(slots=True)
class BiasMeter:
    """Sums since the run began. Trials still under way count on neither side."""

    _admitted: _Side = field(default_factory=_Side)
    _settled: _Side = field(default_factory=_Side)
    _outcomes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    """Task → (solved, tried) over all its finished trials: how hard it has proved to be."""

    def admitted(self, task: str, *, duration_s: float, turns: int, solved: bool) -> None:
        """A trial was finished and trained on."""
        hardness = self._hardness(task)
        for side in (self._admitted, self._settled):
            side.add(duration_s, turns, solved, hardness)
        self._note(task, solved)

    def dropped(self, task: str, *, duration_s: float, turns: int | None = None, solved: bool | None = None) -> None:
        """A trial was started and not trained on. `duration_s`: as far as it came; the others only if it ended."""
        self._settled.add(duration_s, turns, solved, self._hardness(task))
        if solved is not None:
            self._note(task, solved)

    def metrics(self) -> dict[str, float]:
        """The bias so far; all zero where nothing was dropped.

        `admitted_share`: of the settled trials. `bias_duration`, `bias_turns`: mean of the admitted over mean of all
        settled, minus 1; a dropped trial counts with the time that it had run, so that the truth is at least as far
        from zero, and with its turns only if it had ended.
        `bias_task`: mean failure rate that the admitted trials' tasks had shown before, minus the same over all
        settled; below zero means that hard tasks are left out. `bias_outcome`: solve rate of the admitted minus that
        of every trial that ended.
        """
        one, every = self._admitted, self._settled
        return {
            "admitted_share": one.count / every.count if every.count else 1.0,
            "bias_duration": _over(_mean(one.duration_s, one.count), _mean(every.duration_s, every.count)),
            "bias_turns": _over(_mean(one.turns, one.num_turned), _mean(every.turns, every.num_turned)),
            "bias_task": _mean(one.hardness, one.num_known) - _mean(every.hardness, every.num_known),
            "bias_outcome": _mean(one.solved, one.num_outcomes) - _mean(every.solved, every.num_outcomes),
        }

    def _hardness(self, task: str) -> float | None:
        """Share of the task's earlier trials that failed, or None before the first."""
        solved, tried = self._outcomes.get(task, (0, 0))
        return 1 - solved / tried if tried else None

    def _note(self, task: str, solved: bool) -> None:
        record = self._outcomes[task]
        record[0] += solved
        record[1] += 1


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0


def _over(one: float, other: float) -> float:
    return one / other - 1 if other else 0.0
