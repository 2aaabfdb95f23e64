"""The audit of one task and of many: read the texts, run the probes, judge, score.

Boundary: a broken task is a line of the report, never the end of the audit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path

from t1.errors import InfrastructureError, SandboxUnavailable, TaskError
from t1.protocols import SandboxProvider
from t1.synthesis.attacks import Attacks
from t1.synthesis.audit.judge import Judge
from t1.synthesis.audit.judgement import constant_answers, judge
from t1.synthesis.audit.leakage import leaks
from t1.synthesis.audit.lookups import looked_up_answers
from t1.synthesis.audit.probes import Observations, observe
from t1.synthesis.audit.report import AuditReport, Kind, Reject
from t1.synthesis.audit.requirements import hidden_requirements
from t1.synthesis.audit.scoring import criteria
from t1.synthesis.audit.shortcuts import copied_answers, empty_verifier, take_inventory, unread_inputs
from t1.synthesis.audit.sources import Sources, read_sources
from t1.tasks import read_task
from t1.types import Task


async def audit_task(
    task: Task,
    *,
    provider: SandboxProvider | None = None,
    judge: Judge | None = None,
    attacks: Attacks = Attacks.VOLLEY,
) -> AuditReport:
    """Audit one task; without a provider only its texts are read.

    Raises SandboxUnavailable where this host has no sandboxes at all; every other failure is the report's `problem`.
    """
    started = time.monotonic()
    sources = read_sources(task)
    seen, problem = None, ""
    if provider is not None:
        seen, problem = await _observed(sources, provider, attacks)
    report = replace(report_on(sources, seen), problem=problem)
    if judge is not None:
        report = replace(report, opinion=await judge.opinion(sources))
    return replace(report, seconds=round(time.monotonic() - started, 4))


async def _observed(sources: Sources, provider: SandboxProvider, attacks: Attacks) -> tuple[Observations | None, str]:
    """What the probes saw, or why they saw nothing."""
    if sources.task.steps:
        return None, f"{sources.task.path / 'task.toml'}: steps: a task of several steps is read but not run"
    try:
        return await observe(sources, provider, attacks), ""
    except SandboxUnavailable:
        raise
    except (InfrastructureError, TaskError) as error:
        return None, f"no probe ran: {error}"


def audit_texts(task: Task) -> AuditReport:
    """What reading alone shows, in milliseconds: for an author's check."""
    return report_on(read_sources(task), None)


def report_on(sources: Sources, seen: Observations | None) -> AuditReport:
    """What texts and observations say."""
    inventory = take_inventory(sources)
    rejects = [*copied_answers(sources), *leaks(sources), *empty_verifier(sources, inventory)]
    if seen is None:
        rejects += unread_inputs(sources)
        answers = sources.solution_text if any(r.kind is Kind.SOLUTION_SHORTCUT for r in rejects) else ""
    else:
        rejects += judge(sources, seen)
        answers = "\n".join(seen.outputs[path].decode("utf-8", "replace") for path in constant_answers(sources, seen))
    looked_up, cases = looked_up_answers(sources)
    rejects += [*looked_up, *hidden_requirements(sources, excused=f"{answers}\n{cases}")]
    task = sources.task
    distinct = _first_of_each(rejects)
    return AuditReport(task.id, str(task.path), task.digest, distinct, criteria(sources, inventory, seen, distinct))


def _first_of_each(rejects: Iterable[Reject]) -> tuple[Reject, ...]:
    """Each kind at each place once."""
    kept: dict[tuple[Kind, str, int], Reject] = {}
    for reject in rejects:
        kept.setdefault((reject.kind, reject.file, reject.line), reject)
    return tuple(kept.values())


async def audit_directory(
    path: Path,
    *,
    provider: SandboxProvider | None = None,
    judge: Judge | None = None,
    at_once: int = 2,
    attacks: Attacks = Attacks.VOLLEY,
) -> AsyncIterator[AuditReport]:
    """Audit a task, or every task below a directory, in the order of their names. A broken task is a report too.

    Raises TaskError where there is nothing to audit.
    """
    folders = task_directories(path)
    running: dict[int, asyncio.Task[AuditReport]] = {}
    try:
        for index in range(len(folders)):
            for ahead in range(index, min(len(folders), index + at_once)):
                if ahead not in running:
                    running[ahead] = asyncio.create_task(_audit_folder(folders[ahead], provider, judge, attacks))
            yield await running[index]
            del running[index]
    finally:
        for pending in running.values():
            pending.cancel()
        await asyncio.gather(*running.values(), return_exceptions=True)


async def _audit_folder(
    folder: Path, provider: SandboxProvider | None, judge: Judge | None, attacks: Attacks
) -> AuditReport:
    try:
        # While sandboxes are waited for, a large task is read beside the loop; else there is nothing to wait for.
        task = read_task(folder) if provider is None else await asyncio.to_thread(read_task, folder)
        return await audit_task(task, provider=provider, judge=judge, attacks=attacks)
    except TaskError as error:
        return AuditReport(folder.name, str(folder), "", problem=str(error))


def task_directories(path: Path) -> list[Path]:
    """`path` itself where it is a task, else the directories below it that are or should be tasks."""
    if not path.is_dir():
        raise TaskError(path, "is not a directory" if path.exists() else "no such directory")
    if (path / "task.toml").is_file() or (path / "instruction.md").is_file():
        return [path]
    found = []
    for entry in sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")):
        is_task = any((entry / name).exists() for name in ("task.toml", "instruction.md", "tests", "environment"))
        below = [] if is_task else [e for e in entry.iterdir() if e.is_dir() and not e.name.startswith(".")]
        found += [entry] if is_task or not below else task_directories(entry)
    if not found:
        raise TaskError(path, "holds no tasks: a task is a directory with a task.toml")
    return found
