"""Checks one task by running it: doing nothing must earn nothing, the reference solution everything, twice the same.

Boundary: it judges a task, never a policy. The proof of a generated task and `t1 tasks check` are this same code. The
solution runs where the verifier runs, since nobody hostile is in it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from t1.errors import TaskError
from t1.protocols import Sandbox, SandboxProvider
from t1.types import AssertionResult, AssertionStatus, Task
from t1.verification.reports import parse_ctrf

CTRF = "/logs/verifier/ctrf.json"
MAX_REPORT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What running a task showed."""

    task: str
    untouched: tuple[AssertionResult, ...]
    """The verifier's report before anything was done."""
    solved: tuple[AssertionResult, ...]
    """After the reference solution."""
    again: tuple[AssertionResult, ...]
    """A second time, with nothing done in between."""
    solution_error: str = ""
    """What a solution that failed printed last."""

    @property
    def sound(self) -> bool:
        """Whether the task may be trained and evaluated on."""
        return not self.faults

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong, each with what to do about it."""
        faults = []
        if self.solution_error:
            faults.append(f"solve.sh failed: {self.solution_error}")
        if not self.solved:
            faults.append("the verifier reports no assertion: let test.sh write /logs/verifier/ctrf.json")
        if free := _passed(self.untouched):
            faults.append(f"doing nothing passes {', '.join(sorted(free))}: assert what only the work brings about")
        if missed := {a.name for a in self.solved} - _passed(self.solved):
            faults.append(f"the solution does not pass {', '.join(sorted(missed))}: mend solve.sh or the assertion")
        if self.solved != self.again:
            faults.append("the verifier says something else the second time: remove what depends on time or order")
        return tuple(faults)

    @property
    def advice(self) -> str:
        """All faults in one line; empty for a sound task."""
        return "; ".join(self.faults)


def _passed(results: tuple[AssertionResult, ...]) -> set[str]:
    return {a.name for a in results if a.status is AssertionStatus.PASSED}


async def check_task(task: Task, provider: SandboxProvider) -> TaskReport:
    """Run the verifier on the untouched environment, then the solution, then the verifier twice.

    Raises TaskError where the task has no solution, SandboxError where there is no sandbox to be had.
    """
    if task.solution is None:
        raise TaskError(task.path / "solution" / "solve.sh", "no reference solution to check the task with")
    agent = await provider.open(task)
    try:
        sandbox = await provider.open_pristine(task, await agent.stop())
    except BaseException:
        await agent.close()
        raise
    try:
        untouched = await _verify(task, sandbox)
        script = task.solution.read_text(encoding="utf-8")
        ended = await sandbox.run(f"bash -c {shlex.quote(script)}", timeout_s=task.limits.agent_timeout_s)
        error = "" if ended.exit_code == 0 else (ended.output.strip() or f"exit code {ended.exit_code}")[-200:]
        return TaskReport(task.id, untouched, await _verify(task, sandbox), await _verify(task, sandbox), error)
    finally:
        await sandbox.close()
        await agent.close()


async def _verify(task: Task, sandbox: Sandbox) -> tuple[AssertionResult, ...]:
    """The verifier's assertions; none where it reports none."""
    await sandbox.run("(cd / && bash /tests/test.sh)", timeout_s=task.verifier.timeout_s)
    report = await sandbox.read(CTRF, max_bytes=MAX_REPORT_BYTES)
    return () if report is None else parse_ctrf(report)
