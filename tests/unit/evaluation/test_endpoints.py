"""Models behind HTTP endpoints: text in, text out, the server's own counts, and bounds."""

import json
from collections.abc import Callable

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1.errors import ConfigError, EngineError, EngineTimeout, EngineUnavailable
from t1.evaluation.endpoints import Address, CharacterRenderer, EndpointSampler, read_messages
from t1.harness import TerminalConfig, TerminalHarness
from t1.rollouts.cost import FREE, Prices
from t1.testing.sandboxes import FakeSandboxProvider
from t1.testing.tasks import example_task
from t1.types import FinishReason, Outcome, RewardSource, Rollout, RolloutId, SamplingParams, StopReason

OPENAI = Address.parse("openai:some/model@http://127.0.0.1:9/v1")
ANTHROPIC = Address.parse("anthropic:claude@http://127.0.0.1:9")
RENDERER = CharacterRenderer()


def sampler_of(
    address: Address, answer: Callable[[httpx.Request], httpx.Response], prices: Prices = FREE
) -> EndpointSampler:
    """A sampler whose server is a function."""
    return EndpointSampler(address, prices=prices, backoff_s=0.0, transport=httpx.MockTransport(answer))


def chat_reply(text: str, finish: str = "stop") -> httpx.Response:
    """What an OpenAI-compatible server answers."""
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}
    body = {"model": "some/model-2026", "choices": [{"message": {"content": text}, "finish_reason": finish}]}
    return httpx.Response(200, json=body | {"usage": usage})


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "tool"]), st.text()), min_size=1), st.text())
def test_messages_come_back_from_characters_as_they_were(messages, reply):
    prompt = RENDERER.open(messages)
    assert read_messages(prompt) == messages
    completion = RENDERER.encode(reply)
    longer = np.concatenate([prompt, completion, RENDERER.extend(completion, [("tool", "seen")])])
    assert read_messages(longer) == [*messages, ("assistant", reply), ("tool", "seen")]


@pytest.mark.parametrize("text", ["openai:model", "anthropic:", "http://x", "openai:@http://x/v1"])
def test_what_names_no_endpoint_is_refused_with_the_right_form(text):
    with pytest.raises(ConfigError, match="openai:MODEL@"):
        Address.parse(text)


async def test_a_chat_endpoint_gets_messages_and_its_counts_are_kept():
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.path, json.loads(request.content)))
        return chat_reply("ls")

    sampler = sampler_of(OPENAI, answer, Prices(input_per_million=10, cached_per_million=1, output_per_million=100))
    prompt = RENDERER.open([("system", "be brief"), ("user", "list")])
    sample = await sampler.sample(prompt, SamplingParams(temperature=0.5, max_tokens=9), session="t/0/0#1")
    await sampler.aclose()
    path, body = seen[0]
    assert path == "/v1/chat/completions"
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("some/model", 0.5, 9)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert RENDERER.decode(sample.completion) == "ls" and sample.finish is FinishReason.STOP
    outcome = Outcome(StopReason.SUBMITTED, None, 0.0, RewardSource.BINARY)
    spent = sampler.spent_on(Rollout(RolloutId("t", 0, 0), "digest", (), outcome))
    assert (spent.tokens_in, spent.tokens_cached, spent.tokens_out) == (100, 60, 7)
    assert spent.money == pytest.approx((40 * 10 + 60 * 1 + 7 * 100) / 1e6)
    assert sampler.reported_model == "some/model-2026"


async def test_anthropic_gets_the_system_prompt_apart_and_tool_output_as_the_users():
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        usage = {"input_tokens": 3, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 4}
        content = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "cut"}]
        return httpx.Response(200, json={"content": content, "stop_reason": "max_tokens", "usage": usage})

    sampler = sampler_of(ANTHROPIC, answer)
    prompt = RENDERER.open([("system", "be brief"), ("user", "list"), ("tool", "")])
    sample = await sampler.sample(prompt, SamplingParams(), session="s")
    await sampler.aclose()
    assert seen[0]["system"] == "be brief"
    assert seen[0]["messages"] == [{"role": "user", "content": "list"}, {"role": "user", "content": " "}]
    assert sample.finish is FinishReason.LENGTH and RENDERER.decode(sample.completion) == "cut"


async def test_a_busy_server_is_asked_again_and_then_given_up():
    answers = iter([httpx.Response(529), httpx.Response(503), chat_reply("ok")])
    sampler = sampler_of(OPENAI, lambda request: next(answers))
    sample = await sampler.sample(RENDERER.open([("user", "x")]), SamplingParams(), session="s")
    assert RENDERER.decode(sample.completion) == "ok"
    down = sampler_of(OPENAI, lambda request: httpx.Response(503))
    with pytest.raises(EngineUnavailable, match="4 times"):
        await down.sample(RENDERER.open([("user", "x")]), SamplingParams(), session="s")
    await sampler.aclose()
    await down.aclose()


def _late(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("late", request=request)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda request: httpx.Response(401), ConfigError),
        (lambda request: httpx.Response(400, text="too long"), EngineError),
        (lambda request: httpx.Response(200, text="<html>"), EngineError),
        (lambda request: httpx.Response(200, json=[1]), EngineError),
        (lambda request: httpx.Response(200, json={"choices": []}), EngineError),
        (lambda request: httpx.Response(200, json={"choices": [{"message": "no object"}]}), EngineError),
        (_late, EngineTimeout),
    ],
)
async def test_what_is_no_reply_is_a_typed_error(answer, error):
    sampler = sampler_of(OPENAI, answer)
    with pytest.raises(error):
        await sampler.sample(RENDERER.open([("user", "x")]), SamplingParams(), session="s")
    await sampler.aclose()


async def test_weights_are_not_published_to_an_endpoint():
    sampler = sampler_of(OPENAI, lambda request: chat_reply("x"))
    with pytest.raises(EngineError, match="takes no weights"):
        await sampler.publish({}, 1)
    await sampler.aclose()


async def test_text_that_json_cannot_carry_is_replaced_on_the_way_out():
    bodies = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return chat_reply("x")

    sampler = sampler_of(OPENAI, answer)
    await sampler.sample(RENDERER.open([("user", "a\udc80b")]), SamplingParams(), session="s")
    await sampler.aclose()
    assert bodies[0]["messages"][0]["content"] == "a?b"


async def test_our_harness_works_unchanged_with_a_remote_model():
    replies = iter(["```bash\necho one\n```", "```bash\nexit\n```"])
    sampler = sampler_of(OPENAI, lambda request: chat_reply(next(replies)))
    config = TerminalConfig(action_format="fenced", max_sampled_tokens=10_000)
    harness, task = TerminalHarness(RENDERER, config), example_task()
    episode = await harness.run(task, await FakeSandboxProvider().open(task), sampler, session="s")
    await sampler.aclose()
    assert episode.stop is StopReason.SUBMITTED
    assert [turn.observation for turn in episode.turns] == ["one", ""]
