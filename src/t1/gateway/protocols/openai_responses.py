"""OpenAI's `/v1/responses`: bodies to Requests, Replies to bodies and events.

A reply is a list of items here: what the assistant thought, said and called. Items of one reply that stand together
in the input become one message again. Nothing is kept between calls but the session's own record, so a client sends
its whole input; what it thought comes back inside `encrypted_content`, letter by letter. Events: `responses_events.py`.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from t1.gateway.conversation import Finish, Message, Reply, Request, Role, Tool, ToolCall
from t1.gateway.protocols.wire import (
    Body,
    Json,
    Part,
    bad_field,
    in_order_of_calls,
    join_texts,
    read_body,
    tool_arguments,
    unknown_fields,
)

ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}
TEXT_PARTS = ("input_text", "output_text", "text", "refusal")
UNSEEN = "[not shown: this model reads text only]"
"""Stands for an image or a file that a tool returned."""


class _Part(Part):
    """A part of an item; the further fields are of parts that we wrote ourselves."""

    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class _Format(Body):
    definition: str | None = None


class _Tool(Body):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    format: _Format | None = None
    tools: list[_Tool] | None = None


class _Item(Body):
    """An item of any type."""

    type: str = "message"
    role: str | None = None
    content: str | list[_Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: str | list[Part] | None = None
    id: str | None = None
    status: str | None = None


class _ResponsesBody(Body):
    model: str
    input: str | list[_Item]
    instructions: str | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stream: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Ways:
    """How the tools on offer want to be called, where it is not as plain functions."""

    freeform: frozenset[str] = frozenset()
    """Names of those that take free text."""
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Name, as the policy knows it → (namespace, name within it)."""


