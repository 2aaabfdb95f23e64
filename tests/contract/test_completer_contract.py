"""The scripted completer and the gateway itself behave alike towards the front ends."""

import asyncio
import contextlib
from dataclasses import dataclass

import pytest

from t1.gateway.config import GatewayConfig
from t1.gateway.conversation import Completer, Finish, GatewayError, Message, Request, Role
from t1.gateway.sessions import Gateway
from t1.testing.chat_renderers import CharacterChatRenderer
from t1.testing.gateways import ScriptedCompleter
from t1.testing.samplers import ScriptedSampler

HI = (Message(Role.USER, "hi there"),)
SAID = "well met by moonlight"


@dataclass(frozen=True, slots=True)
class Case:
    """A completer with one open session, and how to close that."""

    completer: Completer
    session: str
    key: str
    close: object


@contextlib.asynccontextmanager
async def scripted():
    completer = ScriptedCompleter(lambda request: SAID)

    async def close():
        completer.closed.add("s1")

    yield Case(completer, "s1", "key1", close)


@contextlib.asynccontextmanager
async def gateway():
    renderer = CharacterChatRenderer()
    sampler = ScriptedSampler(lambda prompt: renderer.encode(SAID).tolist(), max_context=4096)
    async with Gateway(sampler, renderer, GatewayConfig(models=("policy",))) as opened:
        session = opened.open("s1")
        yield Case(opened, "s1", session.key, lambda: opened.close("s1"))


@pytest.fixture(params=[scripted, gateway], ids=["scripted", "gateway"])
async def case(request):
    async with request.param() as made:
        yield made


def status_of(caught):
    return caught.value.status


def test_it_is_a_completer(case):
    assert isinstance(case.completer, Completer)
    assert case.completer.models == ("policy",)


def test_a_key_reaches_its_own_session_named_or_not(case):
    assert case.completer.check("s1", case.key) == case.completer.check("", case.key) == "s1"


@pytest.mark.parametrize("session", ["", "s1"])
@pytest.mark.parametrize("key", ["", "other"])
def test_another_key_reaches_nothing(case, session, key):
    with pytest.raises(GatewayError) as caught:
        case.completer.check(session, key)
    assert status_of(caught) == 401


def test_a_key_does_not_reach_another_session(case):
    with pytest.raises(GatewayError) as caught:
        case.completer.check("s2", case.key)
    assert status_of(caught) in (401, 404)


async def test_a_reply_says_what_was_sampled_and_what_it_cost(case):
    request = Request("policy", HI)
    counted = await case.completer.count_tokens("s1", request)
    reply = await case.completer.complete("s1", request)
    assert reply.message == Message(Role.ASSISTANT, SAID)
    assert (reply.model, reply.finish, reply.prompt_tokens) == ("policy", Finish.STOP, counted)
    assert reply.completion_tokens > 0
    following = (*HI, reply.message, Message(Role.USER, "and then?"))
    assert (await case.completer.complete("s1", Request("policy", following))).id != reply.id


async def test_a_reply_that_is_cut_says_so(case):
    reply = await case.completer.complete("s1", Request("policy", HI, max_tokens=2))
    assert (reply.finish, reply.completion_tokens) == (Finish.LENGTH, 2)


async def test_an_unknown_model_is_refused(case):
    with pytest.raises(GatewayError) as caught:
        await case.completer.complete("s1", Request("other", HI))
    assert status_of(caught) == 404


async def test_a_cancelled_call_leaves_the_session_as_it_was(case):
    call = asyncio.ensure_future(case.completer.complete("s1", Request("policy", HI)))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait({call})
    assert (await case.completer.complete("s1", Request("policy", HI))).message.content == SAID


async def test_a_closed_session_is_gone(case):
    await case.close()
    with pytest.raises(GatewayError) as caught:
        case.completer.check("s1", case.key)
    assert status_of(caught) == 410
