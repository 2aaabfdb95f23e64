"""Retries, cancellations, calls at once, limits and failures: each defined, none spoils the session."""

import asyncio
import threading

import numpy as np
import pytest

from t1.errors import EngineUnavailable
from t1.gateway.canonical import ChangeKind
from t1.gateway.config import GatewayConfig
from t1.gateway.conversation import Finish, GatewayError, Message, Role
from t1.gateway.ledger import OrphanReason
from t1.gateway.sessions import Gateway
from t1.testing.chat_clients import RENDERER, ChatClient, ask, calls, says, user
from t1.testing.chat_renderers import CharacterChatRenderer
from t1.testing.held_samplers import HeldSampler
from t1.testing.samplers import RoutingShape, ScriptedSampler
from t1.types import FinishReason, SamplingParams, StopReason


def gateway_of(*replies, sampler=ScriptedSampler, max_context=1 << 20, failures=None, **config):
    played = sampler(says(*replies), max_context=max_context, routing=RoutingShape(), failures=failures)
    return Gateway(played, RENDERER, GatewayConfig(**config)), played


def client_of(gateway, **opening):
    return ChatClient(gateway, gateway.open(**opening).session)


def texts(turns):
    return [RENDERER.parse(turn.completion).content for turn in turns]


async def refused(call, status, kind):
    with pytest.raises(GatewayError) as caught:
        await call
    assert (caught.value.status, caught.value.kind) == (status, kind)
    return caught.value


