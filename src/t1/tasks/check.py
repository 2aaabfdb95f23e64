"""Checks one task by running it: doing nothing must earn nothing, the reference solution everything, twice the same.

Boundary: it judges a task, never a policy. The proof of a generated task and `t1 tasks check` are this same code. The
solution runs where the verifier runs, since nobody hostile is in it; files beside `solve.sh` are not there.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from t1.errors import SandboxError, SandboxVanished, TaskError
from t1.protocols import Sandbox, SandboxProvider
from t1.types import AssertionResult, AssertionStatus, Task
from t1.verification.reports import parse_reward, read_assertions

LOGS = "/logs/verifier"
MAX_REPORT_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class VerifierRun:
    """What the verifier said once."""

    assertions: tuple[AssertionResult, ...] = ()
    """Its report; without one, a single `reward` that passes at 1."""
    error: str = ""
    """Why neither could be read, and what to do about it."""
    binary: bool = False
    """True where there was only a reward."""

    @property
    def passed(self) -> frozenset[str]:
        """Names of the assertions that passed."""
        return frozenset(a.name for a in self.assertions if a.status is AssertionStatus.PASSED)

    @property
    def missed(self) -> frozenset[str]:
        """Names of those that did not."""
        return frozenset(a.name for a in self.assertions) - self.passed


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What running a task showed."""

    task: str
    untouched: VerifierRun
    """Before anything was done."""
    solved: VerifierRun
    """After the reference solution."""
    again: VerifierRun
    """A second time, with nothing done in between."""
    solution_error: str = ""
    """How a solution that failed ended."""

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
        if unread := self.untouched.error or self.solved.error or self.again.error:
            return (*faults, unread)
        if self.untouched.passed:
            faults.append(
                f"doing nothing passes {_names(self.untouched.passed)}: assert what only the work brings about"
            )
        if self.solved.missed:
            faults.append(f"the solution does not pass {_names(self.solved.missed)}: mend solve.sh or the assertion")
        if self.solved != self.again:
            faults.append("the verifier says something else the second time: remove what depends on time or order")
        return tuple(faults)

    @property
    def advice(self) -> str:
        """All faults in one line, and what would make a sound task better."""
        return "; ".join([*self.faults, *self.wishes])

    @property
    def wishes(self) -> tuple[str, ...]:
        """What would make a sound task better."""
        dense = f"only a reward is reported: with {LOGS}/ctrf.json every assertion would count"
        return (dense,) if self.solved.binary else ()


def _names(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


async def check_task(task: Task, provider: SandboxProvider) -> TaskReport:
    """Run the verifier on the untouched environment, then the solution, then the verifier twice.

    Raises TaskError where the task has steps or no solution, SandboxError where there is no sandbox to be had.
    """
    if task.steps:
        raise TaskError(task.path / "task.toml", "a task of several steps can be read but not run yet", key="steps")
    if task.solution is None:
        raise TaskError(task.path / "solution" / "solve.sh", "no reference solution to check the task with")
    agent = await provider.open(task)
    try:
        sandbox = await provider.open_pristine(task, await agent.stop())
        try:
            untouched = await run_verifier(task, sandbox)
            error = await run_solution(task, sandbox)
            return TaskReport(
                task.id, untouched, await run_verifier(task, sandbox), await run_verifier(task, sandbox), error
            )
        finally:
            await sandbox.close()
    finally:
        await agent.close()


async def run_solution(task: Task, sandbox: Sandbox) -> str:
    """Run the reference solution; how it failed, or nothing."""
    assert task.solution is not None, "the caller has looked"
    script = task.solution.read_text(encoding="utf-8", errors="surrogateescape")
    limit = task.limits.agent_timeout_s
    ended = await sandbox.run(f"bash -c {shlex.quote(script)}", timeout_s=limit)
    if ended.timed_out:
        return f"still running after {limit:g} s"
    return "" if ended.exit_code == 0 else (ended.output.strip() or f"exit code {ended.exit_code}")[-200:]


async def run_verifier(task: Task, sandbox: Sandbox) -> VerifierRun:
    """One run of the verifier, in the workdir and with the variables that training gives it."""
    await sandbox.run(f"rm -rf {LOGS}/*", timeout_s=task.verifier.timeout_s)
    env = " ".join(f"{name}={shlex.quote(value)}" for name, value in task.verifier.env.items())
    ended = await sandbox.run(f"{env} bash /tests/test.sh".lstrip(), timeout_s=task.verifier.timeout_s)
    if ended.timed_out:
        return VerifierRun(error=f"the verifier was still running after {task.verifier.timeout_s:g} s: mend what waits")
    try:
        report = await read_assertions(sandbox, None)
        if report.results is not None:
            return VerifierRun(report.results)
        if report.unreadable:
            return VerifierRun(error=f"the verifier's report cannot be read: {report.error}")
        for name in ("reward.txt", "reward.json"):
            if (text := await sandbox.read(f"{LOGS}/{name}", max_bytes=MAX_REPORT_BYTES)) is not None:
                solved = parse_reward(text, is_json=name.endswith(".json")) == 1.0
                status = AssertionStatus.PASSED if solved else AssertionStatus.FAILED
                return VerifierRun((AssertionResult("reward", status),), binary=True)
    except SandboxVanished:
        raise
    except (SandboxError, ValueError) as error:
        return VerifierRun(error=f"the verifier's report cannot be read: {error}")
    last = ended.output.strip()[-200:] or "no output"
    ending = f"(exit code {ended.exit_code}: {last})"
    return VerifierRun(error=f"the verifier reports nothing {ending}: let it write {LOGS}/ctrf.json whatever it finds")
