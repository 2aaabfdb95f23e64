"""Whatever a client does to its conversation, every sampled token is trained once, with its own numbers and row."""

import asyncio
import re
from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from t1.gateway.config import GatewayConfig
from t1.gateway.conversation import Message, Role, Tool, ToolCall
from t1.gateway.sessions import Gateway
from t1.testing.chat_clients import RENDERER, ChatClient, user
from t1.testing.samplers import RoutingShape, ScriptedSampler, made_up_routing
from t1.tito import assemble, audit
from t1.types import Outcome, RewardSource, Rollout, RolloutId, StopReason

ID, SHAPE = RolloutId("task", 0, 0), RoutingShape()
TOOL = Tool("run", "runs a command")
text = st.text(st.sampled_from("ab \n\r\t\x00é漢🙂\u0301\ud800"), max_size=6)
arguments = st.sampled_from(['{"a": 1, "b": [2.0]}', '{"a":"x"}', "", "no json", "{}"])
replies = st.builds(
    lambda content, reasoning, calls: Message(Role.ASSISTANT, content, reasoning, calls),
    text,
    text,
    st.lists(st.builds(lambda written: ToolCall("", "run", written), arguments), max_size=2).map(tuple),
)
OTHER_SPELLINGS = {'{"a": 1, "b": [2.0]}': '{"b":[2],"a":1}', '{"a":"x"}': '{ "a" : "\\u0078" }', "": "{}"}


def respelled(call):
    return replace(call, arguments=OTHER_SPELLINGS.get(call.arguments, call.arguments))


MUTATIONS = {
    "whitespace": lambda one: replace(one, content=f" {one.content}\n "),
    "newlines": lambda one: replace(one, content=re.sub("\r\n|\r|\n", "\r\n", one.content)),
    "strip": lambda one: replace(one, content=one.content.strip(), reasoning=one.reasoning.strip()),
    "forget reasoning": lambda one: replace(one, reasoning=""),
    "arguments": lambda one: replace(one, tool_calls=tuple(map(respelled, one.tool_calls))),
    "call ids": lambda one: replace(
        one, tool_calls=tuple(replace(call, id=f"own-{n}") for n, call in enumerate(one.tool_calls))
    ),
    "forget calls": lambda one: replace(one, tool_calls=()),
    "rewrite": lambda one: replace(one, content=f"{one.content}!"),
}

steps = st.one_of(
    st.tuples(st.just("say"), text, st.integers(1, 12) | st.none()),
    st.tuples(st.just("mutate"), st.sampled_from(sorted(MUTATIONS)), st.integers(0, 20)),
    st.tuples(st.just("drop"), st.integers(0, 20)),
    st.tuples(st.sampled_from(["resend", "fork", "summarize", "retool", "publish", "at once", "go away", "truncate"])),
)


class World:
    """One session, its clients, and everything that was sampled for it."""

    def __init__(self, script):
        left = list(script)

        def played(prompt):
            return RENDERER.completion(left.pop() if left else Message(Role.ASSISTANT, "z")).tolist()

        self.sampler = ScriptedSampler(played, max_context=1 << 16, routing=SHAPE)
        self.gateway = Gateway(self.sampler, RENDERER, GatewayConfig(max_lanes=2))
        self.clients = [ChatClient(self.gateway, self.gateway.open("session").session)]

    async def step(self, name, *given):
        """One thing that a client does, or that happens to it."""
        client = self.clients[0]
        match name:
            case "say":
                await self.say(client, *given)
            case "mutate":
                kind, index = given
                if client.history:
                    index %= len(client.history)
                    client.history[index] = MUTATIONS[kind](client.history[index])
            case "drop":
                if len(client.history) > 1:
                    del client.history[given[0] % len(client.history)]
            case "resend" | "go away":
                client.history.append(user(name))
                lost = asyncio.create_task(client.ask())
                if name == "go away":
                    await asyncio.sleep(0)
                    lost.cancel()
                await asyncio.wait({lost})
                await client.say()
            case "fork":
                self.clients.insert(1, client.fork())
                self.clients.reverse()
            case "summarize":
                client.history = [user("in short")]
            case "truncate":
                client.history = client.history[2:]
            case "retool":
                client.tools = () if client.tools else (TOOL,)
            case "publish":
                await self.sampler.publish({}, self.sampler.version + 1)
            case "at once":
                forks = [client.fork() for _ in range(3)]
                await asyncio.gather(*(self.say(fork, f"{n}") for n, fork in enumerate(forks)))
                self.clients.append(forks[0])

    async def say(self, client, content, max_tokens=None):
        """Answer the calls of the last reply, if it made any, and say something."""
        called = client.history[-1].tool_calls if client.history else ()
        results = [Message(Role.TOOL, content, tool_call_id=call.id) for call in called]
        await client.say(*(results or [user(content)]), max_tokens=max_tokens)