async def cancel(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def settled():
    """Let whatever can go on go on: nothing here waits for anything but the loop."""
    for _ in range(20):
        await asyncio.sleep(0)


# ---- the same request again


async def test_the_same_idempotency_key_gets_the_same_reply():
    gateway, sampler = gateway_of("one", "two")
    client = client_of(gateway)
    client.history = [user("a")]
    first = await client.ask(idempotency_key="k")
    client.history.append(first.message)
    await client.say("b")
    client.history = [user("a")]
    assert await client.ask(idempotency_key="k") == first
    assert len(sampler.asked) == 2


async def test_an_idempotency_key_of_another_request_is_refused():
    gateway, sampler = gateway_of("one")
    client = client_of(gateway)
    await client.say("a", idempotency_key="k")
    await refused(client.fork().say("b", idempotency_key="k"), 409, "idempotency_error")
    assert len(sampler.asked) == 1


async def test_the_same_request_under_two_keys_is_two_decisions():
    gateway, _ = gateway_of("one", "two")
    client = client_of(gateway)
    client.history = [user("a")]
    await client.ask(idempotency_key="k")
    await client.ask(idempotency_key="l")
    assert texts((await gateway.close(client.session)).turns) == ["one", "two"]


async def test_whoever_asks_again_while_a_reply_is_sampled_gets_that_reply():
    gateway, sampler = gateway_of("one", sampler=HeldSampler)
    client = client_of(gateway)
    client.history = [user("a")]
    asking = [asyncio.create_task(client.ask()) for _ in range(3)]
    await sampler.arrived()
    sampler.release()
    replies = await asyncio.gather(*asking)
    assert replies[0] == replies[1] == replies[2]
    recorded = await gateway.close(client.session)
    assert len(recorded.turns) == 1 and recorded.counts["joined"] == 2


async def test_a_client_that_went_away_gets_its_reply_when_it_asks_again():
    """Case T8: the reply of a call that timed out is on record, and the retry proceeds with it."""
    gateway, sampler = gateway_of("one", "two", sampler=HeldSampler)
    client = client_of(gateway)
    client.history = [user("a")]
    asking = asyncio.create_task(client.ask())
    await sampler.arrived()
    await cancel(asking)
    sampler.release()
    await settled()
    assert gateway.turns(client.session) == ()
    assert (await client.ask()).message.content == "one"
    recorded = await gateway.close(client.session)
    assert texts(recorded.turns) == ["one"] and not recorded.orphans and sampler.num_cancelled == 0


async def test_a_reply_that_nobody_got_is_an_orphan():
    """Case T8."""
    gateway, sampler = gateway_of("one", "two", sampler=HeldSampler)
    client = client_of(gateway)
    client.history = [user("a")]
    asking = asyncio.create_task(client.ask())
    await sampler.arrived()
    await cancel(asking)
    sampler.release(2)
    client.history = [user("b")]  # something else
    await client.ask()
    recorded = await gateway.close(client.session)
    assert texts(recorded.turns) == ["two"]
    (orphan,) = recorded.orphans
    assert (orphan.reason, texts([orphan.turn])) == (OrphanReason.UNDELIVERED, ["one"])


async def test_a_request_that_is_sent_again_right_away_supersedes_a_last_reply():
    """Case T8."""
    gateway, _ = gateway_of("one", "two")
    client = client_of(gateway)
    client.history = [user("a")]
    await client.ask()
    await client.ask()
    recorded = await gateway.close(client.session)
    assert texts(recorded.turns) == ["two"] and texts([recorded.orphans[0].turn]) == ["one"]


async def test_a_resent_request_supersedes_a_reply_that_nothing_followed():
    """Case T8: a client that times out on its side never says so; its resend is the same decision, not a second one."""
    gateway, _ = gateway_of("one", "two", "three")
    client = client_of(gateway)
    client.history = [user("a")]
    await client.ask()
    await client.say()
    await client.say("b")
    recorded = await gateway.close(client.session)
    assert texts(recorded.turns) == ["two", "three"]
    assert [(orphan.reason, texts([orphan.turn])) for orphan in recorded.orphans] == [
        (OrphanReason.SUPERSEDED, ["one"])
    ]
    assert not recorded.changes


async def test_a_superseded_reply_that_the_client_goes_on_from_is_a_turn_after_all():
    gateway, _ = gateway_of("one", "two", "three", "four")
    client = client_of(gateway)
    client.history = [user("a")]
    first, second = await client.ask(), await client.ask()
    for reply in (first, second):
        fork = client.fork()
        fork.history.append(reply.message)
        await fork.say("b")
    recorded = await gateway.close(client.session)
    assert texts(recorded.turns) == ["one", "two", "three", "four"] and not recorded.orphans


async def test_the_same_request_after_a_reply_that_was_followed_is_a_second_decision():
    """An agent that returns to a state it has been in."""
    gateway, _ = gateway_of("one", "two", "three")
    client = client_of(gateway)
    again = client.fork()
    again.history = [user("a")]
    await client.say("a")
    await client.say("b")
    await again.ask()
    recorded = await gateway.close(client.session)
    assert texts(recorded.turns) == ["one", "two", "three"] and not recorded.orphans


async def test_an_aside_that_is_asked_again_later_is_a_second_decision():
    """Agents ask for a summary or a title, use it elsewhere, and may ask in the same words again."""
    gateway, _ = gateway_of("title", "one", "title", "two")
    client, aside = (one := client_of(gateway)), one.fork()
    aside.history = [user("a title, please")]
    for text in "ab":
        await aside.ask()
        await client.say(text)
    recorded = await gateway.close(client.session)
    assert texts(recorded.turns) == ["title", "one", "title", "two"] and not recorded.orphans


async def test_another_wish_is_another_request():
    gateway, _ = gateway_of("one", "two")
    client = client_of(gateway)
    client.history = [user("a")]
    await client.ask(max_tokens=100)
    await client.ask(max_tokens=200)
    recorded = await gateway.close(client.session)
    assert len(recorded.turns) == 2 and not recorded.orphans


async def test_a_failed_call_may_be_tried_again_under_the_same_key():
    gateway, _ = gateway_of("one", failures={0: EngineUnavailable("gone")})
    client = client_of(gateway)
    client.history = [user("a")]
    await refused(client.ask(idempotency_key="k"), 503, "engine_error")
    assert isinstance(gateway.record(client.session).failure, EngineUnavailable)
    assert (await client.ask(idempotency_key="k")).message.content == "one"
    recorded = await gateway.close(client.session)
    assert len(recorded.turns) == 1 and recorded.failure is None


# ---- calls at once


async def test_two_calls_at_once_both_proceed_as_branches():
    gateway, sampler = gateway_of("begun", "one", "two", "three", sampler=HeldSampler)
    client = client_of(gateway)
    sampler.release()
    await client.say("begin")
    one, two = client.fork(), client.fork()
    asking = [asyncio.create_task(one.say("x")), asyncio.create_task(two.say("y"))]
    await sampler.arrived(3)
    sampler.release(3)
    await asyncio.gather(*asking)
    await one.say("z")
    recorded = await gateway.close(client.session)
    assert len(recorded.turns) == 4 and not recorded.orphans
    assert len({asked.session for asked in sampler.asked[1:3]}) == 2  # neither waits for the other
    held = np.concatenate([recorded.turns[0].prompt, recorded.turns[0].completion])
    assert all(turn.prompt[: len(held)].tolist() == held.tolist() for turn in recorded.turns[1:])


async def test_too_many_calls_at_once_are_refused():
    gateway, sampler = gateway_of("one", "two", sampler=HeldSampler, max_pending=2)
    client = client_of(gateway)
    asking = [asyncio.create_task(client.fork().say(f"{n}")) for n in range(2)]
    await sampler.arrived(2)
    await refused(client.fork().say("2"), 429, "rate_limit_error")
    sampler.release(2)
    await asyncio.gather(*asking)


async def test_closing_ends_what_is_being_sampled():
    gateway, sampler = gateway_of("one", sampler=HeldSampler)
    client = client_of(gateway)
    asking = asyncio.create_task(client.say("a"))
    await sampler.arrived()
    recorded = await gateway.close(client.session)
    await refused(asking, 410, "session_closed")
    assert recorded.turns == () and sampler.num_cancelled == 1
    await refused(client.say("b"), 410, "session_closed")


# ---- validation, limits, failures


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (user("a"), Message(Role.ASSISTANT, "b")),
        (user("a"), Message(Role.TOOL, "b", tool_call_id="x")),
    ],
    ids=["none", "assistant last", "result without call"],
)
async def test_a_conversation_that_makes_no_sense_changes_nothing(messages):
    """Case T9."""
    gateway, sampler = gateway_of("one", "two")
    client = client_of(gateway)
    await client.say("a")
    before = gateway.record(client.session)
    await refused(gateway.complete(client.session, ask(*messages)), 400, "invalid_request_error")
    assert gateway.record(client.session).counts == before.counts and len(sampler.asked) == 1
    await client.say("b")
    assert len(gateway.turns(client.session)) == 2


