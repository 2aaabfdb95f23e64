"""The control: a verifier that runs in the agent's own sandbox, from its own shell, and believes what it finds there.

This is what stacks without separate verification do. The suite shows beside each exploit whether it fools this one, so
that a suite in which nothing could ever go wrong would be seen. Boundary: never used for a score.
"""

from __future__ import annotations

import base64

from t1.errors import InfrastructureError
from t1.protocols import Sandbox
from t1.types import AssertionStatus, Task
from t1.verification.in_place import pack_tests
from t1.verification.reports import read_assertions, read_reward

NAIVE_S = 20.0


async def naive_reward(task: Task, sandbox: Sandbox) -> bool | None:
    """Whether the naive verifier finds everything done; None where it hangs or breaks."""
    packed = base64.encodebytes(pack_tests(task)).decode("ascii")
    try:
        await sandbox.run(f"mkdir -p /tests; base64 -d <<'T1' | tar -xf - -C /tests\n{packed}T1", timeout_s=NAIVE_S)
        ended = await sandbox.run("bash /tests/test.sh", timeout_s=NAIVE_S)
        await sandbox.stop()
        report = await read_assertions(sandbox, None)
        if report.results is not None:
            return all(found.status is AssertionStatus.PASSED for found in report.results)
        return None if ended.timed_out else await read_reward(sandbox) == 1.0
    except (InfrastructureError, ValueError):
        return None
