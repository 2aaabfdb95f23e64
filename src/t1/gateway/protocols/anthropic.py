"""Anthropic's `/v1/messages`: bodies to Requests, Replies to bodies and events.

One message of this protocol can hold tool results and text: it becomes one TOOL message a result and one USER message
for each run of text between them. Arguments of tools are objects here and JSON text elsewhere; text that is no JSON
object (the policy's own mistake) travels inside an object under `UNPARSED`, and comes back as it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

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
    read_body,
    sse,
    tool_arguments,
    unknown_fields,
    wording,
)

UNPARSED = "__unparsed_arguments__"
UNSEEN = "[not shown: this model reads text only]"
"""Stands for an image or a document that a tool returned."""
FINISHES = {
    Finish.STOP: "end_turn",
    Finish.STOP_SEQUENCE: "stop_sequence",
    Finish.LENGTH: "max_tokens",
    Finish.TOOL_CALLS: "tool_use",
}
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    410: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class _Block(Part):
    """A content block of any type; `content` is of a tool's result."""

    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    is_error: bool | None = None
    content: str | list[Part] | None = None


class _Message(Body):
    role: Literal["user", "assistant", "system"]
    content: str | list[_Block]


class _Tool(Body):
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class _Choice(Body):
    type: str


class _MessagesBody(Body):
    model: str
    messages: list[_Message]
    system: str | list[Part] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _Choice | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None


def read(raw: bytes) -> Call:
    """Read the body of a call. A count of tokens is asked for with the same body."""
    body = read_body(_MessagesBody, raw)
    if not body.messages:
        raise bad_field("messages", "expected at least one message")
    messages = [Message(Role.SYSTEM, text)] if (text := join_texts(body.system, "system", ("text",), "\n")) else []
    for index, message in enumerate(body.messages):
        messages += _messages(message, f"messages.{index}")
    tools, ignored = _tools(body)
    request = Request(
        model=body.model,
        messages=in_order_of_calls(messages),
        tools=tools,
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stop=tuple(body.stop_sequences or ()),
        ignored=(*unknown_fields(body), *ignored),
    )
    return Call(request, body.stream is True, write, write_events)


def _tools(body: _MessagesBody) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """The tools on offer, and the names of what cannot be kept: the vendor's own tools, a forced choice."""
    choice = "auto" if body.tool_choice is None else body.tool_choice.type
    tools = body.tools or [] if choice != "none" else []
    ours = tuple(Tool(t.name, t.description or "", t.input_schema) for t in tools if t.input_schema is not None)
    theirs = tuple(f"tools.{tool.name}" for tool in tools if tool.input_schema is None)
    return ours, theirs if choice in ("auto", "none") else (*theirs, "tool_choice")


def _messages(message: _Message, param: str) -> list[Message]:
    """The messages that one message of this protocol holds."""
    if isinstance(message.content, str):
        return [Message(Role(message.role), message.content)]
    if message.role == "assistant":
        return [_assistant(message.content, f"{param}.content")]
    return _results_and_text(message.content, Role(message.role), f"{param}.content")


def _assistant(blocks: Sequence[_Block], param: str) -> Message:
    content, reasoning, calls = "", "", []
    for index, block in enumerate(blocks):
        match block.type:
            case "text":
                content += block.text or ""
            case "thinking":
                reasoning += block.thinking or ""
            case "redacted_thinking":
                pass
            case "tool_use" if block.id and block.name:
                calls.append(ToolCall(block.id, block.name, _arguments(block.input or {})))
            case "tool_use":
                raise bad_field(f"{param}.{index}", "a tool_use block has an id and a name")
            case kind:
                raise bad_field(f"{param}.{index}.type", f"an assistant's block cannot be of type {kind} here")
    return Message(Role.ASSISTANT, content, reasoning, tuple(calls))


def _results_and_text(blocks: Sequence[_Block], role: Role, param: str) -> list[Message]:
    messages: list[Message] = []
    for index, block in enumerate(blocks):
        if block.type == "tool_result":
            if not block.tool_use_id:
                raise bad_field(f"{param}.{index}.tool_use_id", "a tool_result names the call that it answers")
            messages.append(Message(Role.TOOL, _result(block.content), tool_call_id=block.tool_use_id))
        else:
            text = join_texts([block], f"{param}", ("text",), "")
            if messages and messages[-1].role is role:
                text = f"{messages.pop().content}\n{text}"
            messages.append(Message(role, text))
    return messages