async def test_an_unknown_model_is_refused():
    gateway, _ = gateway_of("one", models=("t1", "small"))
    client = client_of(gateway)
    client.history = [user("a")]
    request = ask(user("a"))
    await refused(gateway.complete(client.session, type(request)("gpt", request.messages)), 404, "model_not_found")
    assert (await gateway.complete(client.session, type(request)("small", request.messages))).model == "small"


async def test_a_prompt_longer_than_the_context_leaves_the_session_as_it_was():
    """Case T11: counted, and a client that comes back with less goes on."""
    gateway, sampler = gateway_of("one", "two", max_context=200)
    client = client_of(gateway)
    await client.say("a")
    await refused(client.fork().say("x" * 300), 400, "context_length_exceeded")
    record = gateway.record(client.session)
    assert record.stop is StopReason.TOKEN_LIMIT and record.counts["context_exceeded"] == 1
    await client.say("b")
    recorded = await gateway.close(client.session)
    assert len(recorded.turns) == 2 and recorded.stop is None and len(sampler.asked) == 2


async def test_a_reply_that_is_cut_stays_and_goes_on():
    """Case T10."""
    gateway, _ = gateway_of("a long reply", "two")
    client = client_of(gateway)
    reply = await client.say("a", max_tokens=6)
    assert (reply.finish, reply.message.content) == (Finish.LENGTH, "a long")
    await client.say("b")
    recorded = await gateway.close(client.session)
    assert [turn.finish for turn in recorded.turns] == [FinishReason.LENGTH, FinishReason.STOP]
    first, second = recorded.turns
    assert RENDERER.decode(second.prompt[len(first.prompt) :]).startswith("a long<end>\n")


