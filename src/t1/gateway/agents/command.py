"""An agent that is a command line inside the sandbox: how it is started and how its end is told."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence

from t1.gateway.harness import AgentExit
from t1.protocols import Sandbox

HOME = "/tmp/agent"
"""The agent's own settings and logs, out of the task's way."""
TIMED_OUT = 124
KILLED = 137


async def run_command(
    sandbox: Sandbox, arguments: Sequence[str], environment: Mapping[str, str], deadline: float
) -> AgentExit:
    """Run a program in the sandbox's workdir, with nothing to read, until it ends or `deadline` (monotonic seconds)."""
    settings = [f"{name}={value}" for name, value in {"HOME": HOME, **environment}.items()]
    command = f"mkdir -p {HOME} && {shlex.join(['env', *settings, *arguments])} < /dev/null"
    ended = await sandbox.run(command, timeout_s=max(0.1, deadline - time.monotonic()))
    code = ended.exit_code
    if code is None:
        code = TIMED_OUT if ended.timed_out else KILLED
    return AgentExit(code, ended.output)
