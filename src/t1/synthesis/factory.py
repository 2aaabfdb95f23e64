"""The factory: batches of lineages through five stages, and what comes out on the disk.

    OUT/tasks/NAME/        accepted, in Harbor's format     OUT/index.parquet      a row for every lineage
    OUT/rejected/NAME/     rejected, with reason.json       OUT/datasheet.md       counts; .json the same for programs
    OUT/journal.sqlite     every step that was done

Boundary: it knows the order of the stages and who is asked; proposers, trials, policies and audits come from outside.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from t1.errors import TaskError
from t1.synthesis.candidate import Candidate, Seed, Stage, StageResult
from t1.synthesis.config import SynthConfig
from t1.synthesis.datasheet import write_datasheet
from t1.synthesis.journal import Journal
from t1.synthesis.lineage import Breeder, Lineage, planned
from t1.synthesis.proposer import BudgetSpent, Proposer
from t1.synthesis.selection.discriminating import discriminating
from t1.synthesis.selection.novel import Novelty
from t1.synthesis.selection.solvable import solvable
from t1.synthesis.selection.useful import Attempt, Audit, useful
from t1.synthesis.selection.wellformed import well_formed
from t1.synthesis.similarity import Reference
from t1.synthesis.trials import Ground
from t1.synthesis.variations import Variation
from t1.tasks import read_task
from t1.types import Task

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Parts:
    """Whom the factory asks."""

    proposer: Proposer
    ground: Ground
    variations: Sequence[Variation] = ()
    held_out: Mapping[str, Reference] = field(default_factory=dict)
    attempt: Attempt | None = None
    """The reference policy; None where there is none."""
    audit: Audit | None = None


@dataclass(frozen=True, slots=True)
class Synthesis:
    """What a run has made."""

    path: Path
    lineages: Sequence[Lineage]
    stopped: str = ""
    """Why it ended before its seeds did."""

    @property
    def accepted(self) -> list[Lineage]:
        """Lineages that became a task."""
        return [lineage for lineage in self.lineages if lineage.accepted]


class Factory:
    """Runs a synthesis; call `run` once, as often as it was interrupted."""

    def __init__(self, config: SynthConfig, seeds: Sequence[Seed], parts: Parts, journal: Journal) -> None:
        self._config = config
        self._seeds = seeds
        self._parts = parts
        self._journal = journal
        self._out = Path(config.run.out)
        self._scratch = self._out / f".scratch.{os.getpid()}"
        self._gate = asyncio.Semaphore(config.run.at_once)
        self._breeder = Breeder(parts.proposer, journal, config.rewrite, self._scratch)
        novel = config.novel
        self._novelty = Novelty(
            max_text=novel.max_text,
            max_shape=novel.max_shape,
            max_contamination=novel.max_contamination,
            held_out=parts.held_out,
        )

    async def run(self, progress: Progress = lambda done, total: None) -> Synthesis:
        """Go through all seeds; at the end, and whenever it is stopped, the index and the datasheet are written."""
        self._journal.hold_to("configuration", self._config.pinned(), "choose another run.out for it")
        for old in self._out.glob(".scratch.*"):
            shutil.rmtree(old, ignore_errors=True)
        self._scratch.mkdir(parents=True)
        lineages: list[Lineage] = []
        stopped = ""

        def moved() -> None:
            progress(_settled(lineages), len(self._seeds))

        batches = self._batches()
        # While a batch repairs its last few the next one begins, unless a number of tasks may end the run before it.
        may_begin_early = self._config.run.num_tasks == 0
        begun: asyncio.Task[list[str]] | None = None
        try:
            batch = next(batches, None)
            while batch and not stopped:
                lineages += batch
                following = next(batches, None)
                answers = await (begun or self._each(self._alone, batch, moved))
                begun = None
                if following and may_begin_early and not any(answers):
                    begun = asyncio.create_task(self._each(self._alone, following, moved))
                stopped = await self._select(batch, answers, moved)
                if 0 < self._config.run.num_tasks <= sum(lineage.accepted for lineage in lineages):
                    stopped = stopped or f"{self._config.run.num_tasks} tasks were asked for"
                batch = following
        finally:
            if begun is not None:
                begun.cancel()
                await asyncio.gather(begun, return_exceptions=True)
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._report(lineages, stopped)
        return Synthesis(self._out, lineages, stopped)

    def _batches(self) -> Iterator[list[Lineage]]:
        size = self._config.run.batch
        for start in range(0, len(self._seeds), size):
            yield [
                Lineage(seed, planned(seed, self._config.run.seed, self._config.rewrite))
                for seed in self._seeds[start : start + size]
            ]

    async def _select(self, batch: Sequence[Lineage], answers: Sequence[str], moved: Callable[[], None]) -> str:
        """Select and repair until every lineage of the batch is settled; why the run must stop, if it must.

        `answers`: of the first three stages, which the batch has behind it.
        """
        live, stopped = list(batch), next(filter(None, answers), "")
        while live:
            for lineage in live:
                await self._novel(lineage)
            await self._each(self._useful, live, moved)
            for lineage in live:
                self._settle(lineage)
            answers = await self._each(self._repair, [] if stopped else live, moved)
            stopped = stopped or next(filter(None, answers), "")
            live = [lineage for lineage in live if lineage.is_open and not stopped]
            answers = await self._each(self._alone, live, moved)
            stopped = stopped or next(filter(None, answers), "")
        for lineage in batch:
            self._publish(lineage)
        moved()
        return stopped

    async def _each(
        self, work: Callable[[Lineage], Awaitable[str]], lineages: Sequence[Lineage], moved: Callable[[], None]
    ) -> list[str]:
        """The same work on all of them, a few at once; the first error ends it."""

        async def one(lineage: Lineage) -> str:
            async with self._gate:
                answer = await work(lineage)
                moved()
                return answer

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(lineage)) for lineage in lineages]
        return [task.result() for task in tasks]

    async def _alone(self, lineage: Lineage) -> str:
        """What does not depend on other lineages: the first three stages."""
        parts, config = self._parts, self._config
        try:
            await self._breeder.grow(lineage)
        except BudgetSpent as error:
            lineage.broken = str(error)
            return str(error)

        async def starts(candidate: Candidate, task: Task) -> StageResult:
            return await well_formed(candidate, task, parts.ground)

        async def solves(candidate: Candidate, task: Task) -> StageResult:
            repeats = config.solvable.repeats
            return await solvable(candidate, task, parts.ground, repeats=repeats, variations=parts.variations)

        async def tells_apart(candidate: Candidate, task: Task) -> StageResult:
            section = config.discriminating
            return await discriminating(
                candidate,
                task,
                parts.ground,
                max_mutants=section.max_mutants,
                min_score=section.min_score,
                attacks=section.attacks,
            )

        await self._breeder.judge(lineage, Stage.WELL_FORMED, starts)
        await self._breeder.judge(lineage, Stage.SOLVABLE, solves)
        await self._breeder.judge(lineage, Stage.DISCRIMINATING, tells_apart)
        return ""

    async def _novel(self, lineage: Lineage) -> None:
        """Against everything that was admitted before it; what is novel joins the pool at once."""

        async def is_new(candidate: Candidate, task: Task) -> StageResult:
            return self._novelty.judge(candidate)

        was_open = lineage.is_open
        await self._breeder.judge(lineage, Stage.NOVEL, is_new)
        if was_open and lineage.is_open and lineage.candidate is not None:
            self._novelty.admit(lineage.name, lineage.candidate)

    async def _useful(self, lineage: Lineage) -> str:
        """The reference policy, and the audit."""
        section = self._config.useful

        async def helps(candidate: Candidate, task: Task) -> StageResult:
            return await useful(
                task,
                attempt=self._recorded(lineage),
                num_rollouts=section.rollouts,
                band=(section.low, section.high),
                audit=self._parts.audit,
                min_audit=section.min_audit,
            )

        await self._breeder.judge(lineage, Stage.USEFUL, helps)
        return ""

    def _recorded(self, lineage: Lineage) -> Attempt | None:
        """Attempts of the reference policy that are remembered one by one."""
        attempt = self._parts.attempt
        if attempt is None:
            return None

        async def once(task: Task, number: int) -> bool:
            step = f"attempt {number}"
            held = self._journal.get(lineage.seed.index, lineage.round, step)
            if held is None:
                held = await attempt(task, number)
                self._journal.put(lineage.seed.index, lineage.round, step, held)
            return bool(held)

        return once

    def _settle(self, lineage: Lineage) -> None:
        """What passed everything is accepted; what the last stage rejected leaves the pool."""
        if lineage.results and lineage.results[-1].stage is Stage.USEFUL:
            lineage.accepted = lineage.results[-1].passed
        if not lineage.accepted:
            self._novelty.dismiss(lineage.name)

    async def _repair(self, lineage: Lineage) -> str:
        """A round against the rejection, where there is one and a round is left."""
        try:
            await self._breeder.repair(lineage)
        except BudgetSpent as error:
            return str(error)
        return ""

    def _publish(self, lineage: Lineage) -> None:
        """Write its directory where it belongs. What is there already, from before an interruption, stays."""
        if lineage.candidate is None or lineage.broken:
            return
        name = lineage.name
        place = self._out / ("tasks" if lineage.accepted else "rejected") / name
        if lineage.accepted:
            if not place.exists():
                lineage.candidate.write(place)
            return
        try:
            if not place.exists():
                lineage.candidate.write(place)
        except TaskError:
            place.mkdir(parents=True, exist_ok=True)
            (place / "candidate.json").write_text(lineage.candidate.to_json(), encoding="utf-8")
        if (reason := lineage.rejection) is not None:
            (place / "reason.json").write_text(json.dumps(reason.to_json(), indent=1) + "\n", encoding="utf-8")

    def _report(self, lineages: Sequence[Lineage], stopped: str) -> None:
        """Index and datasheet over what is settled."""
        run = {
            "proposer": self._parts.proposer.name,
            "seeds": len(self._seeds),
            "stopped": stopped,
            "calls": self._journal.num_calls(),
            "cost": round(self._journal.spent(), 6),
            "variations": {v.name: v.how or v.missing for v in self._parts.variations},
            "attacks": str(self._config.discriminating.attacks),
            "held_out": {name: len(reference.names) for name, reference in self._parts.held_out.items()},
        }
        write_datasheet(self._out, [each for each in lineages if _is_settled(each)], run)


def _is_settled(lineage: Lineage) -> bool:
    return lineage.accepted or lineage.rejection is not None or bool(lineage.broken)


def _settled(lineages: Sequence[Lineage]) -> int:
    """How many lineages are through, or nearly: a rejection may still be repaired."""
    return sum(map(_is_settled, lineages))


def reread(path: Path) -> list[Task]:
    """The accepted tasks of a run, read back: what a person trains on."""
    return [read_task(entry) for entry in sorted((path / "tasks").iterdir()) if not entry.name.startswith(".")]
