"""The life of one seed: proposed, rewritten as planned, selected, repaired where a stage rejects it, while rounds last.

Every step goes through the journal: a step that was done is read, not done again, so that a resumed run retraces its
way in no time and pays for nothing twice. Boundary: what may be decided alone; novelty is decided by the batch.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from t1.errors import InfrastructureError, SandboxUnavailable, TaskError
from t1.synthesis.candidate import EVOLUTIONS, Candidate, Rewrite, Seed, Stage, StageResult
from t1.synthesis.config import RewriteSection
from t1.synthesis.journal import Journal
from t1.synthesis.proposer import ProposalRejected, Proposer
from t1.types import Task

ATTEMPTS = 3
"""How often a stage is begun where the infrastructure fails; then the lineage is set aside, not judged."""

Check = Callable[[Candidate, Task], Awaitable[StageResult]]


@dataclass(slots=True)
class Lineage:
    """One seed and what has become of it."""

    seed: Seed
    plan: tuple[Rewrite, ...]
    """Rounds before the first selection."""
    candidate: Candidate | None = None
    round: int = 0
    """Rounds that were begun, those that changed nothing included."""
    repairs: int = 0
    results: list[StageResult] = field(default_factory=list)
    """Of all stages so far, repaired ones included."""
    accepted: bool = False
    broken: str = ""
    """An infrastructure failure that set it aside; a resumed run tries again."""

    @property
    def name(self) -> str:
        """The id of its task."""
        domain = self.candidate.domain if self.candidate is not None else self.seed.domain or "task"
        return f"{domain}-{self.seed.index:05d}"

    @property
    def rejection(self) -> StageResult | None:
        """Why it stands where it stands, if its last stage did not let it pass."""
        return self.results[-1] if self.results and not self.results[-1].passed else None

    @property
    def is_open(self) -> bool:
        """Whether selection goes on."""
        return self.rejection is None and not self.broken and not self.accepted


def planned(seed: Seed, salt: int, rewriting: RewriteSection) -> tuple[Rewrite, ...]:
    """The rounds that a lineage goes through before it is selected; the same kind never twice in a row."""
    rng = Random(f"plan {salt} {seed.index}")
    kinds: list[Rewrite] = []
    for _ in range(rng.randint(rewriting.min_evolutions, rewriting.max_evolutions)):
        kinds.append(rng.choice([kind for kind in EVOLUTIONS if kinds[-1:] != [kind]]))
    return tuple(kinds)


class Breeder:
    """Moves lineages on, one step at a time."""

    def __init__(self, proposer: Proposer, journal: Journal, rewriting: RewriteSection, scratch: Path) -> None:
        """Task directories of candidates that are being judged lie below `scratch`."""
        self._proposer = proposer
        self._journal = journal
        self._rewriting = rewriting
        self._scratch = scratch

    async def grow(self, lineage: Lineage) -> None:
        """Propose, and go through the planned rounds. Raises BudgetSpent."""
        if lineage.candidate is not None:
            return
        index = lineage.seed.index
        held = self._journal.get(index, 0, "propose")
        if held is None:
            try:
                held = {"candidate": (await self._proposer.propose(lineage.seed)).to_json()}
            except ProposalRejected as error:
                held = {"reason": error.reason, "detail": str(error)}
            self._journal.put(index, 0, "propose", held)
        if "candidate" not in held:
            lineage.results.append(StageResult(Stage.PROPOSED, False, held["reason"], held["detail"]))
            return
        lineage.candidate = Candidate.from_json(held["candidate"])
        for kind in lineage.plan:
            await self._rewrite(lineage, kind, None)

    async def repair(self, lineage: Lineage) -> bool:
        """Another round against the last rejection; False where there is nothing to mend or no round left."""
        problem, limits = lineage.rejection, self._rewriting
        exhausted = lineage.repairs >= limits.max_repairs or lineage.round >= limits.max_rounds
        if problem is None or problem.stage is Stage.PROPOSED or exhausted:
            return False
        lineage.repairs += 1
        if not await self._rewrite(lineage, Rewrite.REPAIR, problem):
            return False
        lineage.results.append(StageResult(Stage.PROPOSED, True, evidence={"repairs": problem.reason}))
        return True

    async def _rewrite(self, lineage: Lineage, kind: Rewrite, problem: StageResult | None) -> bool:
        """One round; whether it changed the candidate."""
        assert lineage.candidate is not None
        lineage.round += 1
        held = self._journal.get(lineage.seed.index, lineage.round, "rewrite")
        if held is None:
            try:
                made = await self._proposer.rewrite(lineage.seed, lineage.candidate, kind, problem)
                held = {"candidate": made.to_json()}
            except ProposalRejected as error:
                held = {"reason": error.reason, "detail": str(error)}
            self._journal.put(lineage.seed.index, lineage.round, "rewrite", held)
        if "candidate" in held:
            lineage.candidate = Candidate.from_json(held["candidate"])
        return "candidate" in held

    async def judge(self, lineage: Lineage, stage: Stage, check: Check) -> None:
        """One stage, from the journal or anew; nothing for a lineage that is not open any more."""
        if not lineage.is_open or lineage.candidate is None:
            return
        held = self._journal.get(lineage.seed.index, lineage.round, stage)
        if held is not None:
            lineage.results.append(StageResult.from_json(held))
            return
        started = time.monotonic()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                result = await self._checked(lineage.candidate, lineage.name, stage, check)
                break
            except SandboxUnavailable:
                raise
            except InfrastructureError as error:
                if attempt == ATTEMPTS:
                    lineage.broken = f"{type(error).__name__}: {error}"
                    return
                await asyncio.sleep(0.2 * attempt)
        result = replace(result, seconds=round(time.monotonic() - started, 3))
        self._journal.put(lineage.seed.index, lineage.round, stage, result.to_json())
        lineage.results.append(result)

    async def _checked(self, candidate: Candidate, name: str, stage: Stage, check: Check) -> StageResult:
        """The check on a written task; a task that cannot be written, read or built is its author's fault."""
        async with self._written(candidate, name) as place:
            try:
                return await check(candidate, candidate.write(place))
            except TaskError as error:
                within = error.path.relative_to(place) if error.path.is_relative_to(place) else error.path
                where = f"{within}{f': {error.key}' if error.key else ''}"
                return StageResult(stage, False, "broken-task", f"{where}: {error.reason}")

    @asynccontextmanager
    async def _written(self, candidate: Candidate, name: str) -> AsyncIterator[Path]:
        """A place for the candidate's directory, gone afterwards."""
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._scratch))
        try:
            yield folder / name
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
