"""Verification beside the agent's live services, for tasks that declare `in_place`.

The tests travel into the agent's own sandbox through its shell, which may be hostile: this is weaker than a pristine
sandbox. Boundary: moves files and looks at the shell; the verifier itself is run by `verifier`.
"""

from __future__ import annotations

import base64
import io
import tarfile
from collections.abc import Iterable
from dataclasses import replace

from t1.errors import VerifierError
from t1.protocols import Sandbox
from t1.types import TamperEvidence, TamperLevel, Task
from t1.verification.evidence import shell_state
from t1.verification.reports import LOGS

MAX_TESTS_BYTES = 64 << 20
BRING_S = 60.0
INFLUENTIAL = frozenset(
    ("command-shim", "pytest-setting", "standard-module", "test-runner", "python-path", "shell-function")
)
"""Rules about what a verifier in the agent's own sandbox would have used."""

_CLEAR = f"\\unalias -a; /bin/rm -rf /tests/* /tests/.[!.]* {LOGS} && /bin/mkdir -p /tests {LOGS}"


async def bring_tests(task: Task, sandbox: Sandbox) -> list[TamperEvidence]:
    """Lay the tests out at /tests, with /logs/verifier empty; what the shell has redefined is evidence.

    Raises VerifierError where the sandbox has no room for them.
    """
    evidence = hold_against(await shell_state(sandbox))
    packed = base64.encodebytes(pack_tests(task)).decode("ascii")
    command = f"{_CLEAR} && /usr/bin/base64 -d <<'T1' | /bin/tar -xf - -C /tests\n{packed}T1"
    brought = await sandbox.run(command, timeout_s=BRING_S)
    listed = await sandbox.run("/bin/ls /tests/test.sh", timeout_s=BRING_S)
    if brought.exit_code != 0 or listed.exit_code != 0:
        raise VerifierError(
            f"{task.id}: in_place: the tests cannot be brought to /tests: {brought.output.strip()[-300:]}. "
            "Its sandbox must let /tests be written, as namespaces and containers do"
        )
    return evidence


def hold_against(evidence: Iterable[TamperEvidence]) -> list[TamperEvidence]:
    """The same evidence; what was only noted, because it is taken back in time elsewhere, weighs here."""
    return [replace(found, level=TamperLevel.TAMPERING) if found.rule in INFLUENTIAL else found for found in evidence]


def pack_tests(task: Task) -> bytes:
    """The tests as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(task.verifier.path.glob("*")):
            archive.add(
                path, path.name, filter=lambda member: member.replace(uid=0, gid=0, uname="", gname="", deep=False)
            )
    if buffer.tell() > MAX_TESTS_BYTES:
        raise VerifierError(
            f"{task.id}: {task.verifier.path}: larger than {MAX_TESTS_BYTES} bytes, too large to travel"
        )
    return buffer.getvalue()
