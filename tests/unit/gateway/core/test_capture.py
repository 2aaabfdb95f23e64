"""What is on disk is what was recorded, whenever the gateway dies."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from t1.errors import RunError
from t1.gateway.canonical import ChangeKind
from t1.gateway.capture import FRAME, Capture, read_log
from t1.gateway.conversation import GatewayError, Tool
from t1.gateway.ledger import Closing, Exchange, Opening
from t1.gateway.sessions import Gateway
from t1.testing.chat_clients import RENDERER, ChatClient, calls, result, says, user
from t1.testing.samplers import RoutingShape, ScriptedSampler
from t1.types import SamplingParams


def gateway_at(directory, *replies):
    return Gateway(ScriptedSampler(says(*replies), routing=RoutingShape()), RENDERER, record=directory)


def same_turns(one, other):
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        for column in ("prompt", "completion", "logprobs", "versions", "routing"):
            np.testing.assert_array_equal(getattr(left, column), getattr(right, column))
            assert getattr(left, column).dtype == getattr(right, column).dtype
        for column in ("finish", "routing_start", "action", "observation", "timings"):
            assert getattr(left, column) == getattr(right, column)


def file_of(directory):
    (path,) = directory.glob("*.session")
    return path


async def grown(directory):
    """A session with a branch, tools, an orphan and a surrogate; the gateway stops without closing it."""
    gateway = gateway_at(directory, calls("run", '{"a":1}', reasoning="so"), "two", "three", "four")
    opened = gateway.open("task/0/1#1", params=SamplingParams(temperature=0.5, max_tokens=99), seed=4, max_turns=9)
    client = ChatClient(gateway, opened.session)
    client.tools = (Tool("run", "runs", {"type": "object"}),)
    first = await client.say("begin \ud800")
    await client.say(result("out", first))
    await client.say("again", idempotency_key="k")
    await client.fork(1).ask()
    record = gateway.record(opened.session)
    await gateway.aclose(keep_open=True)
    return client, opened, record


async def test_an_open_session_goes_on_in_the_next_gateway(tmp_path):
    client, opened, before = await grown(tmp_path)
    async with gateway_at(tmp_path, "five") as gateway:
        (restored,) = gateway.restored
        assert (restored.session, restored.num_exchanges, restored.lost_bytes) == (opened.session, 4, 0)
        assert gateway.check("", opened.key) == opened.session
        same_turns(gateway.turns(opened.session), before.turns)
        assert gateway.record(opened.session).changes == before.changes
        again = ChatClient(gateway, opened.session, client.history)
        again.tools = client.tools
        await again.say("after the restart")
        after = await gateway.close(opened.session)
    assert after.turns[-1].prompt[: before.turns[2].prompt.size].tolist() == before.turns[2].prompt.tolist()
    assert not after.changes
    assert gateway.restored and isinstance(read_log(file_of(tmp_path))[0][-1], Closing)


async def test_settings_and_idempotent_replies_survive(tmp_path):
    client, opened, _ = await grown(tmp_path)
    sampler = ScriptedSampler(says("five"), routing=RoutingShape())
    async with Gateway(sampler, RENDERER, record=tmp_path) as gateway:
        again = ChatClient(gateway, opened.session, client.history[:-1])
        again.tools = client.tools
        assert (await again.ask(idempotency_key="k")).message == client.history[-1]
        await again.ask()
        params = sampler.asked[0].params
        assert (params.temperature, params.max_tokens, params.seed) == (0.5, 99, 4 * 4096 + 4)


async def test_a_closed_session_is_not_restored(tmp_path):
    async with gateway_at(tmp_path, "one") as gateway:
        await ChatClient(gateway, gateway.open("one").session).say("a")
    async with gateway_at(tmp_path) as gateway:
        assert gateway.restored == () and gateway.sessions == ()
    opening, exchange, _, closing = read_log(file_of(tmp_path))[0]
    assert isinstance(opening, Opening) and isinstance(exchange, Exchange) and isinstance(closing, Closing)


async def test_a_session_holds_its_tokens_and_not_its_turns_times_its_tokens(tmp_path):
    sizes = []
    for num_turns in (40, 80):
        sampler = ScriptedSampler(lambda prompt: RENDERER.encode("reply").tolist(), max_context=1 << 20)
        async with Gateway(sampler, RENDERER, record=tmp_path / f"{num_turns}") as gateway:
            client = ChatClient(gateway, gateway.open("one").session)
            for _ in range(num_turns):
                await client.say("message")
        sizes.append(file_of(tmp_path / f"{num_turns}").stat().st_size)
    assert sizes[1] < 2.1 * sizes[0]


async def test_the_key_is_not_on_disk(tmp_path):
    _, opened, _ = await grown(tmp_path)
    assert opened.key.encode() not in file_of(tmp_path).read_bytes()


async def test_a_torn_last_record_is_cut_off_and_reported(tmp_path):
    _, opened, before = await grown(tmp_path)
    path = file_of(tmp_path)
    whole, num_bytes = path.read_bytes(), read_log(path)[1]
    assert num_bytes == len(whole)
    starts = [len(b"t1-session-1\n")]
    while starts[-1] < len(whole):
        starts.append(starts[-1] + FRAME.size + FRAME.unpack_from(whole, starts[-1])[0])
    for cut in (starts[-2] + 5, starts[-3] + FRAME.size + 40, starts[-3], len(whole) - 1):
        path.write_bytes(whole[:cut])
        kept = max(start for start in starts if start <= cut)
        gateway = gateway_at(tmp_path)
        (restored,) = gateway.restored
        assert restored.lost_bytes == cut - kept and path.stat().st_size == kept
        assert len(gateway.turns(opened.session)) <= len(before.turns)
        await gateway.aclose(keep_open=True)


async def test_a_changed_byte_ends_what_is_restored(tmp_path):
    await grown(tmp_path)
    path = file_of(tmp_path)
    content = bytearray(path.read_bytes())
    num_entries = len(read_log(path)[0])
    content[-30] ^= 1
    path.write_bytes(content)
    assert len(read_log(path)[0]) == num_entries - 1


@pytest.mark.parametrize("content", [b"something else", b"PAR1"])
def test_a_file_that_is_no_session_is_refused_by_name(tmp_path, content):
    (tmp_path / "a.session").write_bytes(content)
    with pytest.raises(RunError, match=r"a\.session"):
        gateway_at(tmp_path)
    Capture(tmp_path).close()  # the directory is free again


def test_a_file_torn_at_its_very_beginning_holds_nothing(tmp_path):
    for size in range(3):
        (tmp_path / "a.session").write_bytes(b"t1-session-1\n"[:size])
        assert read_log(tmp_path / "a.session") == ([], 0)


def test_a_directory_has_one_gateway_at_a_time(tmp_path):
    capture = Capture(tmp_path)
    with pytest.raises(RunError, match="another gateway"):
        Capture(tmp_path)
    capture.close()
    Capture(tmp_path).close()


async def test_session_names_never_leave_the_directory(tmp_path):
    async with gateway_at(tmp_path / "inner") as gateway:
        for name in ("../../x", "/etc/passwd", "..", "a" * 500, "\ud800", "a\nb"):
            gateway.open(name)
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]
    assert len(list((tmp_path / "inner").glob("*.session"))) == 6


async def test_a_disk_that_refuses_holds_up_no_reply_and_is_told(tmp_path):
    gateway = gateway_at(tmp_path / "inner", "one", "two")
    (tmp_path / "inner").rename(tmp_path / "away")  # writes fail from here on
    client = ChatClient(gateway, gateway.open("one").session)
    await client.say("a")
    await client.say("b")
    assert len(gateway.turns("one")) == 2
    await gateway.aclose(keep_open=True)
    assert "one" in gateway.capture_error and not list((tmp_path / "away").glob("*.session"))


async def test_no_more_sessions_are_opened_where_recording_falls_far_behind(tmp_path):
    gateway = gateway_at(tmp_path / "inner")
    gateway.config = gateway.config.model_copy(update={"max_capture_behind": 1})
    (tmp_path / "inner").rename(tmp_path / "away")
    with pytest.raises(GatewayError, match="behind"):
        for number in range(5):
            gateway.open(f"{number}")
    (tmp_path / "away").rename(tmp_path / "inner")  # what waited is written once it can be
    await gateway.aclose()
    assert len(list((tmp_path / "inner").glob("*.session"))) >= 1


CRASH = """
import asyncio, os, sys
from pathlib import Path
from t1.gateway.sessions import Gateway
from t1.testing.chat_clients import RENDERER, ChatClient, says
from t1.testing.samplers import RoutingShape, ScriptedSampler

