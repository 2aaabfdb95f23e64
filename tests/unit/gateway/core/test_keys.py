"""A session is reachable with its own key, and with nothing else."""

import pytest

from t1.gateway.config import GatewayConfig
from t1.gateway.conversation import GatewayError
from t1.gateway.sessions import Gateway
from t1.testing.chat_clients import RENDERER, ChatClient, says
from t1.testing.held_samplers import HeldSampler
from t1.testing.samplers import ScriptedSampler


def gateway_of(sampler=ScriptedSampler, **config):
    return Gateway(sampler(says("one", "two", "three")), RENDERER, GatewayConfig(**config))


def refused(gateway, session, key):
    with pytest.raises(GatewayError) as caught:
        gateway.check(session, key)
    return caught.value.status


async def test_a_key_names_its_session_and_no_other():
    gateway = gateway_of()
    one, two = gateway.open(), gateway.open("task/0/1#1")
    assert gateway.check("", one.key) == gateway.check(one.session, one.key) == one.session
    assert gateway.check("", two.key) == "task/0/1#1"
    assert one.key != two.key and len(one.key) > 40
    assert refused(gateway, two.session, one.key) == 401
    assert refused(gateway, "elsewhere", one.key) == 404
    for key in ("", "t1-", one.key[:-1], f"{one.key} ", "é", "\ud800"):
        assert refused(gateway, "", key) == refused(gateway, one.session, key) == 401


async def test_a_closed_session_is_gone_and_said_to_be():
    gateway = gateway_of()
    one = gateway.open("one")
    await gateway.close("one")
    assert refused(gateway, "", one.key) == refused(gateway, "one", one.key) == 410
    with pytest.raises(GatewayError) as caught:
        await gateway.close("one")
    assert caught.value.status == 410
    again = gateway.open("one")  # launched again
    assert gateway.check("one", again.key) == "one"
    assert refused(gateway, "", one.key) == 410


async def test_an_open_session_is_not_opened_twice():
    gateway = gateway_of()
    gateway.open("one")
    with pytest.raises(ValueError, match="open already"):
        gateway.open("one")


async def test_there_is_no_room_beyond_the_limit():
    gateway = gateway_of(max_sessions=1)
    gateway.open("one")
    with pytest.raises(GatewayError) as caught:
        gateway.open("two")
    assert caught.value.status == 503
    await gateway.close("one")
    gateway.open("two")


async def test_open_keys_each_open_a_session_of_their_own():
    gateway = gateway_of(open_keys=True)
    mine, yours = gateway.check("", "mine"), gateway.check("", "yours")
    assert mine != yours and gateway.check("", "mine") == mine
    assert gateway.check("named", "third") == "named"
    assert refused(gateway, "named", "mine") == 401
    assert refused(gateway, "", "") == 401


async def test_of_sessions_that_keys_opened_the_one_idle_longest_makes_room():
    gateway = gateway_of(open_keys=True, max_sessions=2)
    first, second = gateway.check("", "a"), gateway.check("", "b")
    await ChatClient(gateway, first).say("x")
    third = gateway.check("", "c")
    assert set(gateway.sessions) == {first, third} and second not in gateway.sessions
    assert refused(gateway, "", "b") == 410
    await gateway.aclose()
    assert gateway.sessions == ()


async def test_closing_the_gateway_closes_every_session():
    async with gateway_of(HeldSampler) as gateway:
        gateway.open("one")
        gateway.open("two")
    assert gateway.sessions == ()
