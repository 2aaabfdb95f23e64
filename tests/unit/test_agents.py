"""From `[agent]` to a harness, and to what its sandboxes must see."""

from __future__ import annotations

from pathlib import Path

import pytest

from t1.agents import harness_of, is_token_native, sandbox_needs
from t1.base import base_path
from t1.config import load_config
from t1.errors import ConfigError
from t1.gateway.harness import GatewayHarness
from t1.harness import ChatMLRenderer, TerminalHarness


def test_the_default_is_token_native() -> None:
    config = load_config()
    renderer, harness = harness_of(config, base_path())
    assert is_token_native(config) and sandbox_needs(config) == {}
    assert isinstance(renderer, ChatMLRenderer) and isinstance(harness, TerminalHarness)


@pytest.mark.parametrize("name", ["terminus-2", "mini-swe-agent", "harbor:openhands", "harbor:my.module:Agent"])
def test_agents_on_our_side_need_nothing_of_the_sandbox(name: str) -> None:
    config = load_config(overrides=[f"agent.name={name}"])
    renderer, harness = harness_of(config, base_path())
    assert isinstance(harness, GatewayHarness) and not is_token_native(config)
    assert renderer.stop_ids == ChatMLRenderer.from_pretrained(base_path()).stop_ids
    assert sandbox_needs(config) == {}


def test_an_agent_inside_the_sandbox_sees_its_package_and_reaches_the_gateway(tmp_path: Path) -> None:
    program = tmp_path / "agents" / "node_modules" / ".bin" / "claude"
    program.parent.mkdir(parents=True)
    program.touch()
    config = load_config(overrides=["agent.name=claude-code", f"agent.binary={program}", "agent.port=9000"])
    assert isinstance(harness_of(config, base_path())[1], GatewayHarness)
    assert sandbox_needs(config) == {"readable": (tmp_path / "agents",), "reach": {9000: ("127.0.0.1", 9000)}}


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["agent.name=claudecode"], "'claudecode' is none of terminal, claude-code"),
        (["agent.name=codex"], "codex needs the path of its program"),
        (["agent.name=codex", "agent.binary=/nowhere/codex"], "/nowhere/codex"),
    ],
)
def test_what_cannot_work_is_named(overrides: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        harness_of(load_config(overrides=overrides), base_path())
