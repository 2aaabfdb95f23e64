"""Waiting until a sandbox is ready, as its task's health check tells. Boundary: commands in, patience or error out."""

from __future__ import annotations

import asyncio
import time

from t1.errors import SandboxError
from t1.protocols import Sandbox
from t1.types import Healthcheck


async def become_healthy(sandbox: Sandbox, check: Healthcheck) -> None:
    """Ask until the answer is yes. Raises SandboxError when it stays no."""
    began, left = time.monotonic(), check.retries
    while True:
        ended = await sandbox.run(f"( {check.command}\n)", timeout_s=check.timeout_s)
        if ended.exit_code == 0:
            return
        if time.monotonic() - began >= check.start_period_s:
            left -= 1
        if left <= 0:
            raise SandboxError(f"unhealthy after {check.retries} tries: {check.command}: {ended.output.strip()[-300:]}")
        await asyncio.sleep(check.interval_s)
