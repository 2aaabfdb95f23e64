"""Runs a task's own verifier in a second, fresh sandbox over the files that the agent left.

The agent's processes are dead before it starts, its shell and environment are not carried, protected files are the
image's again, and what is read back lies in a place that the agent never had. Boundary: this module speaks to sandboxes
through the protocol only, and gives a verdict or an error, never a score.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from t1.errors import SandboxError, SandboxVanished, VerifierError
from t1.protocols import Sandbox, SandboxProvider
from t1.types import AssertionStatus, CommandResult, FileChanges, TamperEvidence, Task, Verdict
from t1.verification.declared import Declared, read_declared
from t1.verification.evidence import (
    GUARD_FILE,
    disagreement,
    outlived,
    planted_results,
    read_guard,
    readable,
    shell_state,
    system_changes,
    unseen,
)
from t1.verification.ground import clear_ground
from t1.verification.in_place import bring_tests, hold_against
from t1.verification.reference import Reference
from t1.verification.reports import LOGS, MAX_REPORT_BYTES, read_assertions, read_reward
from t1.verification.ways import read_ways

MAX_OUTPUT_BYTES = 16 << 10
LIST_S = 20.0
NO_USER_SITE: Mapping[str, str] = {"PYTHONNOUSERSITE": "1"}
"""The agent's ~/.local must not be imported by the verifier's Python, unless the author declares it as an output."""
GIT: Mapping[str, str] = {"core.fsmonitor": "false", "core.hooksPath": ".git/hooks"}
"""What a repository's own settings must not make the verifier's git run, unless the instruction names it."""
_LIST = f"if [ $$ = 1 ]; then kill -9 -1; else $T1_QUIET; fi 2>/dev/null; ls -1A {LOGS}"
"""Whatever the verifier started is gone before its results are read. The shell is process 1 and stays; one that is not
has a constant that says what spares it."""


class PristineVerifier:
    """The Verifier of design section 6: whatever goes wrong here is an infrastructure failure, never a zero."""

    def __init__(self, provider: SandboxProvider, *, timeout_s: float | None = None, partial: bool = False) -> None:
        """`partial`: a verifier that runs out of time but left a readable report counts for what had passed by then."""
        self._provider = provider
        self._timeout_s = timeout_s
        self._partial = partial
        self._reference = Reference(provider)

    async def verify(self, task: Task, sandbox: Sandbox) -> Verdict:
        """See `protocols.Verifier.verify`. Raises TaskError where the task's declarations make no sense."""
        started = time.monotonic()
        declared = read_declared(task)
        verdict = await (self._beside if declared.in_place else self._pristine)(task, sandbox, declared)
        tamper = tuple(map(readable, verdict.tamper))
        return replace(verdict, tamper=tamper, duration_s=time.monotonic() - started)

    async def _pristine(self, task: Task, sandbox: Sandbox, declared: Declared) -> Verdict:
        """The agent is stopped, its files judged elsewhere."""
        evidence = await shell_state(sandbox)
        changes = await sandbox.stop()
        evidence += await planted_results(sandbox) + outlived(changes)
        evidence += await self._clear(task, changes, declared)
        return await self._judge(task, changes, declared, evidence)

    async def _clear(self, task: Task, changes: FileChanges, declared: Declared) -> list[TamperEvidence]:
        async with self._reference.of(task) as image:
            found = await clear_ground(changes, declared, read_ways(task), image.read)
        return [*found, *system_changes(changes.uncarried), *unseen(changes)]

    async def _judge(
        self, task: Task, changes: FileChanges, declared: Declared, evidence: Sequence[TamperEvidence]
    ) -> Verdict:
        pristine = await self._provider.open_pristine(task, changes)
        try:
            ended, names = await self._run(task, pristine, _command(task, declared))
            return await self._read(task, pristine, ended, names, evidence)
        finally:
            await pristine.close()

    async def _beside(self, task: Task, sandbox: Sandbox, declared: Declared) -> Verdict:
        """The verifier runs in the agent's sandbox, which is stopped before the results are read."""
        evidence = await planted_results(sandbox) + await bring_tests(task, sandbox)
        ended, names = await self._run(task, sandbox, "env -i " + _command(task, declared, task.environment.env))
        changes = await sandbox.stop()
        # What would be taken back from under a pristine verifier has stood under this one.
        evidence += hold_against(await self._clear(task, changes, declared))
        verdict = await self._read(task, sandbox, ended, names, evidence)
        if declared.compared:
            pristine = await self._judge(task, changes, declared, ())
            verdict = replace(pristine, tamper=(*verdict.tamper, *disagreement(verdict, pristine)))
        return verdict

    async def _run(self, task: Task, sandbox: Sandbox, command: str) -> tuple[CommandResult, list[str] | None]:
        """Run the verifier; how it ended, and the names of its files where they can be listed."""
        timeout_s = self._timeout_s or task.verifier.timeout_s
        ended = await sandbox.run(command, timeout_s=timeout_s, max_output_bytes=MAX_OUTPUT_BYTES)
        if ended.timed_out and not self._partial:
            raise VerifierError(f"{task.id}: {_script(task)}: the verifier ran longer than {timeout_s:g} s")
        if ended.exit_code is None and not ended.timed_out:
            raise VerifierError(f"{task.id}: {_script(task)}: the verifier was killed: {_last(ended)}")
        listed = await sandbox.run(_LIST, timeout_s=LIST_S, max_output_bytes=MAX_REPORT_BYTES)
        return ended, listed.output.split("\n") if listed.exit_code == 0 else None

    async def _read(
        self,
        task: Task,
        sandbox: Sandbox,
        ended: CommandResult,
        names: Sequence[str] | None,
        evidence: Sequence[TamperEvidence],
    ) -> Verdict:
        """What the verifier's files say."""
        report = await read_assertions(sandbox, names)
        own_reward = None
        if report.results is not None:
            solved = not ended.timed_out and all(found.status is AssertionStatus.PASSED for found in report.results)
        elif ended.timed_out:
            raise VerifierError(f"{task.id}: {_script(task)}: ran out of time, and left no report: {report.error}")
        else:
            own_reward = await self._binary(task, sandbox, ended, report.error)
            solved = own_reward == 1.0
        error = "the verifier ran out of time; what had passed by then counts" if ended.timed_out else report.error
        guard = await _guard(sandbox)
        return Verdict(report.results, solved, (*evidence, *guard), report_error=error, own_reward=own_reward)

    async def _binary(self, task: Task, sandbox: Sandbox, ended: CommandResult, report_error: str) -> float:
        """The binary outcome, from reward.txt or reward.json."""
        try:
            reward = await read_reward(sandbox)
        except ValueError as error:
            raise VerifierError(f"{task.id}: {error}") from error
        if reward is None:
            missing = "" if (task.verifier.path / "test.sh").is_file() else "there is no such file; "
            reason = f"{missing}{report_error} and no reward; exit code {ended.exit_code}: {_last(ended)}"
            raise VerifierError(f"{task.id}: {_script(task)}: {reason}")
        return reward


