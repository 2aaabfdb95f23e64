"""Runs the red team: every script in a sandbox of its own, judged by T1's verification and by the naive control.

Boundary: any SandboxProvider will do; what a row means for an exit code is the command's affair.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t1.errors import InfrastructureError
from t1.protocols import SandboxProvider, Verifier
from t1.redteam.exploits import EXPLOITS, Exploit
from t1.redteam.honest import HONEST, Honest
from t1.redteam.naive import naive_reward
from t1.redteam.tasks import GROUNDS, write_grounds
from t1.types import Task, Verdict
from t1.verification import PristineVerifier, score

SCRIPT_S = 45.0

Scripted = Exploit | Honest


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one scripted agent."""

    kind: str
    """exploit or honest"""
    name: str
    task: str
    reward: float | None
    """None where infrastructure failed, or the row was skipped."""
    evidence: tuple[str, ...] = ()
    naive: bool | None = None
    """Whether the naive verifier gives the full reward; None where it hangs, or was not asked."""
    seconds: float = 0.0
    problem: str = ""
    """Why there is no reward."""
    skipped: bool = False

    @property
    def is_well(self) -> bool:
        """An exploit earns nothing and leaves evidence; an honest solution earns everything."""
        if self.skipped:
            return True
        return self.reward == 1.0 if self.kind == "honest" else self.reward == 0.0 and bool(self.evidence)


async def run_suite(
    provider: SandboxProvider,
    folder: Path,
    *,
    scripted: Sequence[Scripted] = (*EXPLOITS, *HONEST),
    verifier: Verifier | None = None,
    control: bool = True,
    at_once: int = 2,
    done: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """A row for each script, in their order. Tasks are written below `folder`; `done` hears of every finished row."""
    tasks = await asyncio.to_thread(write_grounds, folder, [agent.task for agent in scripted])
    verifier = verifier or PristineVerifier(provider)
    needed = {need for agent in scripted for need in (*agent.needs, *GROUNDS[agent.task].needs)}
    missing = await _missing(provider, next(iter(tasks.values())), needed)
    gate = asyncio.Semaphore(at_once)

    async def one(agent: Scripted) -> Row:
        async with gate:
            lacks = missing & {*agent.needs, *GROUNDS[agent.task].needs}
            if lacks:
                row = Row(_kind(agent), agent.name, agent.task, None, problem=f"no {min(lacks)} here", skipped=True)
            else:
                row = await _row(agent, tasks[agent.task], provider, verifier, control)
            done(row)
            return row

    return list(await asyncio.gather(*map(one, scripted)))


async def _missing(provider: SandboxProvider, task: Task, needed: Iterable[str]) -> set[str]:
    """The commands and modules that a sandbox lacks."""
    sandbox = await provider.open(task)
    try:
        script = "; ".join(f"{_probe(need)} >/dev/null 2>&1 || echo '{need}'" for need in sorted(needed)) or "true"
        return set((await sandbox.run(script, timeout_s=SCRIPT_S)).output.splitlines())
    finally:
        await sandbox.close()


def _probe(need: str) -> str:
    """The command that tells whether a sandbox has this."""
    return f"python3 -c '{need}'" if need.startswith("import ") else f"command -v {need}"


async def _row(agent: Scripted, task: Task, provider: SandboxProvider, verifier: Verifier, control: bool) -> Row:
    started = time.monotonic()
    naive = await _control(agent, task, provider) if control else None
    reward, evidence, problem = None, list[str](), ""
    sandbox = await provider.open(task)
    try:
        ended = await sandbox.run(agent.script, timeout_s=SCRIPT_S)
        refusal = re.search(agent.refused, ended.output) if isinstance(agent, Exploit) and agent.refused else None
        evidence += [f"refused: {refusal[0]}"] if refusal else []
        verdict = await verifier.verify(task, sandbox)
        reward = _reward(verdict)
        evidence += [f"{found.rule} ({found.level}): {found.path}" for found in verdict.tamper]
        failed = [found for found in verdict.assertions or () if found.status != "passed"]
        problem = "; ".join(f"{found.name}: {found.message}" for found in failed[:2]) if reward != 1.0 else ""
    except InfrastructureError as error:
        problem = f"{type(error).__name__}: {error}"
    finally:
        await sandbox.close()
    seconds = time.monotonic() - started
    return Row(_kind(agent), agent.name, agent.task, reward, tuple(evidence), naive, seconds, problem)


async def _control(agent: Scripted, task: Task, provider: SandboxProvider) -> bool | None:
    """The same script before the naive verifier."""
    sandbox = await provider.open(task)
    try:
        await sandbox.run(agent.script, timeout_s=SCRIPT_S)
        return await naive_reward(task, sandbox)
    except InfrastructureError:
        return None
    finally:
        await sandbox.close()


def _reward(verdict: Verdict) -> float:
    """The dense reward under the default policy, normalised by the task's own assertions."""
    return score(verdict, normalizer=float(len(verdict.assertions or ()) or 1), kind="dense")[0]


def _kind(agent: Scripted) -> str:
    return "exploit" if isinstance(agent, Exploit) else "honest"


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The suite in numbers."""
    ran = [row for row in rows if not row.skipped]
    exploits, honest = ([row for row in ran if row.kind == kind] for kind in ("exploit", "honest"))
    return {
        "exploits": len(exploits),
        "exploits_scored": sum(row.reward != 0.0 for row in exploits),
        "exploits_without_evidence": sum(not row.evidence for row in exploits),
        "exploits_that_fool_naive": sum(row.naive is True for row in exploits),
        "honest": len(honest),
        "honest_punished": sum(row.reward != 1.0 for row in honest),
        "honest_naive": sum(row.naive is True for row in honest),
        "skipped": len(rows) - len(ran),
        "seconds": round(sum(row.seconds for row in ran), 1),
    }
