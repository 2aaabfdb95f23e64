"""How the recorded ids of a conversation are found again, whatever its client makes of it."""

from dataclasses import replace

import numpy as np
import pytest

from t1.base import base_path
from t1.gateway.canonical import ChangeKind
from t1.gateway.config import GatewayConfig
from t1.gateway.conversation import Finish, Message, Role, Tool, ToolCall
from t1.gateway.rendering import renderer_for
from t1.gateway.sessions import Gateway
from t1.testing.chat_clients import RENDERER, ChatClient, calls, result, says, user
from t1.testing.chat_renderers import CALL, CharacterChatRenderer
from t1.testing.samplers import RoutingShape, ScriptedSampler
from t1.tito import assemble, audit
from t1.types import Case, Outcome, RewardSource, Rollout, RolloutId, StopReason

ID = RolloutId("task", 0, 0)


def gateway_of(*replies, renderer=RENDERER, **config):
    sampler = ScriptedSampler(says(*replies), max_context=1 << 20, routing=RoutingShape())
    return Gateway(sampler, renderer, GatewayConfig(**config)), sampler


def client_of(gateway, history=()):
    return ChatClient(gateway, gateway.open().session, history)


def assembled(turns):
    """Trajectories of turns, found in order by the auditor."""
    trajectories = assemble(ID, turns, boundary_ids=RENDERER.boundary_ids, decode=RENDERER.decode)
    outcome = Outcome(StopReason.TURN_LIMIT, None, 0.0, RewardSource.BINARY)
    report = audit(
        Rollout(ID, "", turns, outcome), trajectories, vocab_size=None, num_experts=8, decode=RENDERER.decode
    )
    assert not report.findings
    assert report.counters["sampled_tokens"] == sum(len(turn.completion) for turn in turns)
    return trajectories


def cases(turns):
    return [boundary.case for trajectory in assembled(turns) for boundary in trajectory.boundaries]


def extends(turn, earlier):
    """True where a prompt begins with the recorded ids of an earlier turn."""
    held = np.concatenate([earlier.prompt, earlier.completion])
    return np.array_equal(turn.prompt[: len(held)], held)


async def test_each_prompt_extends_the_recorded_ids():
    """Cases T3, T4 and T6: what was sampled is never rendered again."""
    gateway, sampler = gateway_of(calls("run", '{"b":1,"a":2}', reasoning="why not"), "second", "third")
    client = client_of(gateway)
    first = await client.say("begin")
    await client.say(result("out", first))
    await client.say("more")
    recorded = await gateway.close(client.session)
    assert cases(recorded.turns) == [Case.OPEN, Case.STRICT, Case.STRICT]
    assert not recorded.changes and not recorded.orphans
    assert [asked.prompt.tolist() for asked in sampler.asked] == [turn.prompt.tolist() for turn in recorded.turns]


async def test_only_new_messages_are_encoded():
    gateway, _ = gateway_of(*["reply"] * 20)
    client = client_of(gateway)
    for number in range(20):
        await client.say(f"message {number}")
    recorded = await gateway.close(client.session)
    transcript = len(recorded.turns[-1].prompt) + len(recorded.turns[-1].completion)
    assert recorded.counts["encoded_tokens"] == transcript - sum(len(turn.completion) for turn in recorded.turns)


async def test_rows_begin_where_the_parent_ended():
    gateway, _ = gateway_of("one", "two", "three")
    client = client_of(gateway)
    for text in "abc":
        await client.say(text)
    turns = gateway.turns(client.session)
    assert [turn.routing_start for turn in turns] == [0, *(len(t.prompt) + len(t.completion) - 1 for t in turns[:2])]


EDITS = {
    ChangeKind.WHITESPACE: lambda client: client.edit(1, content=f" {client.history[1].content}\n"),
    ChangeKind.NEWLINES: lambda client: client.edit(1, content=client.history[1].content.replace("\n", "\r\n")),
    ChangeKind.REASONING_DROPPED: lambda client: client.edit(1, reasoning=""),
    ChangeKind.ARGUMENTS: lambda client: client.edit(
        1, tool_calls=(replace(client.history[1].tool_calls[0], arguments='{ "a": 2, "b": 1 }'),)
    ),
    ChangeKind.DEFAULTS: lambda client: client.edit(
        1, tool_calls=(replace(client.history[1].tool_calls[0], arguments='{"b":1.0,"all":false,"a":2}'),)
    ),
}