async def test_the_turn_limit_is_told_to_the_client_and_in_the_record():
    gateway, sampler = gateway_of("one", "two")
    client = client_of(gateway, max_turns=1)
    await client.say("a")
    await refused(client.say("b"), 403, "turn_limit")
    recorded = await gateway.close(client.session)
    assert recorded.stop is StopReason.TURN_LIMIT and len(recorded.turns) == len(sampler.asked) == 1


async def test_the_token_limit_bounds_the_last_reply_and_ends_the_session():
    gateway, _ = gateway_of("one", "two and more")
    client = client_of(gateway, max_sampled_tokens=7)
    await client.say("a")
    assert (await client.say("b")).completion_tokens == 3
    await refused(client.say("c"), 403, "token_limit")
    assert (await gateway.close(client.session)).stop is StopReason.TOKEN_LIMIT


async def test_a_limit_does_not_forbid_to_fetch_a_reply_again():
    gateway, _ = gateway_of("one")
    client = client_of(gateway, max_turns=1)
    client.history = [user("a")]
    first = await client.ask(idempotency_key="k")
    assert await client.ask(idempotency_key="k") == first


async def test_a_sampler_that_echoes_other_ids_is_a_failure():
    """Case T7."""

    class Deaf(ScriptedSampler):
        async def sample(self, prompt, params, *, session, routing_start=0):
            return await super().sample(prompt[1:], params, session=session)

    gateway, _ = gateway_of("one", sampler=Deaf)
    client = client_of(gateway)
    await refused(client.say("a"), 503, "engine_error")
    recorded = await gateway.close(client.session)
    assert type(recorded.failure).__name__ == "PromptMismatch" and recorded.turns == ()


async def test_a_sampler_that_never_answers_is_a_failure():
    gateway, _ = gateway_of("one", sampler=HeldSampler, sample_timeout_s=0.01)
    client = client_of(gateway)
    await refused(client.say("a"), 503, "engine_error")
    assert type((await gateway.close(client.session)).failure).__name__ == "EngineTimeout"


async def test_a_broken_sampler_breaks_the_call_and_is_on_record():
    gateway, _ = gateway_of("one", failures={0: KeyError("bug")})
    client = client_of(gateway)
    with pytest.raises(KeyError):
        await client.say("a")
    assert isinstance(gateway.record(client.session).failure, KeyError)


# ---- what is sampled


async def test_the_sessions_distribution_wins_and_what_it_overrode_is_counted():
    gateway, sampler = gateway_of("one", "two")
    client = client_of(gateway, params=SamplingParams(temperature=0.7, top_p=0.9, max_tokens=50), seed=3)
    await client.say("a", temperature=0.0, top_p=0.9, seed=7, max_tokens=20, ignored=("logit_bias",))
    await client.say("b", max_tokens=90)
    first, second = (asked.params for asked in sampler.asked)
    assert (first.temperature, first.top_p, first.max_tokens) == (0.7, 0.9, 20)
    assert second.max_tokens == 50
    assert first.stop_ids == RENDERER.stop_ids
    assert [first.seed, second.seed] == [3 * 4096, 3 * 4096 + 1]
    counts = gateway.record(client.session).counts
    assert {name: counts[name] for name in counts if "." in name} == {
        "overridden.temperature": 1,
        "overridden.seed": 1,
        "ignored.logit_bias": 1,
    }


