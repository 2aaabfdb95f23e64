"""`t1 gateway`: who may reach it, and what it tells the person who started it."""

import asyncio
import re

import httpx
import pytest

from t1.base import base_path
from t1.cli.gateway import check_address, longest_context, serve_until_cancelled
from t1.errors import CheckpointError, ConfigError
from t1.gateway.config import GatewayConfig
from t1.gateway.rendering import renderer_for
from t1.testing.samplers import RoutingShape, ScriptedSampler


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.9.1"])
def test_loopback_needs_no_leave(host):
    check_address(host, allow_remote=False, open_keys=True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1"])
def test_other_addresses_need_leave_and_real_keys(host):
    with pytest.raises(ConfigError, match="--allow-remote"):
        check_address(host, allow_remote=False, open_keys=False)
    check_address(host, allow_remote=True, open_keys=False)
    with pytest.raises(ConfigError, match="--open"):
        check_address(host, allow_remote=True, open_keys=True)


def test_a_name_is_no_address():
    with pytest.raises(ConfigError, match="IP address"):
        check_address("example.org", allow_remote=True, open_keys=False)


def test_the_context_is_the_models_own(tmp_path):
    assert longest_context(base_path()) == 1024
    with pytest.raises(CheckpointError, match="--max-context"):
        longest_context(tmp_path)


async def serve_for(calls, record, capsys, **config):
    """Serve the shipped tokenizer over a script, make some calls, stop; what was printed."""
    text = renderer_for(base_path()).encode("hello").tolist()
    sampler = ScriptedSampler(lambda prompt: text, routing=RoutingShape())
    serving = asyncio.create_task(serve_until_cancelled(sampler, None, GatewayConfig(**config), "127.0.0.1", 0, record))
    printed = ""
    async with asyncio.timeout(10):
        while "Ctrl-C" not in printed and not serving.done():
            await asyncio.sleep(0.01)
            printed += capsys.readouterr().out
    (url,) = set(re.findall(r"http://127\.0\.0\.1:\d+", printed))
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        for key, messages in calls:
            body = {"model": "t1", "messages": messages}
            reply = await client.post("/v1/chat/completions", headers={"authorization": f"Bearer {key}"}, json=body)
            assert reply.json()["choices"][0]["message"]["content"] == "hello"
    await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    return printed + capsys.readouterr().out


async def test_it_says_how_to_point_an_agent_at_it_and_goes_on_from_its_record(tmp_path, capsys):
    begun = [{"role": "user", "content": "hi"}]
    printed = await serve_for([("mine", begun)], tmp_path, capsys, open_keys=True)
    assert "OPENAI_BASE_URL" in printed and "ANTHROPIC_BASE_URL" in printed and "restored" not in printed
    more = [*begun, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "again"}]
    printed = await serve_for([("mine", more)], tmp_path, capsys, open_keys=True)
    assert re.search(r"restored key-[0-9a-f]{16}: 1 calls", printed)
