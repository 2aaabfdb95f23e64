"""What the auditor finds in every stored rollout, gathered file by file in the background.

A rollout that was trained on is judged by its stored trajectories; one that was not is assembled again, so that what
kept it out is seen. Boundary: asks `t1.tito` and `t1.training.experience`; it judges nothing itself.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t1.errors import T1Error
from t1.rollouts.store import read_step
from t1.tito import audit
from t1.tito.audit_rules import RULES
from t1.training.experience import prepare
from t1.training.offline_audit import PolicyFacts, policy_facts
from t1.types import Finding, Rollout, RolloutId, Trajectory
from t1.viewer.index import RunIndex
from t1.viewer.screen import visible

LOG = logging.getLogger(__name__)
PAUSE_S = 0.02
"""Between two files, so that the page's own questions are answered in between."""
LOOK_AGAIN_S = 5.0
"""Between two looks for new files."""


@dataclass(slots=True)
class Findings:
    """Findings of one run by the key of their rollout; filled while the page is open."""

    path: Path
    index: RunIndex
    _by_step: dict[str, dict[str, tuple[Finding, ...]]] = field(default_factory=dict)
    _signatures: dict[str, tuple[int, int]] = field(default_factory=dict)
    _facts: PolicyFacts | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin in the background. Safe to call again."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name=f"t1 view {self.path.name}", daemon=True)
            self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End after the file at hand."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def rules(self) -> Mapping[str, Sequence[str]]:
        """The rules that each rollout broke, by key."""
        return {
            key: [finding.rule for finding in found]
            for by_key in list(self._by_step.values())
            for key, found in by_key.items()
        }

    def progress(self) -> dict[str, int]:
        """How many files are judged, of how many."""
        return {"audited": len(self._signatures), "files": len(self.index.files())}

    def of(self, rollout: Rollout, segments: Sequence[Trajectory]) -> list[dict[str, Any]]:
        """The findings of one rollout, with what each rule means and what to do."""
        return [
            {
                "rule": finding.rule,
                "severity": str(finding.severity),
                "where": finding.where,
                "message": visible(finding.message),
                "meaning": RULES[finding.rule].meaning if finding.rule in RULES else "",
                "remedy": RULES[finding.rule].remedy if finding.rule in RULES else "",
            }
            for finding in self._judge(rollout, segments)
        ]

    def gather(self) -> bool:
        """Judge the next file that is new or has changed; False when there is none."""
        for file in self.index.steps():
            if self._stop.is_set() or self._signatures.get(file.step) == file.signature:
                continue
            self._by_step[file.step] = {} if file.error else self._judge_file(file.step)
            self._signatures[file.step] = file.signature
            return True
        return False

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                wait = PAUSE_S if self.gather() else LOOK_AGAIN_S
            except Exception:  # the page goes on without findings
                LOG.exception("%s: the audit stopped", self.path)
                return
            self._stop.wait(wait)

    def _judge_file(self, step: str) -> dict[str, tuple[Finding, ...]]:
        try:
            rollouts, trajectories = read_step(self.index.folder / f"{step}.parquet")
        except T1Error:
            return {}
        segments: defaultdict[RolloutId, list[Trajectory]] = defaultdict(list)
        for trajectory in trajectories:
            segments[trajectory.rollout].append(trajectory)
        judged = {}
        for rollout in rollouts:
            if self._stop.is_set():
                break
            if found := self._judge(rollout, segments[rollout.id]):
                judged[f"{step}/{rollout.id.group}/{rollout.id.member}/{rollout.id.task}"] = found
        return judged

    def _judge(self, rollout: Rollout, segments: Sequence[Trajectory]) -> tuple[Finding, ...]:
        """By the stored segments; without any, by what assembling would make of the turns."""
        if self._facts is None:
            self._facts = policy_facts(self.path)
        facts = self._facts
        ranges: dict[str, Any] = {"vocab_size": facts.vocab_size, "num_experts": facts.num_experts}
        if segments:
            texts: dict[str, Any] = {"decode": facts.decode, "boundary_ids": facts.boundary_ids}
            return audit(rollout, segments, **ranges, **texts).findings
        if facts.boundary_ids is None:
            return ()
        try:
            return prepare([rollout], boundary_ids=facts.boundary_ids, decode=facts.decode, **ranges).findings
        except (T1Error, ValueError):
            return ()
