"""Foreign agents as a harness: turns are the gateway's, the end is the agent's, the collector sees no difference."""

import asyncio
import itertools
import time

import pytest

from t1.errors import AgentError, EngineUnavailable
from t1.gateway.capture import read_log
from t1.gateway.config import GatewayConfig
from t1.gateway.harness import AgentExit, GatewayHarness
from t1.gateway.ledger import Closing, Exchange
from t1.gateway.sessions import Gateway
from t1.rollouts import Collector
from t1.rollouts.sources import collect_all
from t1.testing.agents import TextAgent
from t1.testing.chat_renderers import CharacterChatRenderer
from t1.testing.samplers import RoutingShape, ScriptedSampler
from t1.testing.sandboxes import FakeSandboxProvider
from t1.testing.tasks import example_task
from t1.testing.verifiers import FakeVerifier, verdict_of
from t1.tito import assemble, audit
from t1.types import RewardSource, RolloutId, StopReason

RENDERER = CharacterChatRenderer()
TASK = example_task()


def policy(*texts, **options):
    script = [[*RENDERER.encode(text).tolist(), 1] for text in texts]
    return ScriptedSampler(script, routing=RoutingShape(), **options)


class Program:
    """An agent that is a coroutine function."""

    def __init__(self, run):
        self._run = run

    async def run(self, task, sandbox, endpoint, deadline):
        return await self._run(task, sandbox, endpoint, deadline)


async def run(program, sampler, task=TASK, **config):
    told = []
    harness = GatewayHarness(program, RENDERER, GatewayConfig(**config), listener=lambda *what: told.append(what))
    sandbox = await FakeSandboxProvider().open(task)
    return await harness.run(task, sandbox, sampler, session="s", seed=1), told


async def test_what_the_policy_says_is_done_and_recorded():
    episode, told = await run(TextAgent(), policy("echo one > /app/a", "cat /app/a", "exit"))
    assert episode.stop is StopReason.SUBMITTED
    assert [turn.action for turn in episode.turns] == ["echo one > /app/a", "cat /app/a", "exit"]
    assert episode.turns[1].observation.strip() == "one"
    ((recorded, ended),) = told
    assert ended == AgentExit(0, "told to exit") and recorded.turns is not None and not recorded.changes


async def test_a_crash_of_the_agent_is_data():
    episode, _ = await run(TextAgent(exit_code=3), policy("echo one", "exit"))
    assert episode.stop is StopReason.CRASHED and len(episode.turns) == 2


@pytest.mark.parametrize(
    ("limits", "stop", "num_turns"),
    [
        ({"max_turns": 2}, StopReason.TURN_LIMIT, 2),
        ({"max_sampled_tokens": 12}, StopReason.TOKEN_LIMIT, 2),
    ],
)
async def test_the_sessions_limits_end_the_episode(limits, stop, num_turns):
    episode, _ = await run(TextAgent(), policy("echo one", "echo two", "echo three", "exit"), **limits)
    assert episode.stop is stop and len(episode.turns) == num_turns


async def test_an_agent_that_asks_again_and_again_after_its_limits_is_stopped():
    """Case T11: it would burn its whole time."""
    asked = []

    async def stubborn(task, sandbox, endpoint, deadline):
        while True:
            asked.append(await TextAgent().run(task, sandbox, endpoint, deadline))

    harness = GatewayHarness(Program(stubborn), RENDERER, GatewayConfig(max_turns=2), grace_s=0.1)
    sandbox = await FakeSandboxProvider().open(TASK)
    episode = await harness.run(TASK, sandbox, policy("echo one", "echo two", "exit"), session="s")
    assert episode.stop is StopReason.TURN_LIMIT and len(episode.turns) == 2 and asked


async def test_a_full_context_ends_the_episode():
    """Case T11."""
    episode, _ = await run(TextAgent(), policy("echo one", "echo two", "exit", max_context=80))
    assert episode.stop is StopReason.TOKEN_LIMIT and len(episode.turns) < 3


async def test_the_time_limit_cancels_the_agent_and_keeps_its_turns():
    cancelled = []

    async def slow(task, sandbox, endpoint, deadline):
        await TextAgent().run(task, sandbox, endpoint, deadline)
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.append(True)

    episode, told = await run(Program(slow), policy("exit"), example_task(agent_timeout_s=0.5))
    assert episode.stop is StopReason.TIME_LIMIT and len(episode.turns) == 1 and cancelled
    assert told[0][1] is None