def read(raw: bytes) -> tuple[Request, bool, Ways]:
    """The request of a body, whether to stream, and how its tools are called."""
    body = read_body(_ResponsesBody, raw)
    for name in ("previous_response_id", "conversation", "background"):
        if getattr(body, name):
            raise bad_field(name, "responses are not kept here between calls: send the whole input with each")
    items = [_Item(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    if not items:
        raise bad_field("input", "expected at least one item")
    tools, ways, ignored = _tools(body.tools or [], body.tool_choice)
    opening = (Message(Role.SYSTEM, body.instructions),) if body.instructions else ()
    request = Request(
        model=body.model,
        messages=in_order_of_calls([*opening, *_messages(items)]),
        tools=tools,
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        ignored=(*unknown_fields(body), *ignored),
    )
    return request, body.stream is True, ways


def _tools(offered: Sequence[_Tool], choice: str | Json | None) -> tuple[tuple[Tool, ...], Ways, tuple[str, ...]]:
    """The tools on offer, how they are called, and the names of what cannot be kept."""
    tools: list[Tool] = []
    freeform: set[str] = set()
    namespaces: dict[str, tuple[str, str]] = {}
    ignored = [] if choice in (None, "auto", "none") else ["tool_choice"]
    for tool in offered if choice != "none" else ():
        match tool.type:
            case "function" if tool.name:
                tools.append(Tool(tool.name, tool.description or "", tool.parameters or {}))
            case "custom" if tool.name:
                freeform.add(tool.name)
                tools.append(_freeform_tool(tool, tool.name))
            case "namespace" if tool.name:
                for inner in tool.tools or []:
                    if inner.type == "function" and inner.name:
                        name = _full_name(tool.name, inner.name)
                        namespaces[name] = (tool.name, inner.name)
                        tools.append(Tool(name, inner.description or "", inner.parameters or {}))
            case kind:
                ignored.append(f"tools.{kind}")
    return tuple(tools), Ways(frozenset(freeform), namespaces), tuple(dict.fromkeys(ignored))


def _freeform_tool(tool: _Tool, name: str) -> Tool:
    """A tool that takes text of a grammar, as a function of one string."""
    grammar = tool.format.definition if tool.format is not None else None
    described = "\n\n".join(filter(None, [tool.description, grammar and f"Grammar of the input:\n{grammar}"]))
    text = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    return Tool(name, described, text)


def _full_name(namespace: str | None, name: str) -> str:
    """A name that says its namespace too."""
    return f"{namespace}.{name}" if namespace else name


def _messages(items: Sequence[_Item]) -> list[Message]:
    """The conversation; neighbouring items of the assistant are one message, until it thinks or speaks after a call."""
    messages: list[Message] = []
    for index, item in enumerate(items):
        message = _message(item, f"input.{index}")
        last = messages[-1] if messages else None
        if last is None or not (last.role is message.role is Role.ASSISTANT) or _starts_anew(last, message):
            messages.append(message)
        else:
            messages[-1] = replace(
                last,
                content=last.content + message.content,
                reasoning=last.reasoning + message.reasoning,
                tool_calls=last.tool_calls + message.tool_calls,
            )
    return messages


def _starts_anew(last: Message, message: Message) -> bool:
    """True when `message` cannot belong to the reply that `last` is of: the order is thinking, speech, calls."""
    if message.tool_calls:
        return False
    return bool(last.tool_calls or (message.reasoning and last.content))


def _message(item: _Item, param: str) -> Message:
    """The part of a conversation that an item is."""
    match item.type:
        case "message":
            if item.role not in ROLES:
                raise bad_field(f"{param}.role", f"expected one of {', '.join(ROLES)}, got {item.role}")
            role = ROLES[item.role]
            separator = "" if role is Role.ASSISTANT else "\n"
            return Message(role, join_texts(item.content, f"{param}.content", TEXT_PARTS, separator))
        case "reasoning":
            return Message(Role.ASSISTANT, reasoning=_reasoning(item))
        case "function_call" | "custom_tool_call":
            if not item.call_id or not item.name:
                raise bad_field(param, f"a {item.type} has a call_id and a name")
            freeform = item.type == "custom_tool_call"
            arguments = tool_arguments({"input": item.input or ""}) if freeform else item.arguments
            call = ToolCall(item.call_id, _full_name(item.namespace, item.name), arguments or "")
            return Message(Role.ASSISTANT, tool_calls=(call,))
        case "function_call_output" | "custom_tool_call_output":
            if not item.call_id:
                raise bad_field(f"{param}.call_id", f"a {item.type} names the call that it answers")
            return Message(Role.TOOL, _output(item.output), tool_call_id=item.call_id)
        case kind:
            raise bad_field(f"{param}.type", f"items of type {kind} cannot be read here")


def _reasoning(item: _Item) -> str:
    """What was thought: as it was sampled where the client kept that, else what it shows of it."""
    try:
        return base64.b64decode(item.encrypted_content or "", validate=True).decode() or _shown(item)
    except ValueError:
        return _shown(item)


def _shown(item: _Item) -> str:
    parts = item.content if isinstance(item.content, list) and item.content else item.summary or []
    return "".join(part.text or "" for part in parts)


def _output(output: str | list[Part] | None) -> str:
    """The text of a tool's output. A picture among it must not end the rollout: a line says that it is there."""
    if output is None or isinstance(output, str):
        return output or ""
    return "\n".join((part.text or "") if part.type in TEXT_PARTS else UNSEEN for part in output)


def write_items(reply: Reply, ways: Ways) -> list[Json]:
    """The items of a reply: what was thought, said and called."""
    message, items = reply.message, []
    done: Json = {"status": "incomplete" if reply.finish is Finish.LENGTH else "completed"}
    if message.reasoning:
        sealed = base64.b64encode(message.reasoning.encode("utf-8", "replace")).decode()
        summary = [{"type": "summary_text", "text": message.reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{reply.id}", "summary": summary, "encrypted_content": sealed})
    if message.content or not message.tool_calls:
        part = {"type": "output_text", "text": message.content, "annotations": [], "logprobs": []}
        said = {"type": "message", "id": f"msg_{reply.id}", "role": "assistant", "content": [part]}
        items.append({**said, **done})
    for index, call in enumerate(message.tool_calls):
        items.append({**_write_call(call, ways), "id": f"fc_{reply.id}_{index}", **done})
    return items


def _write_call(call: ToolCall, ways: Ways) -> Json:
    if call.name in ways.freeform:
        return {"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": _freeform_input(call)}
    named: Json = {"name": call.name}
    if call.name in ways.namespaces:
        namespace, name = ways.namespaces[call.name]
        named = {"namespace": namespace, "name": name}
    return {"type": "function_call", "call_id": call.id, **named, "arguments": call.arguments}


def _freeform_input(call: ToolCall) -> str:
    """The text that a call of a free-form tool carries; what cannot be parsed goes to the tool as it is."""
    try:
        parsed = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.arguments
    text = parsed.get("input") if isinstance(parsed, dict) else None
    return text if isinstance(text, str) else call.arguments


def write_head(reply: Reply) -> Json:
    """The response as it stands when sampling begins."""
    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": int(time.time()),
        "model": reply.model,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }


def write(reply: Reply, ways: Ways) -> Json:
    """The reply as one body."""
    cut = reply.finish is Finish.LENGTH
    usage = {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens},
        "output_tokens": reply.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }
    return {
        **write_head(reply),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": write_items(reply, ways),
        "usage": usage,
    }
