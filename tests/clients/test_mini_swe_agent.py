"""mini-swe-agent from PyPI, unmodified, through the harness, in a real sandbox."""

import asyncio
import re
import time

import pytest

from t1.errors import SandboxVanished
from t1.gateway.agents import MiniSweAgent
from t1.gateway.config import GatewayConfig
from t1.gateway.harness import Endpoint, GatewayHarness
from t1.testing.policies import ScriptedPolicy, call_text
from t1.testing.samplers import RoutingShape, ScriptedSampler
from t1.types import Case, StopReason

# litellm's own, on its first call.
pytestmark = pytest.mark.filterwarnings("ignore:Items? .* using the `ReadOnly` qualifier:UserWarning")
LOOK = call_text("bash", {"command": "cd / && cat /app/secret.txt"}, saying="I look.")
SUBMIT = call_text("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"})


def write_word(observed):
    (word,) = re.findall(r"p\w+n", observed)
    return call_text("bash", {"command": f"echo {word} > answer.txt"}, saying="It says so. ")


@pytest.fixture
def run_agent(renderer, task, sandbox):
    """Runs the agent against the lines of a policy."""

    async def run(lines, **settings):
        config = GatewayConfig(models=("policy",), **settings)
        sampler = ScriptedSampler(ScriptedPolicy(renderer, lines), max_context=1 << 16, routing=RoutingShape())
        harness = GatewayHarness(MiniSweAgent(command_timeout_s=5), renderer, config)
        async with asyncio.timeout(60):
            return await harness.run(task, sandbox, sampler, session="secret/0/0#1")

    return run


async def test_it_solves_a_task_and_its_turns_join_strictly(run_agent, sandbox, check):
    episode = await run_agent([LOOK, write_word, SUBMIT])
    assert await sandbox.read("/app/answer.txt", max_bytes=100) == b"pumpkin\n"
    assert (len(episode.turns), episode.stop) == (3, StopReason.SUBMITTED)
    trajectories, report = check(episode.turns)
    assert report.findings == ()
    assert [boundary.case for boundary in trajectories[0].boundaries] == [Case.OPEN, Case.STRICT, Case.STRICT]


async def test_a_reply_that_it_cannot_parse_leaves_its_history_and_is_trained_all_the_same(run_agent, check):
    """Case T12: the mistake comes back as an observation, without the reply that made it: a split, never a loss."""

    def wrong_then_right(observed):
        return SUBMIT if "Tool call error" in observed else call_text("python", {"code": "1"})

    episode = await run_agent([wrong_then_right])
    assert (len(episode.turns), episode.stop) == (2, StopReason.SUBMITTED)
    trajectories, report = check(episode.turns)
    assert report.findings == ()
    assert [boundary.case for one in trajectories for boundary in one.boundaries] == [Case.OPEN, Case.SPLIT]
    assert report.counters["sampled_tokens"] == sum(len(turn.completion) for turn in episode.turns)


async def test_a_limit_of_the_session_ends_it_at_once(run_agent, check):
    episode = await run_agent([LOOK], max_turns=2)
    assert (len(episode.turns), episode.stop) == (2, StopReason.TURN_LIMIT)


async def test_a_sandbox_that_vanishes_is_nobodys_score(run_agent, sandbox):
    await sandbox.stop()
    with pytest.raises(SandboxVanished):
        await run_agent([LOOK])


async def test_an_agent_that_gives_up_has_another_status(task, sandbox):
    endpoint = Endpoint("http://127.0.0.1:9", "key1", "policy")  # nobody listens there
    ended = await MiniSweAgent().run(task, sandbox, endpoint, time.monotonic() + 60)
    assert ended.code == 1
    assert "InternalServerError" in ended.output or "Connection" in ended.output