async def _guard(sandbox: Sandbox) -> list[TamperEvidence]:
    """What a guard in the verifier's own process saw."""
    try:
        report = await sandbox.read(f"{LOGS}/{GUARD_FILE}", max_bytes=MAX_REPORT_BYTES)
    except SandboxVanished:
        raise
    except SandboxError:
        report = b"(unreadable)"
    return [] if report is None else read_guard(report)


def _command(task: Task, declared: Declared, inherited: Mapping[str, str] | None = None) -> str:
    """`bash /tests/test.sh` with the verifier's variables."""
    env = {**(inherited or {}), **_trusted(declared), **task.verifier.env}
    wrong = [name for name in env if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)]
    if wrong:
        raise VerifierError(f"{task.id}: verifier.env: {wrong[0]!r} is not the name of a variable")
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in env.items()), "bash /tests/test.sh"])


def _trusted(declared: Declared) -> dict[str, str]:
    """Variables that keep what the agent left from being run."""
    settings = {key: value for key, value in GIT.items() if not declared.names(key.partition(".")[2])}
    env = {} if declared.covers("/root/.local/lib") else dict(NO_USER_SITE)
    env |= {"GIT_CONFIG_COUNT": str(len(settings))} if settings else {}
    for number, (key, value) in enumerate(settings.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env


def _script(task: Task) -> str:
    return str(task.verifier.path / "test.sh")


def _last(ended: CommandResult) -> str:
    """The end of the verifier's output."""
    return ended.output.strip()[-500:] or "no output"