async def test_an_agent_that_ends_itself_at_the_limit_met_the_time_limit():
    async def killed(task, sandbox, endpoint, deadline):
        await TextAgent().run(task, sandbox, endpoint, deadline)
        await asyncio.sleep(deadline - time.monotonic())
        return AgentExit(124)

    episode, _ = await run(Program(killed), policy("exit"), example_task(agent_timeout_s=0.5))
    assert episode.stop is StopReason.TIME_LIMIT


async def test_an_engine_that_fails_is_infrastructure_even_if_the_agent_exits_well():
    async def shrugs(task, sandbox, endpoint, deadline):
        await TextAgent().run(task, sandbox, endpoint, deadline)
        return AgentExit(0)

    with pytest.raises(EngineUnavailable):
        await run(Program(shrugs), policy("echo one", "exit", failures={1: EngineUnavailable("gone")}))


async def test_an_agent_that_never_calls_is_infrastructure_and_says_what_it_printed():
    async def missing(task, sandbox, endpoint, deadline):
        return AgentExit(127, "sh: agent: not found")

    with pytest.raises(AgentError, match="agent: not found"):
        await run(Program(missing), policy("exit"))


async def test_a_bug_of_the_adapter_crashes():
    async def broken(task, sandbox, endpoint, deadline):
        raise KeyError("bug")

    with pytest.raises(KeyError):
        await run(Program(broken), policy("exit"))


def collector_of(harness, sampler, provider):
    return Collector(
        harness=harness,
        provider=provider,
        verifier=FakeVerifier(verdict_of(True, False)),
        sampler=sampler,
        scorer=lambda verdict: (float(verdict.num_passed or 0), RewardSource.ASSERTIONS),
    )


async def test_the_collector_runs_foreign_agents_many_at_once():
    harness = GatewayHarness(TextAgent(), RENDERER)
    sampler, provider = policy("echo one", "echo two", "exit", delay_s=0.01), FakeSandboxProvider()
    launches = [(TASK, RolloutId(TASK.id, 0, member), member) for member in range(8)]
    rollouts = await collect_all(collector_of(harness, sampler, provider), launches, max_concurrent=8)
    assert len({asked.session for asked in sampler.asked}) == 8
    for rollout in rollouts:
        assert rollout.outcome.reward == 1.0 and rollout.outcome.stop is StopReason.SUBMITTED
        trajectories = assemble(rollout.id, rollout.turns)
        assert not audit(rollout, trajectories, vocab_size=None, num_experts=8).findings
        assert len(trajectories) == 1 and trajectories[0].num_actions == rollout.num_sampled
    seeds = [asked.params.seed for asked in sampler.asked]
    assert sorted(seeds) == sorted(m * 4096 + n for m, n in itertools.product(range(8), range(3)))
    assert not provider.live and not harness.num_serving


async def test_the_collector_launches_again_what_the_engine_spoiled():
    harness = GatewayHarness(TextAgent(), RENDERER)
    sampler = policy("echo one", "exit", failures={1: EngineUnavailable("gone")})
    collector = collector_of(harness, sampler, FakeSandboxProvider())
    rollout = await collector.collect(TASK, RolloutId(TASK.id, 0, 0), seed=1)
    assert rollout.attempts == 2 and rollout.outcome.reward == 1.0
    assert collector.failures == {"EngineUnavailable": 1}


async def test_what_a_dead_process_left_open_is_closed_before_the_name_is_used_again(tmp_path):
    left = Gateway(policy("one"), RENDERER, record=tmp_path)
    left.open("s")
    await left.aclose(keep_open=True)
    harness = GatewayHarness(TextAgent(), RENDERER, record=tmp_path)
    for sampler in (policy("echo one", "exit"), policy("exit")):
        sandbox = await FakeSandboxProvider().open(TASK)
        episode = await harness.run(TASK, sandbox, sampler, session="s")
    assert len(episode.turns) == 1
    logs = [read_log(path)[0] for path in tmp_path.glob("*.session")]
    assert sorted(sum(isinstance(entry, Exchange) for entry in log) for log in logs) == [0, 1, 2]
    assert all(isinstance(log[-1], Closing) for log in logs)
