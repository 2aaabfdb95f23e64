"""A run while the page shows it: its index, its findings, and what reading a rollout needs.

Boundary: joins the parts for the questions of the page; it knows nothing of HTTP.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from t1.config import load_config
from t1.errors import RunError, T1Error
from t1.rollouts.cost import FREE, Prices
from t1.rollouts.store import read_rollout
from t1.rollouts.token_stats import read_token_stats
from t1.types import Rollout, Trajectory
from t1.viewer import detail
from t1.viewer.columns import tokens_of
from t1.viewer.findings import Findings
from t1.viewer.index import Row, StepFile
from t1.viewer.pieces import Pieces
from t1.viewer.runs import Run

KEPT = 16
"""Rollouts that stay in memory after they were shown."""


class Shown:
    """One run, opened for reading."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.findings = Findings(run.path, run.index)
        self._read = lru_cache(maxsize=KEPT)(_read)

    @cached_property
    def pieces(self) -> Pieces:
        """How the run's tokens read."""
        return Pieces.of_run(self.run.path)

    @cached_property
    def prices(self) -> Prices:
        """What the run's configuration says that things cost."""
        try:
            return Prices(**load_config(self.run.path / "config.toml").cost.model_dump())
        except (T1Error, OSError):
            return FREE

    def steps(self) -> dict[str, Any]:
        """One line a file: how its rollouts ended."""
        self.findings.start()
        rules = self.findings.rules()
        steps = [_line(file, sum(row.key in rules for row in file.rows)) for file in self.run.index.steps()]
        return {"steps": steps, "audit": self.findings.progress()}

    def rollout(self, key: str) -> dict[str, Any]:
        """One rollout without its tokens, and its neighbours: the other members of its group."""
        row, rollout, segments = self._open(key)
        siblings = [
            {"key": other.key, "member": other.member, "outcome": other.outcome, "reward": other.reward}
            for file in self.run.index.steps()
            if file.step == row.step
            for other in file.rows
            if (other.task, other.group) == (row.task, row.group)
        ]
        return {
            **detail.describe(rollout, segments, self.prices),
            "row": {**asdict(row), "key": row.key},
            "prompt": detail.prompt_text(rollout, self.pieces),
            "tokenizer": self.pieces.known,
            "findings": self.findings.of(rollout, segments),
            "siblings": siblings,
        }

    def tokens(self, key: str, segment: int, start: int) -> dict[str, Any]:
        """Tokens of a segment from `start` on."""
        row, rollout, segments = self._open(key)
        if segment >= max(len(segments), 1):
            raise RunError(f"{key}: has {len(segments)} segments, none with index {segment}")
        file = self.run.path / "token_stats" / f"{row.step}.parquet"
        stats = read_token_stats(file, segments[segment]) if segments else None
        return tokens_of(rollout, segments, segment, self.pieces, stats=stats, start=start)

    def text(self, key: str, turn: int, name: str, *, raw: bool, start: int) -> dict[str, Any]:
        """An action or observation from `start` on, as a terminal shows it or `raw`."""
        _, rollout, _ = self._open(key)
        if turn >= len(rollout.turns):
            raise RunError(f"{key}: has {len(rollout.turns)} turns, none with index {turn}")
        return detail.whole(getattr(rollout.turns[turn], name), raw=raw, start=start)

    def _open(self, key: str) -> tuple[Row, Rollout, list[Trajectory]]:
        self.findings.start()
        found = self.run.index.find(key)
        if found is None:
            raise RunError(f"no rollout {key} in {self.run.name}; it may have been written again by a resumed run")
        path, row = found
        rollout, segments = self._read(path, row.place, path.stat().st_mtime_ns)
        return row, rollout, segments


def _read(path: Path, place: int, changed: int) -> tuple[Rollout, list[Trajectory]]:
    """One rollout; `changed` is there so that a file that was written again is read again."""
    return read_rollout(path, place)


def _line(file: StepFile, num_findings: int) -> dict[str, Any]:
    """How the rollouts of a file ended."""
    rows = file.rows
    rewards = [row.reward for row in rows if row.reward is not None]
    count = max(len(rows), 1)
    return {
        "step": file.step,
        "error": file.error,
        "rollouts": len(rows),
        "outcomes": {name: sum(row.outcome == name for row in rows) for name in OUTCOMES},
        "reward": sum(rewards) / len(rewards) if rewards else None,
        "turns": sum(row.num_turns for row in rows) / count,
        "sampled": sum(row.num_sampled for row in rows),
        "wall_s": sum(row.wall_s for row in rows) / count,
        "untrained": sum(row.num_segments == 0 for row in rows),
        "findings": num_findings,
    }


OUTCOMES = ("solved", "unsolved", "tampered", "failed")
