"""Harbor's agents as `AgentProgram`s: stock Terminus-2 (or another) works in our sandbox, and its model is our gateway.

The agent lives in a process of its own under Harbor's Python and borrows the sandbox (`link.py`, `work.py`). Boundary:
starts, bounds and ends that process; turns come from the gateway, verdicts from our verifier. No `harbor` here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t1.gateway.harness import AgentExit, Endpoint
from t1.harbor.link import lend
from t1.protocols import Sandbox
from t1.sandboxes.harbor.pythons import find_python
from t1.types import Task

GRACE_S = 5.0
"""How much longer than its agent's bound the process may live; half of it goes before the task's deadline."""
MAX_OUTPUT_CHARS = 4000
STATUS = {"done": 0, "time_limit": 124, "error": 1}


class HarborAgent:
    """An `AgentProgram`. `options` go to the agent's constructor as they are."""

    def __init__(
        self, agent: str = "terminus-2", *, python: Path | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        """`agent`: a stock agent's name, or `module.path:ClassName` under Harbor's Python."""
        self._agent = agent
        self._python = python
        self._options = dict(options or {})

    async def run(self, task: Task, sandbox: Sandbox, endpoint: Endpoint, deadline: float) -> AgentExit:
        """See `harness.AgentProgram.run`."""
        python = self._python or find_python()
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="t1-harbor-"))
        try:
            async with lend(sandbox, folder / "sandbox"):
                return await self._work(python, folder, task, endpoint, deadline)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _work(self, python: Path, folder: Path, task: Task, endpoint: Endpoint, deadline: float) -> AgentExit:
        logs = folder / "logs"
        await asyncio.to_thread(logs.mkdir)
        left = max(1.0, deadline - time.monotonic() - GRACE_S / 2)
        job = {
            "agent": self._agent,
            "model": f"openai/{endpoint.model}",
            "instruction": task.instruction.strip(),
            "socket": str(folder / "sandbox"),
            "logs": str(logs),
            "timeout_s": left,
            "options": {"api_base": endpoint.openai_url, **self._options},
        }
        process = await asyncio.create_subprocess_exec(
            python, "-m", "t1.harbor.work",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env=_environment(endpoint, folder), start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(left + GRACE_S):
                printed, _ = await process.communicate(json.dumps(job).encode())
        except TimeoutError:
            return AgentExit(STATUS["time_limit"], "the agent's process did not end in time and was killed")
        finally:
            await _end(process)
        return _exit_of(printed.decode(errors="replace"), process.returncode or 0)


def _environment(endpoint: Endpoint, folder: Path) -> dict[str, str]:
    """What the agent's process may see: its own key, and nothing of this process's secrets."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    return kept | {
        "HOME": str(folder),
        "OPENAI_API_KEY": endpoint.key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # it would ask the internet for prices
        "PYTHONUNBUFFERED": "1",
    }


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process's group, and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _exit_of(printed: str, status: int) -> AgentExit:
    """What the last line says, or that the process died before it could say it."""
    lines = printed.strip().splitlines()
    with contextlib.suppress(ValueError, KeyError, IndexError, TypeError):
        result = json.loads(lines[-1])
        return AgentExit(STATUS[result["ended"]], result["error"] or "\n".join(lines[:-1])[-MAX_OUTPUT_CHARS:])
    return AgentExit(status or 1, printed[-MAX_OUTPUT_CHARS:])
