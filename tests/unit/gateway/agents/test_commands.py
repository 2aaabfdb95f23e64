"""How agents inside a sandbox are started, and how their end is told. The agents themselves: `make test-agents`."""

import shlex
import time
from pathlib import Path

import pytest

from t1.gateway.agents import ClaudeCode, Codex
from t1.gateway.agents.command import KILLED, TIMED_OUT
from t1.gateway.harness import AgentExit, Endpoint
from t1.testing.sandboxes import FakeSandboxProvider
from t1.testing.tasks import example_task
from t1.types import CommandResult

ENDPOINT = Endpoint("http://127.0.0.1:8000", "t1-key", "policy")
INSTRUCTION = "Say 'hi'; rm -rf $HOME `x`\nand \"bye\""


async def started(program, answer="fine"):
    """The words of the command line that the program starts, its settings, and its end."""
    provider = FakeSandboxProvider(script=lambda sandbox, command: answer)
    sandbox = await provider.open(example_task())
    ended = await program.run(example_task(instruction=INSTRUCTION), sandbox, ENDPOINT, time.monotonic() + 60)
    (command,) = sandbox.commands
    words = shlex.split(command)
    assert words[-2:] == ["<", "/dev/null"]
    words = words[words.index("env") + 1 : -2]
    settings = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("-"))
    return words, settings, ended


async def test_claude_code_finds_the_gateway_and_nobody_else():
    words, settings, ended = await started(ClaudeCode(Path("/agents/claude"), arguments=["--max-turns", "9"]))
    assert settings["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8000"
    assert settings["ANTHROPIC_API_KEY"] == "t1-key"
    assert settings["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"
    assert words[words.index("--model") + 1] == "policy"
    assert words[words.index("--max-turns") + 1] == "9"
    assert words[-2:] == ["-p", INSTRUCTION]
    assert ended == AgentExit(0, "fine")


async def test_codex_finds_the_gateway_and_nobody_else():
    words, settings, ended = await started(Codex(Path("/agents/codex"), environment={"EXTRA": "1"}))
    options = [words[i + 1] for i, word in enumerate(words) if word == "-c"]
    assert 'model_providers.t1.base_url="http://127.0.0.1:8000/v1"' in options
    assert 'model_providers.t1.wire_api="responses"' in options
    assert "analytics.enabled=false" in options
    assert settings["T1_GATEWAY_KEY"] == "t1-key"
    assert settings["EXTRA"] == "1"
    assert words[-2:] == ["--", INSTRUCTION]
    assert ended.code == 0


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (CommandResult("usage", 2, 0.1), 2),
        (CommandResult("…", None, 60.0, timed_out=True), TIMED_OUT),
        (CommandResult("…", None, 1.0, shell_restarted=True), KILLED),
    ],
    ids=["its own", "time", "killed"],
)
async def test_the_end_of_a_program_is_an_exit_status(result, code):
    _, _, ended = await started(ClaudeCode(Path("/agents/claude")), result)
    assert ended == AgentExit(code, result.output)
