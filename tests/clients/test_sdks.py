"""Vendors' libraries, unmodified, drive the gateway: sync and async, streamed and whole, in a real sandbox."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import anthropic
import litellm
import openai
import pytest

from t1.testing.policies import call_text
from t1.types import Case

# litellm's own, on its first call.
pytestmark = pytest.mark.filterwarnings("ignore:Items? .* using the `ReadOnly` qualifier:UserWarning")
INSTRUCTION = "Write the word of secret.txt into answer.txt."
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
CHAT_TOOL = {"type": "function", "function": {"name": "bash", "description": "Runs a command.", "parameters": SCHEMA}}
RESPONSES_TOOL = {
    "type": "function",
    "name": "bash",
    "description": "Runs a command.",
    "parameters": SCHEMA,
    "strict": False,
}
ANTHROPIC_TOOL = {"name": "bash", "description": "Runs a command.", "input_schema": SCHEMA}


def write_word(observed):
    """The policy uses what it saw: the word in the tool's answer."""
    (word,) = re.findall(r"p\w+n", observed)
    return call_text("bash", {"command": f"echo {word} > answer.txt"}, saying="Now I write it. ")


SOLVES = [call_text("bash", {"command": "cat secret.txt"}, saying="I look.\n"), write_word, "Done."]


@dataclass(frozen=True, slots=True)
class Work:
    """What an agent does between its calls."""

    run: Callable[[str], Awaitable[str]]
    """Arguments of a call → what its tool says."""
    questions: tuple[str, ...] = ()
    """What the user says when no tool was called; after the last one the agent ends."""


async def chat(ask, work):
    """The loop of an agent that speaks chat completions; `ask(**body)` gives a message."""
    messages = [{"role": "user", "content": INSTRUCTION}]
    questions = iter(work.questions)
    while True:
        said = await ask(model="policy", messages=messages, tools=[CHAT_TOOL])
        messages.append(said)
        calls = said.get("tool_calls") or ()
        for call in calls:
            output = await work.run(call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
        if not calls:
            if (question := next(questions, None)) is None:
                return said["content"]
            messages.append({"role": "user", "content": question})


async def responses(ask, work):
    """The loop of an agent that speaks responses; `ask(**body)` gives a response."""
    items = [{"role": "user", "content": INSTRUCTION}]
    questions = iter(work.questions)
    while True:
        response = await ask(model="policy", input=items, tools=[RESPONSES_TOOL])
        items += [item.model_dump(exclude_none=True) for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        for call in calls:
            output = await work.run(call.arguments)
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
        if not calls:
            if (question := next(questions, None)) is None:
                return response.output_text
            items.append({"role": "user", "content": question})


async def messages_api(ask, work):
    """The loop of an agent that speaks messages; `ask(**body)` gives a message."""
    messages = [{"role": "user", "content": INSTRUCTION}]
    questions = iter(work.questions)
    while True:
        said = await ask(model="policy", messages=messages, tools=[ANTHROPIC_TOOL], max_tokens=1000)
        messages.append(
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in said.content]}
        )
        calls = [block for block in said.content if block.type == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": await work.run(json.dumps(call.input))}
            for call in calls
        ]
        if not calls and (question := next(questions, None)) is None:
            return said.content[-1].text
        messages.append({"role": "user", "content": results or question})


def without_nones(message):
    return {name: value for name, value in message.model_dump().items() if value is not None}


async def openai_chat(ground, work, streaming):
    async with openai.AsyncOpenAI(base_url=ground.url, api_key=ground.key, max_retries=0) as client:

        async def ask(**body):
            if not streaming:
                return without_nones((await client.chat.completions.create(**body)).choices[0].message)
            async with client.chat.completions.stream(**body, stream_options={"include_usage": True}) as stream:
                final = await stream.get_final_completion()
            assert final.usage.completion_tokens > 0
            return without_nones(final.choices[0].message)

        return await chat(ask, work)


async def openai_chat_sync(ground, work, streaming):
    with openai.OpenAI(base_url=ground.url, api_key=ground.key, max_retries=0) as client:

        def ask(**body):
            if not streaming:
                return without_nones(client.chat.completions.create(**body).choices[0].message)
            with client.chat.completions.stream(**body) as stream:
                return without_nones(stream.get_final_completion().choices[0].message)

        return await chat(partial(asyncio.to_thread, ask), work)