async def test_the_client_may_choose_where_that_is_allowed():
    gateway, sampler = gateway_of("one", sampling="client")
    client = client_of(gateway)
    await client.say("a", temperature=0.5, top_k=4, seed=7)
    params = sampler.asked[0].params
    assert (params.temperature, params.top_k, params.seed) == (0.5, 4, 7)


async def test_a_stop_string_ends_the_text_and_not_the_ids():
    gateway, _ = gateway_of("run this STOP and more", "two")
    client = client_of(gateway)
    reply = await client.say("a", stop=("more", "STOP"))
    assert (reply.finish, reply.stop_sequence, reply.message.content) == (Finish.STOP_SEQUENCE, "STOP", "run this ")
    await client.say("b")
    first, second = gateway.turns(client.session)
    assert texts([first]) == ["run this STOP and more"]
    assert second.prompt[: len(first.prompt) + len(first.completion)].tolist() == [
        *first.prompt.tolist(),
        *first.completion.tolist(),
    ]


async def test_call_ids_are_the_sessions_own():
    """Clients pair results and calls by id over the whole history: no two replies share one."""
    gateway, _ = gateway_of(calls("run", "{}"), calls("run", "{}"))
    client = client_of(gateway)
    replies = [await client.say("a"), await client.say("b")]
    assert replies[0].finish is Finish.TOOL_CALLS
    assert len({reply.message.tool_calls[0].id for reply in replies}) == 2


async def test_tokens_are_counted_without_a_trace():
    gateway, sampler = gateway_of("one", "two")
    client = client_of(gateway)
    await client.say("a")
    before = gateway.record(client.session)
    num_tokens = await gateway.count_tokens(client.session, ask(*client.history, user("b")))
    assert gateway.record(client.session).counts == before.counts
    await client.say("b")
    assert len(sampler.asked[1].prompt) == num_tokens


async def test_a_turn_says_what_was_done_and_what_came_of_it():
    gateway, _ = gateway_of(calls("run", '{"command":"ls"}', reasoning="look"), "two")
    client = client_of(gateway)
    await client.say("a")
    await client.say("files")
    first, second = gateway.turns(client.session)
    assert (first.action, first.observation) == ('look\nrun {"command":"ls"}', "files")
    assert (second.action, second.observation) == ("two", "")


async def test_a_change_noticed_by_an_orphans_call_belongs_to_no_turn():
    gateway, _ = gateway_of("one", "two", "three", "four")
    client = client_of(gateway)
    await client.say("a")
    client.edit(1, content="one ")
    client.history.append(user("b"))
    await client.ask()
    second = await client.ask()
    client.history += [second.message, user("c")]
    await client.ask()
    recorded = await gateway.close(client.session)
    first, *_ = recorded.changes
    assert (first.turn, first.kind) == (-1, ChangeKind.WHITESPACE)


async def test_long_texts_are_encoded_beside_the_loop_and_short_ones_in_it():
    """Other sessions' calls do not wait for a prompt of many kilobytes."""

    class Watched(CharacterChatRenderer):
        def __init__(self):
            self.threads = []

        def extend(self, completion, messages, tools=()):
            self.threads.append(threading.get_ident())
            return super().extend(completion, messages, tools)

    renderer = Watched()
    gateway = Gateway(ScriptedSampler(says("one", "two", "three"), max_context=1 << 20), renderer)
    client = client_of(gateway)
    await client.say("a")
    await client.say("x" * 20_000)
    await client.say("b")
    assert [thread == threading.get_ident() for thread in renderer.threads] == [False, True]


async def test_a_cache_that_cannot_be_freed_is_counted_and_the_record_is_whole():
    class Stubborn(ScriptedSampler):
        async def close_session(self, session):
            raise EngineUnavailable("gone")

    gateway, _ = gateway_of("one", sampler=Stubborn)
    client = client_of(gateway)
    await client.say("a")
    recorded = await gateway.close(client.session)
    assert len(recorded.turns) == 1 and recorded.counts["caches_not_closed"] == 1
