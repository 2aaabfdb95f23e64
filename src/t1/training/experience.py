"""Rollouts to experience: assemble each rollout into trajectories, audit them, keep what is sound.

What is kept out is counted by reason and never hidden: infrastructure failures have no reward, captures that do not
join have no routing, a finding of severity error taints its whole rollout (half of an episode's credit would be wrong).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from t1.errors import RoutingError
from t1.tito import assemble, audit
from t1.training.gap.text import Decode, Encode, trained_as_text
from t1.training.parallel.dataplane import StoredRollouts, store_rollouts
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
    stored: StoredRollouts | None = None
    """The file that `trajectories` are views of, where they were stored."""

    @property
    def rewarded(self) -> Sequence[tuple[Sequence[Trajectory], float]]:
        """(segments, reward) of every kept rollout: what the trainer asks for. By reference, where it is stored."""
        return self.stored if self.stored is not None else list(zip(self.trajectories, self.rewards, strict=True))

    @property
    def flat(self) -> list[Trajectory]:
        """All kept trajectories."""
        return [trajectory for segments in self.trajectories for trajectory in segments]


@dataclass(slots=True)
class _Sieve:
    """Assembles and audits one rollout after another, and counts what it keeps out."""

    boundary_ids: frozenset[int]
    decode: Callable[[IntArray], str] | None
    on_residual: Literal["accept", "split"]
    vocab_size: int | None
    num_experts: int | None
    findings: list[Finding] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    counters: Counter[str] = field(default_factory=Counter)

    def segments_of(self, rollout: Rollout) -> tuple[Trajectory, ...] | None:
        """What may be trained of a rollout, or None."""
        if rollout.outcome.reward is None:
            assert rollout.outcome.failure is not None
            self.dropped[f"failure:{rollout.outcome.failure.kind}"] += 1
            return None
        if not rollout.turns:
            self.dropped["no turns"] += 1
            return None
        rules: dict[str, Any] = {"boundary_ids": self.boundary_ids, "decode": self.decode}
        try:
            segments = assemble(rollout.id, rollout.turns, on_residual=self.on_residual, **rules)
        except RoutingError as error:
            self.findings.append(Finding("routing-join", Severity.ERROR, rollout.id, "rollout", str(error)))
            self.dropped["assemble:RoutingError"] += 1
            return None
        report = audit(rollout, segments, vocab_size=self.vocab_size, num_experts=self.num_experts, **rules)
        self.findings += report.findings
        self.counters.update(report.counters)
        if errors := {f.rule for f in report.findings if f.severity is Severity.ERROR}:
            self.dropped[f"audit:{min(errors)}"] += 1
            return None
        return segments


def prepare(
    rollouts: Iterable[Rollout],
    *,
    boundary_ids: frozenset[int],
    decode: Callable[[IntArray], str] | None = None,
    on_residual: Literal["accept", "split"] = "accept",
    vocab_size: int | None = None,
    num_experts: int | None = None,
    store: Path | None = None,
) -> Experience:
    """Assemble and audit every scored rollout.

    `store`: a file for what is kept; then trajectories are views of it, and one rollout's at a time are in memory.
    """
    sieve = _Sieve(boundary_ids, decode, on_residual, vocab_size, num_experts)
    kept: list[Rollout] = []

    def sound() -> Iterator[tuple[tuple[Trajectory, ...], float]]:
        for rollout in rollouts:
            if (segments := sieve.segments_of(rollout)) is not None:
                assert rollout.outcome.reward is not None
                kept.append(rollout)
                yield segments, rollout.outcome.reward

    stored = None if store is None else store_rollouts(store, sound())
    rewarded: Sequence[tuple[Sequence[Trajectory], float]] = list(sound()) if stored is None else stored
    return Experience(
        rollouts=tuple(kept),
        trajectories=tuple(tuple(segments) for segments, _ in rewarded),
        rewards=tuple(reward for _, reward in rewarded),
        findings=tuple(sieve.findings),
        dropped=dict(sieve.dropped),
        counters=dict(sieve.counters),
        stored=stored,
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
        stored=None,
    )