async def openai_responses(ground, work, streaming):
    async with openai.AsyncOpenAI(base_url=ground.url, api_key=ground.key, max_retries=0) as client:

        async def ask(**body):
            if not streaming:
                return await client.responses.create(**body)
            async with client.responses.stream(**body) as stream:
                return await stream.get_final_response()

        return await responses(ask, work)


async def openai_responses_sync(ground, work, streaming):
    with openai.OpenAI(base_url=ground.url, api_key=ground.key, max_retries=0) as client:

        def ask(**body):
            if not streaming:
                return client.responses.create(**body)
            with client.responses.stream(**body) as stream:
                return stream.get_final_response()

        return await responses(partial(asyncio.to_thread, ask), work)


async def anthropic_messages(ground, work, streaming):
    url = ground.url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=url, api_key=ground.key, max_retries=0) as client:

        async def ask(**body):
            if not streaming:
                return await client.messages.create(**body)
            async with client.messages.stream(**body) as stream:
                return await stream.get_final_message()

        return await messages_api(ask, work)


async def anthropic_messages_sync(ground, work, streaming):
    with anthropic.Anthropic(base_url=ground.url.removesuffix("/v1"), api_key=ground.key, max_retries=0) as client:

        def ask(**body):
            if not streaming:
                return client.messages.create(**body)
            with client.messages.stream(**body) as stream:
                return stream.get_final_message()

        return await messages_api(partial(asyncio.to_thread, ask), work)


async def litellm_chat(ground, work, streaming):
    async def ask(model, **body):
        where = {"model": f"openai/{model}", "api_base": ground.url, "api_key": ground.key}
        reply = await litellm.acompletion(**where, **body, stream=streaming)
        if streaming:
            reply = litellm.stream_chunk_builder([chunk async for chunk in reply], messages=body["messages"])
        return without_nones(reply.choices[0].message)

    return await chat(ask, work)


async def litellm_anthropic(ground, work, streaming):
    async def ask(model, **body):
        url = ground.url.removesuffix("/v1")
        where = {"model": f"anthropic/{model}", "api_base": url, "api_key": ground.key}
        reply = await litellm.acompletion(**where, **body, stream=streaming)
        if streaming:
            reply = litellm.stream_chunk_builder([chunk async for chunk in reply], messages=body["messages"])
        return without_nones(reply.choices[0].message)

    return await chat(ask, work)


CLIENTS = [
    openai_chat,
    openai_chat_sync,
    openai_responses,
    openai_responses_sync,
    anthropic_messages,
    anthropic_messages_sync,
    litellm_chat,
    litellm_anthropic,
]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
async def test_a_client_solves_a_task_and_its_turns_join_strictly(client, streaming, open_ground, sandbox):
    async def run(arguments):
        return (await sandbox.run(json.loads(arguments)["command"], timeout_s=20)).output

    async with open_ground(SOLVES) as ground, asyncio.timeout(60):
        assert await client(ground, Work(run), streaming) == "Done."
        assert await sandbox.read("/app/answer.txt", max_bytes=100) == b"pumpkin\n"
        trajectories, report = await ground.finish()
    assert report.findings == ()
    assert len(trajectories) == 1
    assert [boundary.case for boundary in trajectories[0].boundaries] == [Case.OPEN, Case.STRICT, Case.STRICT]
    assert report.counters["loss_region_drift"] == report.counters["residual"] == 0


@pytest.mark.parametrize(
    "client", [openai_chat, openai_responses, anthropic_messages, litellm_chat], ids=lambda client: client.__name__
)
async def test_a_real_model_samples_and_every_token_is_trained_as_it_was_sampled(client, open_ground, engine):
    """Untrained on this, the small model says anything at all: cases T4, T6 and T13 with real ids and routes."""

    async def run(arguments):
        return "no such command"

    async with open_ground(engine, max_tokens=24) as ground, asyncio.timeout(60):
        await client(ground, Work(run, ("What?", "Really? é 漢 🙂")), streaming=True)
        trajectories, report = await ground.finish()
    assert report.findings == ()
    assert sum(len(trajectory.boundaries) for trajectory in trajectories) >= 3
    assert report.counters["loss_region_drift"] == report.counters["residual"] == 0
    assert report.counters["sampled_tokens"] == sum(trajectory.num_actions for trajectory in trajectories)
    assert report.counters["routing_rows"] > 0
