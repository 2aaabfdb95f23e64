"""What every Harness keeps, fake and real, token-native or around a text client."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import numpy as np
import pytest

from t1.errors import EngineTimeout, SandboxVanished
from t1.gateway.harness import GatewayHarness
from t1.harness import TerminalConfig, TerminalHarness
from t1.protocols import Harness
from t1.routing import join
from t1.testing.agents import TextAgent
from t1.testing.chat_renderers import CharacterChatRenderer
from t1.testing.harnesses import ScriptedHarness
from t1.testing.renderers import CharacterRenderer
from t1.testing.samplers import RoutingShape, ScriptedSampler, made_up_routing
from t1.testing.sandboxes import FakeSandbox, FakeSandboxProvider
from t1.testing.tasks import example_task
from t1.types import Episode, StopReason

RENDERER = CharacterRenderer()
SHAPE = RoutingShape()


@pytest.fixture(params=["scripted", "terminal", "gateway"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def harness_of(kind: str) -> Harness:
    """A harness that runs `echo one`, then `echo two`, then stops."""
    if kind == "scripted":
        return ScriptedHarness(["echo one", "echo two"])
    if kind == "gateway":
        return GatewayHarness(TextAgent(), CharacterChatRenderer())
    return TerminalHarness(RENDERER, TerminalConfig())


def sampler_of(kind: str, delay_s: float = 0.0, **failures: Exception) -> ScriptedSampler:
    """A policy that writes those commands and submits."""
    renderer = CharacterChatRenderer() if kind == "gateway" else RENDERER
    script = [renderer.encode(text).tolist() for text in ("echo one", "echo two", "exit")]
    raised = {int(call.removeprefix("call")): error for call, error in failures.items()}
    return ScriptedSampler(script, version=3, routing=SHAPE, failures=raised, delay_s=delay_s)


async def run(kind: str, sampler: ScriptedSampler, provider: FakeSandboxProvider | None = None) -> Episode:
    task = example_task()
    sandbox = await (provider or FakeSandboxProvider()).open(task)
    return await harness_of(kind).run(task, sandbox, sampler, session="s", seed=1)


async def test_the_commands_reach_the_sandbox_and_their_output_the_turns(kind: str) -> None:
    provider = FakeSandboxProvider()
    episode = await run(kind, sampler_of(kind), provider)
    assert provider.opened[0].commands == ["echo one", "echo two"]
    assert [turn.observation.strip() for turn in episode.turns[:2]] == ["one", "two"]
    assert episode.stop is StopReason.SUBMITTED


async def test_every_prompt_begins_with_the_one_before_and_its_completion(kind: str) -> None:
    turns = (await run(kind, sampler_of(kind))).turns
    for before, after in pairwise(turns):
        held = np.concatenate([before.prompt, before.completion])
        assert np.array_equal(after.prompt[: len(held)], held)
        assert len(after.prompt) > len(held)


async def test_turns_keep_what_the_sampler_said(kind: str) -> None:
    sampler = sampler_of(kind)
    turns = (await run(kind, sampler)).turns
    assert [turn.prompt.tolist() for turn in turns] == [asked.prompt.tolist() for asked in sampler.asked]
    assert all((turn.versions == 3).all() and (turn.logprobs < 0).all() for turn in turns)
    assert {asked.session for asked in sampler.asked} == {"s"}


async def test_captures_join_without_a_gap_and_without_a_repeat(kind: str) -> None:
    turns = (await run(kind, sampler_of(kind))).turns
    tokens = np.concatenate([turns[-1].prompt, turns[-1].completion])[:-1]
    assert np.array_equal(join(turns), made_up_routing(tokens, SHAPE))
    assert sum(len(turn.routing) for turn in turns if turn.routing is not None) == len(tokens)


async def test_an_engine_failure_is_passed_on(kind: str) -> None:
    with pytest.raises(EngineTimeout, match="late"):
        await run(kind, sampler_of(kind, call1=EngineTimeout("late")))


async def test_a_vanished_sandbox_is_passed_on(kind: str) -> None:
    def vanish(sandbox: FakeSandbox, command: str) -> None:
        raise SandboxVanished("gone")

    with pytest.raises(SandboxVanished, match="gone"):
        await run(kind, sampler_of(kind), FakeSandboxProvider(vanish))


async def test_cancelling_ends_a_run_that_waits_for_the_sampler(kind: str) -> None:
    """Case F2."""
    running = asyncio.create_task(run(kind, sampler_of(kind, delay_s=60)))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 10)
