"""Who works on the tasks: from the configuration's `[agent]` to a harness, and to what its sandboxes must see.

Boundary: names and constructors. The agents themselves are `t1.harness`, `t1.gateway.agents` and `t1.harbor.agent`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from t1.config import AgentSection, RunConfig
from t1.errors import ConfigError
from t1.gateway.agents import ClaudeCode, Codex, MiniSweAgent
from t1.gateway.config import GatewayConfig
from t1.gateway.conversation import ChatRenderer
from t1.gateway.harness import AgentProgram, GatewayHarness
from t1.gateway.rendering import renderer_for
from t1.harbor.agent import HarborAgent
from t1.harness import ChatMLRenderer, TerminalHarness
from t1.protocols import Harness, Renderer

TOKEN_NATIVE = "terminal"
IN_SANDBOX = ("claude-code", "codex")
"""Agents that are programs of the sandbox; they reach the gateway through the provider."""
HARBOR_PREFIX = "harbor:"
CALL_TOKENS = 1 << 16
"""Of one gateway reply, where the harness's own bound is wider still."""


def is_token_native(config: RunConfig) -> bool:
    """True where ids, and not text, are what harness and sampler exchange."""
    return config.agent.name == TOKEN_NATIVE


def harness_of(config: RunConfig, model: Path) -> tuple[Renderer | ChatRenderer, Harness]:
    """The renderer of the checkpoint `model` and the harness that the configuration names.

    Raises ConfigError for an agent that is not known, or whose program is not there.
    """
    if is_token_native(config):
        native = ChatMLRenderer.from_pretrained(model)
        return native, TerminalHarness(native, config.harness, keeps=config.tito.keep)
    if config.tito.keep == "text":
        raise ConfigError(f"tito.keep: {config.agent.name} goes through the gateway, which keeps tokens; use terminal")
    renderer = renderer_for(model, config.agent.family)
    limits = config.harness
    gateway = GatewayConfig(
        distribution=limits.sampling,
        max_tokens=min(limits.max_tokens_per_turn, CALL_TOKENS),
        max_turns=limits.max_turns,
        max_sampled_tokens=limits.max_sampled_tokens,
    )
    inside = config.agent.name in IN_SANDBOX
    harness = GatewayHarness(
        _program(config.agent),
        renderer,
        gateway,
        port=config.agent.port if inside else 0,
        agent_url=f"http://127.0.0.1:{config.agent.port}" if inside else "",
    )
    return renderer, harness


def sandbox_needs(config: RunConfig) -> dict[str, Any]:
    """What a provider must be given so that the agent can work: files that it sees, addresses that it reaches."""
    if config.agent.name not in IN_SANDBOX:
        return {}
    binary = _binary(config.agent)
    return {"readable": (_installation(binary),), "reach": {config.agent.port: ("127.0.0.1", config.agent.port)}}


def _program(agent: AgentSection) -> AgentProgram:
    makers: Mapping[str, Callable[[], AgentProgram]] = {
        "claude-code": lambda: ClaudeCode(_binary(agent)),
        "codex": lambda: Codex(_binary(agent)),
        "mini-swe-agent": MiniSweAgent,
        "terminus-2": lambda: HarborAgent("terminus-2", options={"record_terminal_session": False, **agent.options}),
    }
    if agent.name in makers:
        return makers[agent.name]()
    if agent.name.startswith(HARBOR_PREFIX):
        return HarborAgent(agent.name.removeprefix(HARBOR_PREFIX), options=agent.options)
    known = ", ".join([TOKEN_NATIVE, *makers])
    raise ConfigError(f"agent.name: {agent.name!r} is none of {known}, {HARBOR_PREFIX}NAME")


def _binary(agent: AgentSection) -> Path:
    path = Path(agent.binary).expanduser().absolute()
    if not agent.binary or not path.is_file():
        raise ConfigError(f"agent.binary: {agent.name} needs the path of its program, got {agent.binary!r}")
    return path


def _installation(binary: Path) -> Path:
    """The directory that holds all of an npm package: the one above `node_modules`, else the program's own."""
    for folder in binary.parents:
        if folder.name == "node_modules":
            return folder.parent
    return binary.resolve().parent