@pytest.mark.parametrize("kind", EDITS)
async def test_a_forgiven_change_is_noticed_once_and_the_recorded_ids_are_sent(kind):
    """Case T6."""
    said = Message(Role.ASSISTANT, "so\nbe it", "because", (ToolCall("", "run", '{"b":1,"a":2}'),))
    gateway, _ = gateway_of(said, "second", "third")
    client = client_of(gateway)
    first = await client.say("begin")
    EDITS[kind](client)
    await client.say(result("out", first))
    await client.say("more")
    recorded = await gateway.close(client.session)
    assert cases(recorded.turns) == [Case.OPEN, Case.STRICT, Case.STRICT]
    assert [(change.turn, change.kind) for change in recorded.changes] == [(1, kind)]


async def test_other_call_ids_are_forgiven_in_calls_and_results():
    """A client may even make up new ones for every request."""
    said = replace(calls("run", "{}"), tool_calls=(ToolCall("", "run", "{}"), ToolCall("", "look", "{}")))
    gateway, _ = gateway_of(said, "second", "third")
    client = client_of(gateway)
    await client.say("begin")
    client.history += [Message(Role.TOOL, f"out {n}") for n in range(2)]
    for prefix in ("mine", "yours"):
        named = (replace(one, id=f"{prefix}-{n}") for n, one in enumerate(client.history[1].tool_calls))
        client.edit(1, tool_calls=tuple(named))
        for n in range(2):
            client.edit(2 + n, tool_call_id=f"{prefix}-{n}")
        await client.say(*([] if prefix == "mine" else ["more"]))
    recorded = await gateway.close(client.session)
    assert cases(recorded.turns) == [Case.OPEN, Case.STRICT, Case.STRICT]
    assert {change.kind for change in recorded.changes} == {ChangeKind.CALL_IDS}


async def test_swapped_results_are_another_history():
    said = replace(calls("run", "{}"), tool_calls=(ToolCall("", "run", "{}"), ToolCall("", "look", "{}")))
    gateway, _ = gateway_of(said, "second", "third")
    client = client_of(gateway)
    first = await client.say("begin")
    one, two = (call.id for call in first.message.tool_calls)
    other = client.fork()
    await client.say(Message(Role.TOOL, "x", tool_call_id=one), Message(Role.TOOL, "y", tool_call_id=two))
    await other.say(Message(Role.TOOL, "x", tool_call_id=two), Message(Role.TOOL, "y", tool_call_id=one))
    recorded = await gateway.close(client.session)
    assert [change.kind for change in recorded.changes] == [ChangeKind.BRANCH]


async def test_a_rewritten_message_branches_from_what_is_left():
    gateway, _ = gateway_of("one", "two", "three", "four")
    client = client_of(gateway)
    for text in "abc":
        await client.say(text)
    client.edit(3, content="rewritten")  # the second reply
    await client.say("d")
    recorded = await gateway.close(client.session)
    assert [(change.turn, change.kind) for change in recorded.changes] == [(3, ChangeKind.REWRITTEN)]
    assert extends(recorded.turns[3], recorded.turns[0]) and not extends(recorded.turns[3], recorded.turns[1])
    assert cases(recorded.turns) == [Case.OPEN, Case.STRICT, Case.STRICT, Case.SPLIT]


async def test_changed_reasoning_is_a_rewritten_message():
    gateway, _ = gateway_of(Message(Role.ASSISTANT, "one", "because"), "two")
    client = client_of(gateway)
    await client.say("a")
    client.edit(1, reasoning="for another reason")
    await client.say("b")
    assert len((await gateway.close(client.session)).turns) == 2


async def test_replies_that_differ_in_reasoning_only_are_told_apart():
    gateway, _ = gateway_of(Message(Role.ASSISTANT, "ls", "first"), Message(Role.ASSISTANT, "ls", "second"), "a", "b")
    client = client_of(gateway)
    client.history = [user("go")]
    first, second = await client.ask(), await client.ask()
    client.history += [first.message, user("on")]
    await client.ask()
    client.history[1:] = [second.message, user("on")]
    await client.ask()
    recorded = await gateway.close(client.session)
    assert len(recorded.turns) == 4
    assert extends(recorded.turns[2], recorded.turns[0]) and extends(recorded.turns[3], recorded.turns[1])


async def test_a_summary_opens_anew():
    """Case T1: the session goes on in another segment."""
    gateway, _ = gateway_of("one", "two", "three", "four")
    client = client_of(gateway)
    await client.say("a")
    await client.say("b")
    client.history = [user("all that was said, in short")]
    await client.say("c")
    await client.say("d")
    recorded = await gateway.close(client.session)
    assert [(change.turn, change.kind) for change in recorded.changes] == [(2, ChangeKind.FRESH)]
    assert cases(recorded.turns) == [Case.OPEN, Case.STRICT, Case.SPLIT, Case.STRICT]


