"""Rollouts to experience: assemble each rollout into trajectories, audit them, keep what is sound.

What is kept out is counted by reason and never hidden: infrastructure failures have no reward, captures that do not
join have no routing, a finding of severity error taints its whole rollout (half of an episode's credit would be wrong).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from t1.errors import RoutingError
from t1.tito import assemble, audit
from t1.training.gap_text import Decode, Encode, trained_as_text
from t1.types import Finding, IntArray, Rollout, Severity, Trajectory


@dataclass(frozen=True, slots=True)
class Experience:
    """What one step may train on, aligned by index."""

    rollouts: tuple[Rollout, ...]
    """Kept rollouts."""
    trajectories: tuple[tuple[Trajectory, ...], ...]
    """Segments of each kept rollout, in the order of their first turns."""
    rewards: tuple[float, ...]
    findings: tuple[Finding, ...] = ()
    dropped: dict[str, int] = field(default_factory=dict)
    """Rollouts that are not trained on, by reason."""
    counters: dict[str, int] = field(default_factory=dict)
    """The auditor's counters over all audited rollouts."""

    @property
    def rewarded(self) -> list[tuple[tuple[Trajectory, ...], float]]:
        """(segments, reward) of every kept rollout: what the trainer asks for."""
        return list(zip(self.trajectories, self.rewards, strict=True))

    @property
    def flat(self) -> list[Trajectory]:
        """All kept trajectories."""
        return [trajectory for segments in self.trajectories for trajectory in segments]


def prepare(
    rollouts: Sequence[Rollout],
    *,
    boundary_ids: frozenset[int],
    decode: Callable[[IntArray], str] | None = None,
    on_residual: Literal["accept", "split"] = "accept",
    vocab_size: int | None = None,
    num_experts: int | None = None,
) -> Experience:
    """Assemble and audit every scored rollout."""
    kept: list[tuple[Rollout, tuple[Trajectory, ...], float]] = []
    findings: list[Finding] = []
    dropped: Counter[str] = Counter()
    counters: Counter[str] = Counter()
    for rollout in rollouts:
        reward = rollout.outcome.reward
        if reward is None:
            assert rollout.outcome.failure is not None
            dropped[f"failure:{rollout.outcome.failure.kind}"] += 1
            continue
        if not rollout.turns:
            dropped["no turns"] += 1
            continue
        try:
            segments = assemble(
                rollout.id, rollout.turns, boundary_ids=boundary_ids, decode=decode, on_residual=on_residual
            )
        except RoutingError as error:
            findings.append(Finding("routing-join", Severity.ERROR, rollout.id, "rollout", str(error)))
            dropped["assemble:RoutingError"] += 1
            continue
        report = audit(
            rollout,
            segments,
            vocab_size=vocab_size,
            num_experts=num_experts,
            decode=decode,
            boundary_ids=boundary_ids,
        )
        findings += report.findings
        counters.update(report.counters)
        if errors := {f.rule for f in report.findings if f.severity is Severity.ERROR}:
            dropped[f"audit:{min(errors)}"] += 1
            continue
        kept.append((rollout, segments, reward))
    return Experience(
        rollouts=tuple(rollout for rollout, _, _ in kept),
        trajectories=tuple(segments for _, segments, _ in kept),
        rewards=tuple(reward for _, _, reward in kept),
        findings=tuple(findings),
        dropped=dict(dropped),
        counters=dict(counters),
    )


def as_text_stack(experience: Experience, *, decode: Decode, encode: Encode) -> Experience:
    """What a stack that keeps text would have trained on: every completion re-encoded, after the audit that it fails.

    A rollout of which nothing is left is dropped and counted.
    """
    kept = []
    dropped = Counter(experience.dropped)
    for rollout, segments, reward in zip(experience.rollouts, experience.trajectories, experience.rewards, strict=True):
        texts = [trained_as_text(segment, decode=decode, encode=encode) for segment in segments]
        if found := tuple(text for text in texts if text is not None):
            kept.append((rollout, found, reward))
        else:
            dropped["text: no action is left"] += 1
    return replace(
        experience,
        rollouts=tuple(rollout for rollout, _, _ in kept),
        trajectories=tuple(segments for _, segments, _ in kept),
        rewards=tuple(reward for _, _, reward in kept),
        dropped=dict(dropped),
    )
