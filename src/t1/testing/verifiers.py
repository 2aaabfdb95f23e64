"""A Verifier that knows its verdict. Held to the same contract test as the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from t1.protocols import Sandbox
from t1.types import AssertionResult, AssertionStatus, TamperEvidence, TamperLevel, Task, Verdict

Judge = Verdict | Callable[[Task, Sandbox], Verdict]
"""The verdict, or a function that gives it; the sandbox is stopped by then."""


def verdict_of(*passed: bool) -> Verdict:
    """A verdict with one assertion a flag."""
    results = tuple(
        AssertionResult(f"assertion {i}", AssertionStatus.PASSED if flag else AssertionStatus.FAILED)
        for i, flag in enumerate(passed)
    )
    return Verdict(results, solved=bool(passed) and all(passed))


def tampered_verdict(level: TamperLevel = TamperLevel.TAMPERING) -> Verdict:
    """A solved task with one piece of evidence against the agent."""
    evidence = TamperEvidence("link-to-verifier", "/app/output.txt", "shows the verifier's own files", level)
    return replace(verdict_of(True), tamper=(evidence,))


class FakeVerifier:
    """Stops the sandbox and gives its verdict.

    `failures` are raised by the next verifications, one each. `delay_s`: how long a verdict takes.
    """

    def __init__(self, judge: Judge | None = None, *, failures: Sequence[Exception] = (), delay_s: float = 0.0) -> None:
        self._judge = verdict_of(True) if judge is None else judge
        self._failures = list(failures)
        self._delay_s = delay_s
        self.verified: list[str] = []
        """Id of the task of every call."""

    async def verify(self, task: Task, sandbox: Sandbox) -> Verdict:
        """See `protocols.Verifier.verify`."""
        self.verified.append(task.id)
        await sandbox.stop()
        await asyncio.sleep(self._delay_s)
        if self._failures:
            raise self._failures.pop(0)
        return self._judge if isinstance(self._judge, Verdict) else self._judge(task, sandbox)