async def test_other_tools_open_anew_and_the_old_ones_go_on():
    gateway, _ = gateway_of("one", "two", "three")
    client = client_of(gateway)
    await client.say("a")
    client.tools = (Tool("run", "runs"),)
    await client.say("b")
    client.tools = ()
    client.history = client.history[:2]
    await client.say("c")
    recorded = await gateway.close(client.session)
    assert [(change.turn, change.kind) for change in recorded.changes] == [(1, ChangeKind.TOOLS)]
    assert not extends(recorded.turns[1], recorded.turns[0]) and extends(recorded.turns[2], recorded.turns[0])


async def test_sub_agents_that_take_turns_keep_their_own_histories():
    gateway, sampler = gateway_of(*["reply"] * 7)
    client = client_of(gateway)
    await client.say("begin")
    one, two = client.fork(), client.fork()
    for number in range(3):
        await one.say(f"one {number}")
        await two.say(f"two {number}")
    recorded = await gateway.close(client.session)
    by_prompt = {len(asked.prompt): asked.session for asked in sampler.asked}
    lanes = [by_prompt[len(turn.prompt)] for turn in recorded.turns]
    assert len(set(lanes)) == 2 and set(sampler.closed_sessions) == set(lanes)
    for place in (3, 5):
        assert extends(recorded.turns[place], recorded.turns[place - 2])
    assembled(recorded.turns)
    rows = sum(len(turn.routing) for turn in recorded.turns)
    tokens = sum(len(turn.prompt) + len(turn.completion) for turn in recorded.turns[-2:])
    assert rows <= tokens  # rows that a parent has are not kept twice


async def test_sub_agents_that_take_turns_survive_new_weights():
    """Case R5: rows are lent between turns of the same weights only."""
    gateway, sampler = gateway_of(*["reply"] * 7)
    client = client_of(gateway)
    await client.say("begin")
    one, two = client.fork(), client.fork()
    for number in range(3):
        await sampler.publish({}, number + 1)
        await one.say(f"one {number}")
        await two.say(f"two {number}")
    assembled((await gateway.close(client.session)).turns)


class Unbending(CharacterChatRenderer):
    """Cannot continue after a message of the user's."""

    def extend(self, completion, messages, tools=()):
        if messages[-1].role is Role.USER:
            raise ValueError("a user's message must be the first")
        return super().extend(completion, messages, tools)


async def test_what_the_template_cannot_continue_is_opened_anew():
    """Case T5."""
    gateway, _ = gateway_of("one", "two", renderer=Unbending())
    client = client_of(gateway)
    await client.say("a")
    await client.say("b")
    recorded = await gateway.close(client.session)
    assert [(change.turn, change.kind) for change in recorded.changes] == [(1, ChangeKind.NOT_CONTINUED)]
    assembled(recorded.turns)


async def test_turns_of_one_branch_share_their_memory():
    gateway, _ = gateway_of(*["reply"] * 30)
    client = client_of(gateway)
    for _ in range(30):
        await client.say("message")
    turns = (await gateway.close(client.session)).turns
    assert len({id(turn.prompt.base) for turn in turns}) == 1


async def test_an_unsampled_reply_of_the_clients_own_is_context():
    gateway, _ = gateway_of("one")
    client = client_of(gateway, [user("a"), Message(Role.ASSISTANT, "an example"), user("b")])
    await client.ask()
    (turn,) = gateway.turns(client.session)
    assert RENDERER.decode(turn.completion).startswith("one")


async def test_ids_that_no_tokenizer_would_make_stay_as_they_were_sampled():
    """Case T13."""
    renderer = renderer_for(base_path())
    spelled = np.concatenate([renderer.encode(letter) for letter in "the files"])
    assert len(spelled) > len(renderer.encode("the files"))
    sampler = ScriptedSampler(lambda prompt: spelled.tolist(), routing=RoutingShape())
    gateway = Gateway(sampler, renderer)
    client = client_of(gateway)
    reply = await client.say("a")
    assert reply.message.content == "the files"
    client.history = [user("a"), Message(Role.ASSISTANT, "the files")]
    await client.say("b")
    first, second = gateway.turns(client.session)
    assert extends(second, first) and first.completion[: len(spelled)].tolist() == spelled.tolist()


async def test_a_call_that_cannot_be_parsed_is_text_and_its_ids_stay():
    """Case T12."""
    broken = [*RENDERER.encode("so").tolist(), CALL, *RENDERER.encode('["run", "{').tolist()]
    sampler = ScriptedSampler(lambda prompt: broken, routing=RoutingShape(), max_context=1 << 16)
    gateway = Gateway(sampler, RENDERER)
    client = client_of(gateway)
    reply = await client.say("a")
    assert reply.finish is Finish.STOP and not reply.message.tool_calls and '["run"' in reply.message.content
    await client.say("that was no call")
    first, second = gateway.turns(client.session)
    assert extends(second, first) and first.completion[:-1].tolist() == broken
