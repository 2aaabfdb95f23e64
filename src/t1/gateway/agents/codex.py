"""Codex CLI, unmodified, as a program inside the sandbox. It speaks OpenAI's responses, streamed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t1.gateway.agents.command import HOME, run_command
from t1.gateway.harness import AgentExit, Endpoint
from t1.protocols import Sandbox
from t1.types import Task

KEY = "T1_GATEWAY_KEY"
"""The environment variable that the key travels in."""


class Codex:
    """An `AgentProgram`. The sandbox must see `binary` (a provider's `readable`) and reach the gateway."""

    def __init__(
        self, binary: Path, *, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        """`arguments` and `environment` are added to what is always given."""
        self._binary, self._arguments, self._environment = binary, tuple(arguments), dict(environment or {})

    async def run(self, task: Task, sandbox: Sandbox, endpoint: Endpoint, deadline: float) -> AgentExit:
        """See `harness.AgentProgram.run`."""
        settings = [part for name, value in _settings(endpoint).items() for part in ("-c", f"{name}={_toml(value)}")]
        options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", *settings, *self._arguments]
        environment = {KEY: endpoint.key, "CODEX_HOME": HOME, **self._environment}
        command = [str(self._binary), "exec", *options, "--", task.instruction.strip()]
        return await run_command(sandbox, command, environment, deadline)


def _settings(endpoint: Endpoint) -> dict[str, Any]:
    """What would stand in its config.toml."""
    provider = {
        "name": "T1",
        "base_url": endpoint.openai_url,
        "wire_api": "responses",
        "env_key": KEY,
        "stream_idle_timeout_ms": 3_600_000,
    }
    named = {f"model_providers.t1.{name}": value for name, value in provider.items()}
    quiet = {"analytics.enabled": False, "check_for_update_on_startup": False}
    return {"model": endpoint.model, "model_provider": "t1", **named, **quiet}


def _toml(value: Any) -> str:
    """A text, number or truth value as TOML; JSON spells these three alike."""
    return json.dumps(value)