async def main():
    gateway = Gateway(ScriptedSampler(lambda prompt: RENDERER.encode("reply").tolist(), routing=RoutingShape(),
                                      max_context=1 << 20), RENDERER, record=Path(sys.argv[1]))
    opened = gateway.open("victim")
    print(opened.key, flush=True)
    client = ChatClient(gateway, opened.session)
    for number in range(10_000):
        await client.say(f"message {number}")
        await asyncio.sleep(0.001)
        print(number, flush=True)

asyncio.run(main())
"""


def killed(directory):
    """The key of a session whose gateway was killed in the middle of its work."""
    command = [sys.executable, "-c", CRASH, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        key = process.stdout.readline().strip()
        for line in process.stdout:
            if int(line) >= 40:
                break
        process.kill()
        process.stdout.read()
    assert process.returncode == -signal.SIGKILL
    return key


async def test_a_killed_gateway_leaves_a_session_that_goes_on(tmp_path):
    key = killed(tmp_path)
    async with gateway_at(tmp_path, "after") as gateway:
        (restored,) = gateway.restored
        assert restored.num_exchanges >= 20
        turns = gateway.turns(gateway.check("victim", key))
        history = [user("message 0")]
        for number in range(1, len(turns)):
            history += [RENDERER.parse(turns[number - 1].completion), user(f"message {number}")]
        client = ChatClient(gateway, "victim", [*history, RENDERER.parse(turns[-1].completion)])
        await client.say("after the crash")
        recorded = await gateway.close("victim")
        # Killed between a reply and its delivery, the reply is an orphan, and the client goes on beside it.
        beside = [ChangeKind.BRANCH] if recorded.orphans else []
        assert [change.kind for change in recorded.changes] == beside and len(recorded.orphans) <= 1
        assert len(recorded.turns) == len(turns) + 1
        assert recorded.turns[-1].routing_start == len(turns[-1].prompt) + len(turns[-1].completion) - 1
