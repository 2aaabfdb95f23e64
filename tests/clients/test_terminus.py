"""Harbor's stock Terminus-2, summarization on, through our collector, gateway, sandbox and verifier."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from t1.errors import UserError
from t1.gateway.config import GatewayConfig
from t1.gateway.harness import GatewayHarness
from t1.harbor.agent import HarborAgent
from t1.inference import TorchEngine, load_model
from t1.rollouts import Bounds, Collector
from t1.sandboxes import NamespaceProvider, probe
from t1.sandboxes.harbor.pythons import find_python
from t1.tasks.shell_basics import generate
from t1.testing.samplers import RoutingShape, ScriptedSampler
from t1.types import Case, FinishReason, RewardSource, RolloutId, StopReason, Task
from t1.verification import PristineVerifier

from .conftest import BASE

try:
    PYTHON: Path | None = find_python()
except UserError:
    PYTHON = None

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None, reason="TERMINUS-2 IS NOT TESTED HERE: it needs harbor, run make test-harbor"),
    pytest.mark.skipif(probe().confinement is None, reason="this host cannot open sandboxes"),
]
QUIET = {"record_terminal_session": False}


def reply(*keystrokes: str, complete: bool = False) -> str:
    """A turn as Terminus-2 parses it, with spacing that no library would choose."""
    commands = [{"keystrokes": keys + "\n", "duration": 0.2} for keys in keystrokes]
    said = {"analysis": "I see.", "plan": "On with it.", "commands": commands, "task_complete": complete}
    return json.dumps(said, indent=1, separators=(" ,", " : "))


class TerminusPolicy:
    """Solves a task in Terminus-2's format and answers what its summarization asks. One session each."""

    def __init__(self, renderer, lines: list[str]) -> None:
        self._renderer, self._lines = renderer, lines
        self.asked: Counter[str] = Counter()

    def __call__(self, prompt) -> list[int]:
        last = self._renderer.decode(prompt).rpartition("<|im_start|>user")[2]
        text = self._say(last)
        return [*self._renderer.encode(text).tolist(), self._renderer.stop_ids[0]]

    def _say(self, last: str) -> str:
        for kind, mark, text in (
            ("summary", "comprehensive summary", "I have read the task and run the first command."),
            ("questions", "asking several questions", "1. What is left? 2. Where? 3. How? 4. Why? 5. When?"),
            ("answers", "has a few questions", "Everything but the first command, in /app, by the shell."),
        ):
            if mark in last:
                self.asked[kind] += 1
                return text
        turn = self.asked["work"]
        self.asked["work"] += 1
        return reply(self._lines[turn]) if turn < len(self._lines) else reply(complete=True)


@pytest.fixture
async def tasks(tmp_path) -> list[Task]:
    suite = await generate(tmp_path / "suite", num_train=6, num_heldout=1, seed=5, provider=None)
    return list(suite.train)


@pytest.fixture
async def collect(renderer):
    """Runs one rollout of Terminus-2 with a sampler; the rollout and what the session recorded beside the turns."""
    provider = NamespaceProvider()

    async def run(task: Task, sampler, *, max_tokens: int = 256, max_turns: int | None = None, **options):
        records = []
        harness = GatewayHarness(
            HarborAgent(python=PYTHON, options=QUIET | options),
            renderer,
            GatewayConfig(models=("policy",), max_tokens=max_tokens, max_turns=max_turns),
            listener=lambda recorded, ended: records.append((recorded, ended)),
        )
        collector = Collector(
            harness=harness,
            provider=provider,
            verifier=PristineVerifier(provider),
            sampler=sampler,
            scorer=lambda verdict: (float(verdict.num_passed or 0), RewardSource.ASSERTIONS),
            bounds=Bounds(max_attempts=1),
        )
        return await collector.collect(task, RolloutId(task.id, 0, 0)), records[0]

    yield run
    await provider.close()


def solution(task: Task) -> list[str]:
    """The lines of the reference solution."""
    assert task.solution is not None
    text = task.solution.read_text().splitlines()
    return [line for line in text if line.strip() and not line.startswith(("#", "set "))]


async def test_it_solves_a_task_and_its_turns_join_strictly(collect, tasks, renderer, check):
    task = max(tasks, key=lambda task: len(solution(task)))
    policy = TerminusPolicy(renderer, solution(task))
    sampler = ScriptedSampler(policy, max_context=1 << 20, routing=RoutingShape())
    rollout, _ = await collect(task, sampler)
    assert rollout.outcome.failure is None, rollout.outcome.failure
    assert rollout.outcome.solved and rollout.outcome.stop is StopReason.SUBMITTED
    assert len(rollout.turns) == len(solution(task)) + 2, "it asks twice whether the task is complete"
    trajectories, report = check(rollout.turns)
    assert report.findings == ()
    assert [b.case for t in trajectories for b in t.boundaries] == [Case.OPEN] + [Case.STRICT] * (
        len(rollout.turns) - 1
    )


async def test_its_summaries_open_segments_and_no_token_is_lost(collect, tasks, renderer, check):
    """Case T1's kind: the history is rewritten by the agent itself. Stock collection loses or merges such turns."""
    task = max(tasks, key=lambda task: len(solution(task)))
    policy = TerminusPolicy(renderer, ["ls -la /app", *solution(task)])
    sampler = ScriptedSampler(policy, max_context=1 << 20, routing=RoutingShape())
    room = {"max_input_tokens": 10_000, "max_output_tokens": 512}
    rollout, _ = await collect(task, sampler, model_info=room, proactive_summarization_threshold=8800)
    assert rollout.outcome.failure is None, rollout.outcome.failure
    assert policy.asked["summary"] >= 1 and policy.asked["questions"] >= 1 and policy.asked["answers"] >= 1
    assert len(rollout.turns) == policy.asked.total()
    trajectories, report = check(rollout.turns)
    assert report.findings == ()
    assert report.counters["sampled_tokens"] == rollout.num_sampled
    cases = Counter(b.case for t in trajectories for b in t.boundaries)
    assert cases[Case.SPLIT] >= 1 and cases[Case.STRICT] >= 1
    assert rollout.outcome.solved


async def test_the_embedded_engine_drives_it_turn_by_turn(collect, tasks, check):
    """The small model cannot write Terminus-2's JSON: it is told so, and asked again; every token is on record."""
    model = load_model(BASE)
    model.config.max_position_embeddings = 1 << 14  # its positions are rotations: there are always more
    engine = TorchEngine(model, max_context=1 << 14, num_threads=1)
    try:
        rollout, _ = await collect(tasks[0], engine, max_tokens=16, max_turns=4)
    finally:
        await engine.aclose()
    assert rollout.outcome.failure is None, rollout.outcome.failure
    assert len(rollout.turns) == 4 and rollout.outcome.stop is StopReason.TURN_LIMIT
    assert {turn.finish for turn in rollout.turns} == {FinishReason.LENGTH}, "cut replies stay, each a turn (case T10)"
    assert all(turn.routing is not None for turn in rollout.turns)
    _, report = check(rollout.turns, rollout.outcome.stop)
    assert report.findings == ()
    assert report.counters["sampled_tokens"] == rollout.num_sampled


async def test_a_python_without_harbor_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("T1_HARBOR_PYTHON", str(tmp_path / "nothing"))
    with pytest.raises(UserError, match="make test-harbor"):
        find_python()
