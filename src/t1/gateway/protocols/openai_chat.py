"""OpenAI's `/v1/chat/completions`: bodies to Requests, Replies to bodies and chunks.

What a model thinks aloud travels as `reasoning_content`, as other servers of open models spell it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from t1.gateway.conversation import Finish, GatewayError, Message, Reply, Request, Role, Tool, ToolCall
from t1.gateway.protocols.wire import (
    Body,
    Call,
    Dialect,
    Json,
    Part,
    bad_field,
    in_order_of_calls,
    join_texts,
    openai_error,
    read_body,
    sse,
    unknown_fields,
)

ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
FINISHES = {
    Finish.STOP: "stop",
    Finish.STOP_SEQUENCE: "stop",
    Finish.LENGTH: "length",
    Finish.TOOL_CALLS: "tool_calls",
}


class _Function(Body):
    name: str
    arguments: str = ""


class _ToolCall(Body):
    id: str
    type: str = "function"
    function: _Function


class _Message(Body):
    role: str
    content: str | list[Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None


@with_config(ConfigDict(extra="forbid", strict=True))
class _Plain(TypedDict):
    """A message that is only text: nearly all of a long conversation, so it is read without an object of its own."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str


class _Schema(Body):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(Body):
    type: str
    function: _Schema | None = None


class _StreamOptions(Body):
    include_usage: bool | None = None


class _ChatBody(Body):
    model: str
    messages: list[Annotated[_Plain | _Message, Field(union_mode="left_to_right")]]
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


def read(raw: bytes) -> Call:
    """Read the body of a call."""
    body = read_body(_ChatBody, raw)
    if body.n not in (None, 1):
        raise bad_field("n", f"only n=1 is sampled: a rollout is one line of decisions; got {body.n}")
    if not body.messages:
        raise bad_field("messages", "expected at least one message")
    tools, ignored = _tools(body)
    request = Request(
        model=body.model,
        messages=in_order_of_calls([_message(message, i) for i, message in enumerate(body.messages)]),
        tools=tools,
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        seed=body.seed,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        ignored=(*unknown_fields(body), *ignored),
    )
    with_usage = body.stream_options is not None and body.stream_options.include_usage is True
    return Call(request, body.stream is True, write, partial(write_events, with_usage=with_usage))


def _tools(body: _ChatBody) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """The tools on offer, and what of the choice among them cannot be kept: sampling is never constrained."""
    if body.tool_choice == "none" or not body.tools:
        return (), ()
    tools = []
    for index, tool in enumerate(body.tools):
        if tool.type != "function" or tool.function is None:
            raise bad_field(f"tools.{index}", "expected a tool of type function, with its function")
        schema = tool.function
        tools.append(Tool(schema.name, schema.description or "", schema.parameters or {}))
    return tuple(tools), (() if body.tool_choice in (None, "auto") else ("tool_choice",))


def _message(message: _Plain | _Message, index: int) -> Message:
    """One message of the conversation."""
    if not isinstance(message, _Message):
        return Message(ROLES[message["role"]], message["content"])
    param = f"messages.{index}"
    if message.role not in ROLES:
        raise bad_field(f"{param}.role", f"expected one of {', '.join(ROLES)}, got {message.role}")
    role = ROLES[message.role]
    calls = tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ())
    if calls and role is not Role.ASSISTANT:
        raise bad_field(f"{param}.tool_calls", f"only the assistant calls tools, not {message.role}")
    answers = message.tool_call_id or (message.name if message.role == "function" else None)
    if role is Role.TOOL and not answers:
        raise bad_field(f"{param}.tool_call_id", "a tool's message names the call that it answers")
    separator = "" if role is Role.ASSISTANT else "\n"
    return Message(
        role=role,
        content=join_texts(message.content, f"{param}.content", ("text", "refusal"), separator),
        reasoning=message.reasoning_content or message.reasoning or "",
        tool_calls=calls,
        tool_call_id=answers or "",
        name=message.name or "",
    )


def write(reply: Reply) -> Json:
    """The reply as one body."""
    message = reply.message
    said: Json = {"role": "assistant", "content": message.content or (None if message.tool_calls else "")}
    if message.reasoning:
        said["reasoning_content"] = message.reasoning
    if message.tool_calls:
        said["tool_calls"] = [_write_call(call) for call in message.tool_calls]
    choice = {"index": 0, "message": said, "finish_reason": FINISHES[reply.finish], "logprobs": None}
    return {**_head(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}


def write_events(reply: Reply, *, with_usage: bool) -> Iterator[bytes]:
    """The reply as chunks: role, reasoning, text, calls, the finish, then the usage where it was asked for."""
    head, message = _head(reply, "chat.completion.chunk"), reply.message
    usage = {"usage": None} if with_usage else {}

    def chunk(delta: Json, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return sse({**head, "choices": [choice], **usage})

    yield chunk({"role": "assistant", "content": ""})
    if message.reasoning:
        yield chunk({"reasoning_content": message.reasoning})
    if message.content:
        yield chunk({"content": message.content})
    for index, call in enumerate(message.tool_calls):
        yield chunk({"tool_calls": [{"index": index, **_write_call(call)}]})
    yield chunk({}, FINISHES[reply.finish])
    if with_usage:
        yield sse({**head, "choices": [], "usage": _usage(reply)})
    yield b"data: [DONE]\n\n"


def write_error_events(error: GatewayError) -> Iterator[bytes]:
    """An error after the stream has begun: clients raise it."""
    yield sse(openai_error(error))


def _write_call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _head(reply: Reply, kind: str) -> Json:
    return {"id": reply.id, "object": kind, "created": int(time.time()), "model": reply.model}


def _usage(reply: Reply) -> Json:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
    }


CHAT = Dialect(read=read, error=openai_error, error_events=write_error_events, keep_alive=b": keep-alive\n\n")
