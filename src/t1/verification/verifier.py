"""Runs a task's own verifier in a second, fresh sandbox over the files that the agent left.

The agent's processes are dead before it starts, its shell and environment are not carried, and what is read back lies
in a place that the agent never had. Boundary: this module speaks to sandboxes through the protocol only, and gives a
verdict or an error, never a score.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping

from t1.errors import SandboxError, SandboxVanished, VerifierError
from t1.protocols import Sandbox, SandboxProvider
from t1.types import AssertionResult, AssertionStatus, CommandResult, Task, Verdict
from t1.verification.reports import parse_ctrf, parse_reward

LOGS = "/logs/verifier"
MAX_REPORT_BYTES = 8 << 20
MAX_REWARD_BYTES = 64 << 10
MAX_OUTPUT_BYTES = 16 << 10
TRUSTED_ENV: Mapping[str, str] = {"PYTHONNOUSERSITE": "1"}
"""The agent's ~/.local must not be imported by the verifier's Python."""


class PristineVerifier:
    """The Verifier of design section 6: whatever goes wrong here is an infrastructure failure, never a zero."""

    def __init__(self, provider: SandboxProvider, *, timeout_s: float | None = None) -> None:
        self._provider = provider
        self._timeout_s = timeout_s

    async def verify(self, task: Task, sandbox: Sandbox) -> Verdict:
        """See `protocols.Verifier.verify`."""
        started = time.monotonic()
        changes = await sandbox.stop()
        pristine = await self._provider.open_pristine(task, changes)
        try:
            timeout_s = self._timeout_s or task.verifier.timeout_s
            ended = await pristine.run(_command(task), timeout_s=timeout_s, max_output_bytes=MAX_OUTPUT_BYTES)
            if ended.timed_out:
                raise VerifierError(f"{task.id}: the verifier ran longer than {timeout_s:g} s")
            if ended.exit_code is None:
                raise VerifierError(f"{task.id}: the verifier was killed: {_last(ended)}")
            assertions, report_error = await _report(pristine)
            if assertions is None:
                solved = await _reward(pristine, task, ended, report_error) == 1.0
            else:
                solved = all(found.status is AssertionStatus.PASSED for found in assertions)
        finally:
            await pristine.close()
        return Verdict(assertions, solved, duration_s=time.monotonic() - started, report_error=report_error)


def _command(task: Task) -> str:
    """`bash /tests/test.sh` with the verifier's variables."""
    env = {**TRUSTED_ENV, **task.verifier.env}
    wrong = [name for name in env if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)]
    if wrong:
        raise VerifierError(f"{task.id}: verifier.env: {wrong[0]!r} is not the name of a variable")
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in env.items()), "bash /tests/test.sh"])


async def _report(sandbox: Sandbox) -> tuple[tuple[AssertionResult, ...] | None, str]:
    """The assertions, or None and why there are none."""
    try:
        report = await sandbox.read(f"{LOGS}/ctrf.json", max_bytes=MAX_REPORT_BYTES)
        if report is None:
            return None, "the verifier wrote no ctrf.json"
        return parse_ctrf(report), ""
    except SandboxVanished:
        raise
    except (SandboxError, ValueError) as error:
        return None, f"ctrf.json: {error}"


async def _reward(sandbox: Sandbox, task: Task, ended: CommandResult, report_error: str) -> float:
    """The binary outcome, from reward.txt or reward.json."""
    for name in ("reward.txt", "reward.json"):
        text = await sandbox.read(f"{LOGS}/{name}", max_bytes=MAX_REWARD_BYTES)
        if text is None:
            continue
        try:
            return parse_reward(text, is_json=name.endswith(".json"))
        except ValueError as error:
            raise VerifierError(f"{task.id}: {name}: {error}") from error
    raise VerifierError(f"{task.id}: {report_error} and no reward; exit code {ended.exit_code}: {_last(ended)}")


def _last(ended: CommandResult) -> str:
    """The end of the verifier's output."""
    return ended.output.strip()[-500:] or "no output"
