"""Claude Code, unmodified, as a program inside the sandbox. It speaks Anthropic's messages, streamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from t1.gateway.agents.command import run_command
from t1.gateway.harness import AgentExit, Endpoint
from t1.protocols import Sandbox
from t1.types import Task

QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
}
"""It has nobody to talk to but the gateway."""


class ClaudeCode:
    """An `AgentProgram`. The sandbox must see `binary` (a provider's `readable`) and reach the gateway."""

    def __init__(
        self, binary: Path, *, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        """`arguments` and `environment` are added to what is always given."""
        self._binary, self._arguments, self._environment = binary, tuple(arguments), dict(environment or {})

    async def run(self, task: Task, sandbox: Sandbox, endpoint: Endpoint, deadline: float) -> AgentExit:
        """See `harness.AgentProgram.run`."""
        model = endpoint.model
        environment = {
            **QUIET,
            "ANTHROPIC_BASE_URL": endpoint.base_url,
            "ANTHROPIC_API_KEY": endpoint.key,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,  # of its small errands
            "API_TIMEOUT_MS": "3600000",
            "IS_SANDBOX": "1",  # it may do all that it likes there, as root too
            **self._environment,
        }
        options = ["--model", model, "--dangerously-skip-permissions", *self._arguments]
        prompt = task.instruction.strip()
        return await run_command(sandbox, [str(self._binary), *options, "-p", prompt], environment, deadline)
