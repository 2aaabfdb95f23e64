"""Claude Code and Codex, unmodified, each edit a file in a sandbox through the gateway: `make test-agents`.

They see no network but the gateway. The policy is scripted, with a call that fails, calls side by side and a sub-agent
among its lines; what is recorded must assemble and audit clean, whatever the agent does to its history.
"""

import json
import os
import socket
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

import t1
from t1.gateway.agents import ClaudeCode, Codex
from t1.gateway.config import GatewayConfig
from t1.gateway.harness import GatewayHarness
from t1.gateway.ledger import Recorded
from t1.gateway.rendering import renderer_for
from t1.sandboxes import NamespaceProvider, probe
from t1.testing.policies import ScriptedPolicy, call_text
from t1.testing.samplers import RoutingShape, ScriptedSampler
from t1.tito import AuditReport, assemble, audit
from t1.types import (
    Case,
    Environment,
    Episode,
    Limits,
    Outcome,
    RewardSource,
    Rollout,
    RolloutId,
    StopReason,
    Task,
    VerifierSpec,
)

BASE = Path(t1.__file__).parent / "base" / "qwen3-moe-shell"
AGENTS = Path(os.environ.get("T1_AGENTS", ".agents")).absolute()
PORT_INSIDE = 8000

pytestmark = pytest.mark.skipif(
    "T1_AGENTS" not in os.environ, reason="CLAUDE CODE AND CODEX ARE NOT TESTED HERE: run make test-agents"
)


def binary(pattern):
    """The agent's own program, not the script that looks for it."""
    return next(path for path in sorted(AGENTS.glob(f"node_modules/{pattern}")) if os.access(path, os.X_OK))


def version(package):
    """The installed version of an npm package."""
    return json.loads((AGENTS / "node_modules" / package / "package.json").read_text())["version"]


@pytest.fixture
def task(tmp_path):
    for name in ("environment", "tests"):
        (tmp_path / name).mkdir()
    (tmp_path / "environment" / "Dockerfile").write_text(
        "FROM scratch\nWORKDIR /app\nRUN printf 'alpha\\nbeta\\n' > notes.txt\n"
    )
    environment, tests = Environment(tmp_path / "environment"), VerifierSpec(tmp_path / "tests")
    return Task("edit", "d" * 64, "Replace beta by gamma in notes.txt.", environment, tests, Limits(120.0), tmp_path)


@dataclass(frozen=True, slots=True)
class Played:
    """What became of one run."""

    episode: Episode
    recorded: Recorded
    printed: str
    notes: bytes
    cases: tuple[Case, ...]
    """The case of every turn."""
    report: AuditReport


@pytest.fixture
def play(task):
    """Lets an agent work on the task with a scripted policy."""

    if (found := probe()).confinement is None:
        pytest.skip(f"CLAUDE CODE AND CODEX ARE NOT TESTED HERE: {found}")

    async def play_(program, lines, others=None):
        renderer, told = renderer_for(BASE), []
        policy = ScriptedPolicy(renderer, lines, others=others)
        sampler = ScriptedSampler(policy, max_context=1 << 20, routing=RoutingShape())
        port = free_port()
        harness = GatewayHarness(
            program,
            renderer,
            GatewayConfig(models=("policy",)),
            port=port,
            agent_url=f"http://127.0.0.1:{PORT_INSIDE}",
            listener=lambda recorded, ended: told.append((recorded, ended.output if ended else "")),
        )
        provider = NamespaceProvider(reach={PORT_INSIDE: ("127.0.0.1", port)}, readable=[AGENTS])
        try:
            sandbox = await provider.open(task)
            episode = await harness.run(task, sandbox, sampler, session="edit/0/0#1")
            notes = await sandbox.read("/app/notes.txt", max_bytes=1000)
        finally:
            await provider.close()
        outcome = Outcome(episode.stop, None, 0.0, RewardSource.BINARY)
        rollout = Rollout(RolloutId("edit", 0, 0), "d" * 64, episode.turns, outcome)
        trajectories = assemble(rollout.id, rollout.turns, boundary_ids=renderer.boundary_ids, decode=renderer.decode)
        report = audit(rollout, trajectories, vocab_size=None, num_experts=8, decode=renderer.decode)
        cases = {boundary.turn: boundary.case for one in trajectories for boundary in one.boundaries}
        return Played(episode, *told[0], notes, tuple(cases[turn] for turn in sorted(cases)), report)

    return play_


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def say(name, saying="", **arguments):
    return call_text(name, arguments, saying=saying)