def _result(content: str | list[Part] | None) -> str:
    """The text of a tool's result. A picture among it must not end the rollout: a line says that it is there."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text or "" if part.type == "text" else UNSEEN for part in content)


def _arguments(value: Json) -> str:
    """The JSON text of a call's input."""
    if value.keys() == {UNPARSED} and isinstance(value[UNPARSED], str):
        return str(value[UNPARSED])
    return tool_arguments(value)


def _input_text(arguments: str) -> str:
    """JSON text of an object, as the policy wrote it wherever it is one."""
    try:
        if isinstance(json.loads(arguments), dict):
            return arguments
    except (ValueError, RecursionError):
        pass
    return tool_arguments({UNPARSED: arguments})


def _blocks(message: Message) -> Iterator[tuple[Json, tuple[Json, ...], Json]]:
    """For each block of a reply: how it opens, its deltas, and the block as a whole."""
    if message.reasoning:
        signature = hashlib.sha256(message.reasoning.encode("utf-8", "surrogatepass")).hexdigest()
        yield (
            {"type": "thinking", "thinking": "", "signature": ""},
            (
                {"type": "thinking_delta", "thinking": message.reasoning},
                {"type": "signature_delta", "signature": signature},
            ),
            {"type": "thinking", "thinking": message.reasoning, "signature": signature},
        )
    if message.content or not message.tool_calls:
        yield (
            {"type": "text", "text": ""},
            ({"type": "text_delta", "text": message.content},),
            {"type": "text", "text": message.content},
        )
    for call in message.tool_calls:
        use, text = {"type": "tool_use", "id": call.id, "name": call.name}, _input_text(call.arguments)
        delta = {"type": "input_json_delta", "partial_json": text}
        yield {**use, "input": {}}, (delta,), {**use, "input": json.loads(text)}


def write(reply: Reply) -> Json:
    """The reply as one body."""
    return {
        **_head(reply),
        "content": [block for _, _, block in _blocks(reply.message)],
        "stop_reason": FINISHES[reply.finish],
        "stop_sequence": reply.stop_sequence or None,
        "usage": _usage(reply, reply.completion_tokens),
    }


def write_events(reply: Reply) -> Iterator[bytes]:
    """The reply as events, in the order that the vendor promises."""
    empty: Json = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": _usage(reply, 0)}
    yield _event("message_start", message={**_head(reply), **empty})
    for index, (opening, deltas, _) in enumerate(_blocks(reply.message)):
        yield _event("content_block_start", index=index, content_block=opening)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ending = {"stop_reason": FINISHES[reply.finish], "stop_sequence": reply.stop_sequence or None}
    yield _event("message_delta", delta=ending, usage=_usage(reply, reply.completion_tokens))
    yield _event("message_stop")


def write_count(num_tokens: int) -> Json:
    """The body of a count of tokens."""
    return {"input_tokens": num_tokens}


def write_error(error: GatewayError) -> Json:
    """An error as one body."""
    fallback = "invalid_request_error" if error.status < 500 else "api_error"
    kind = ERROR_TYPES.get(error.status, fallback)
    return {"type": "error", "error": {"type": kind, "message": wording(error)}}


def write_error_events(error: GatewayError) -> Iterator[bytes]:
    """An error after the stream has begun."""
    yield sse(write_error(error), name="error")


def _event(kind: str, **fields: Any) -> bytes:
    return sse({"type": kind, **fields}, name=kind)


def _head(reply: Reply) -> Json:
    return {"id": reply.id, "type": "message", "role": "assistant", "model": reply.model}


def _usage(reply: Reply, num_sampled: int) -> Json:
    return {
        "input_tokens": reply.prompt_tokens - reply.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": reply.cached_tokens,
        "output_tokens": num_sampled,
    }


MESSAGES = Dialect(
    read=read, error=write_error, error_events=write_error_events, keep_alive=sse({"type": "ping"}, name="ping")
)