def sendable(client):
    """Mutations may leave a conversation that no client would send, and that the gateway refuses."""
    called = False
    for one in client.history:
        called = called or bool(one.tool_calls)
        if one.role is Role.TOOL and not called:
            return False
    return True


async def played(script, what):
    world = World(script)
    for step in what:
        await world.step(*step)
        for client in world.clients:
            if not sendable(client):
                client.history = []
    return await world.gateway.close("session"), world.sampler


@settings(max_examples=150, deadline=None)
@given(st.lists(replies, max_size=12), st.lists(steps, min_size=1, max_size=14))
def test_every_sampled_token_is_trained_once_or_is_an_orphans(script, what):
    recorded, sampler = asyncio.run(played(script, what))
    turns = recorded.turns
    asked = Counter(call.prompt.tobytes() for call in sampler.asked)
    assert asked == Counter(turn.prompt.tobytes() for turn in [*turns, *(one.turn for one in recorded.orphans)])
    if not turns:
        return
    trajectories = assemble(ID, turns, boundary_ids=RENDERER.boundary_ids, decode=RENDERER.decode)
    rollout = Rollout(ID, "", turns, Outcome(StopReason.TURN_LIMIT, None, 0.0, RewardSource.BINARY))
    report = audit(rollout, trajectories, vocab_size=None, num_experts=8, decode=RENDERER.decode)
    assert not report.findings
    assert report.counters["loss_region_drift"] == 0 and report.counters["residual"] == 0
    assert sum(one.num_actions for one in trajectories) == sum(len(turn.completion) for turn in turns)
    for number, turn in enumerate(turns):
        parts = [(one, one.mask & (one.turn == number)) for one in trajectories]
        for column, sampled in (("tokens", turn.completion), ("logprobs", turn.logprobs), ("version", turn.versions)):
            trained = [getattr(one, column)[mask] for one, mask in parts]
            np.testing.assert_array_equal(np.concatenate(trained), sampled)
        own = made_up_routing(np.concatenate([turn.prompt, turn.completion]), SHAPE)[len(turn.prompt) : -1]
        rows = [one.routing[mask[:-1]] for one, mask in parts]
        assert np.concatenate(rows)[: len(own)].tobytes() == own.tobytes()


FORGIVEN = ["whitespace", "newlines", "strip", "forget reasoning", "arguments", "call ids"]


@settings(max_examples=60, deadline=None)
@given(st.lists(replies, max_size=8), st.lists(st.sampled_from(FORGIVEN), max_size=8))
def test_what_is_forgiven_never_leaves_the_recorded_ids(script, mutations):
    """One growing conversation, mutated at every step in ways that clients do: one segment, strict throughout."""

    async def conversation():
        world = World(script[::-1])
        client = world.clients[0]
        for mutation in [*mutations, "strip"]:
            await world.say(client, "x")
            client.history = [MUTATIONS[mutation](one) if one.role is Role.ASSISTANT else one for one in client.history]
        return await world.gateway.close("session")

    recorded = asyncio.run(conversation())
    trajectories = assemble(ID, recorded.turns)
    assert len(trajectories) == 1 and len(recorded.turns) == len(mutations) + 1