def check(played, agent, its_version):
    """What holds for every agent: the task is done, every sampled token is trained as it was sampled."""
    assert played.episode.stop is StopReason.SUBMITTED, played.printed
    assert played.notes == b"alpha\ngamma\n", played.printed
    assert "Done." in played.printed
    assert played.report.findings == ()
    counters = played.report.counters
    assert counters["loss_region_drift"] == counters["residual"] == 0
    assert counters["sampled_tokens"] == sum(len(turn.completion) for turn in played.episode.turns)
    assert played.recorded.orphans == ()
    write_row(agent, its_version, played)


def write_row(agent, its_version, played):
    """Put what was seen into the table of docs/agents.md, where the run was asked to."""
    if not (docs := os.environ.get("T1_AGENTS_DOCS")):
        return
    cases = Counter(str(case) for case in played.cases)
    changes = Counter(str(change.kind) for change in played.recorded.changes)
    ignored = sorted(name.removeprefix("ignored.") for name in played.recorded.counts if name.startswith("ignored."))
    cells = [
        f"{agent} ({its_version})",
        str(len(played.episode.turns)),
        f"{max(len(turn.prompt) for turn in played.episode.turns):,}".replace(",", " "),
        ", ".join(f"{case} {count}" for case, count in cases.items()),
        str(played.report.counters["residual"]),
        ", ".join(f"{kind} {count}" for kind, count in sorted(changes.items())) or "nothing",
        ", ".join(f"`{name}`" for name in ignored),
    ]
    path, begin = Path(docs), f"| {agent} ("
    lines = path.read_text(encoding="utf-8").splitlines()
    row = f"| {' | '.join(cells)} |"
    path.write_text("\n".join(row if line.startswith(begin) else line for line in lines) + "\n", encoding="utf-8")


CLAUDE = [
    say("Bash", "<think>What is in it?</think>I look.\n", command="cat notes.txt", description="Read the notes"),
    say("Bash", command="sleep 0.3; ls", description="List") + "\n" + say("Read", file_path="/app/notes.txt"),
    say("Edit", "Now the edit.", file_path="/app/notes.txt", old_string="beta", new_string="gamma"),
    say("Edit", file_path="/app/notes.txt"),
    say("Agent", description="Count lines", prompt="COUNT-LINES of notes.txt", subagent_type="general-purpose"),
    "Done.",
]
CLAUDE_OTHERS = {"COUNT-LINES": [say("Bash", command="wc -l notes.txt", description="Count"), "Two lines."]}


async def test_claude_code_edits_a_file_and_every_token_is_trained_as_it_was_sampled(play):
    program = ClaudeCode(binary("@anthropic-ai/claude-code-*/claude"))
    played = await play(program, CLAUDE, CLAUDE_OTHERS)
    check(played, "Claude Code", version("@anthropic-ai/claude-code"))
    assert len(played.episode.turns) == len(CLAUDE) + 2
    sub_agent = 5
    assert played.cases[:3] == (Case.OPEN, Case.STRICT, Case.STRICT)
    assert played.cases[sub_agent] is Case.SPLIT


CODEX = [
    say("exec_command", "<think>What is in it?</think>I look.\n", cmd="cat notes.txt"),
    say("exec_command", cmd="sleep 0.3; ls") + "\n" + say("exec_command", cmd="pwd"),
    say("exec_command", "Now the edit.", cmd="sed -i s/beta/gamma/ notes.txt"),
    say("no_such_tool", cmd="ls"),
    say("exec_command", cmd=5),
    "Done.",
]


async def test_codex_edits_a_file_and_every_token_is_trained_as_it_was_sampled(play):
    program = Codex(binary("@openai/codex-*/vendor/*/bin/codex"))
    played = await play(program, CODEX)
    check(played, "Codex", version("@openai/codex"))
    assert played.cases == (Case.OPEN, *[Case.STRICT] * (len(CODEX) - 1))


def or_summary(line):
    """The line, unless a summary is asked for."""
    return lambda seen: "They want gamma for beta." if "handoff summary" in seen else line


async def test_a_summary_splits_and_loses_nothing(play):
    program = Codex(
        binary("@openai/codex-*/vendor/*/bin/codex"), arguments=["-c", "model_auto_compact_token_limit=24500"]
    )
    lines = [say("exec_command", cmd="cat notes.txt"), say("exec_command", cmd="seq 1000"), "Never said."]
    resumed = {"They want gamma": [say("exec_command", cmd="sed -i s/beta/gamma/ notes.txt"), "Done."]}
    played = await play(program, [or_summary(line) for line in lines], resumed)
    check(played, "Codex, summarising", version("@openai/codex"))
    assert played.cases == (Case.OPEN, Case.STRICT, Case.SPLIT, Case.SPLIT, Case.STRICT)
