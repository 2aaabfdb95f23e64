"""What makes candidates: one protocol for a model behind an endpoint and for code that composes primitives.

Boundary: a proposer never judges its own work and never sees a sandbox; selection does.
"""

from __future__ import annotations

from typing import Protocol

from t1.errors import T1Error, UserError
from t1.synthesis.candidate import Candidate, Rewrite, Seed, StageResult


class ProposalRejected(T1Error):
    """A proposer had nothing usable to say about this one seed; the run goes on. `reason` is a short code."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class BudgetSpent(UserError):
    """The cost cap is reached: nothing more is asked; what was proposed so far is still selected."""


class Proposer(Protocol):
    """Makes candidates and rewrites them. The same arguments give the same answer, from a cache where it costs."""

    @property
    def name(self) -> str:
        """What the datasheet calls it."""
        ...

    async def propose(self, seed: Seed) -> Candidate:
        """The first candidate of a lineage. Raises ProposalRejected, or BudgetSpent."""
        ...

    async def rewrite(self, seed: Seed, candidate: Candidate, kind: Rewrite, problem: StageResult | None) -> Candidate:
        """`candidate` after one more round, which is added to its `rewrites`; `problem` is what a repair mends.

        Raises ProposalRejected where this rewrite cannot be applied, or BudgetSpent.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...
