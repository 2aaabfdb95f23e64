"""Messages and tools as the mappings that chat templates read, every text in them marked.

Templates disagree on little: whether a call's arguments are text or a mapping, and what reasoning is called. `Shape`
holds both answers; the renderer finds them by rendering a small conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from t1.gateway.conversation import Message, Role, Tool, ToolCall
from t1.gateway.rendering.template import WrittenJson
from t1.harness.spelling import Marking


@dataclass(frozen=True, slots=True)
class Shape:
    """How one template wants its messages."""

    arguments_as_text: bool = True
    """Arguments reach the template as they were written; otherwise as a mapping."""
    reasoning_key: str = "reasoning_content"


def template_messages(messages: Sequence[Message], shape: Shape, marking: Marking) -> list[dict[str, Any]]:
    """The messages as a template reads them; a tool's answer gets the name of the call that it answers."""
    names: dict[str, str] = {}
    result = []
    for message in messages:
        names |= {call.id: call.name for call in message.tool_calls}
        entry: dict[str, Any] = {"role": message.role.value, "content": marking.put(message.content)}
        if message.reasoning:
            entry[shape.reasoning_key] = marking.put(message.reasoning)
        if message.tool_calls:
            entry["tool_calls"] = [_call(call, shape, marking) for call in message.tool_calls]
        if message.role is Role.TOOL:
            entry["tool_call_id"] = marking.put(message.tool_call_id)
        name = message.name or (names.get(message.tool_call_id, "") if message.role is Role.TOOL else "")
        if name:
            entry["name"] = marking.put(name)
        result.append(entry)
    return result


def marked_tools(tools: Sequence[Tool], marking: Marking) -> list[Tool]:
    """The tools with every text in them marked."""
    return [
        Tool(marking.put(tool.name), marking.put(tool.description), _marked(tool.parameters, marking)) for tool in tools
    ]


def template_tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """The tools in OpenAI's shape, which templates print as JSON."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in tools
    ]


def texts_of(messages: Sequence[Message], tools: Sequence[Tool]) -> Iterator[str]:
    """Every text that a rendering of these may contain."""
    for message in messages:
        yield from (message.content, message.reasoning, message.tool_call_id, message.name)
        for call in message.tool_calls:
            yield from (call.id, call.name, call.arguments)
    for tool in tools:
        yield from (tool.name, tool.description)
        yield from _texts(tool.parameters)


def _call(call: ToolCall, shape: Shape, marking: Marking) -> dict[str, Any]:
    arguments = marking.put(call.arguments) if shape.arguments_as_text else _mapping(call.arguments, marking)
    function = {"name": marking.put(call.name), "arguments": arguments}
    return {"id": marking.put(call.id), "type": "function", "function": function}


def _mapping(arguments: str, marking: Marking) -> WrittenJson:
    """Arguments as a mapping; text that is no JSON object becomes the one value of a mapping."""
    written = marking.put(arguments or "{}")
    try:
        value = _marked(json.loads(arguments or "{}"), marking)
    except (ValueError, RecursionError):
        value = None
    return WrittenJson(written, value if isinstance(value, dict) else {"arguments": written})


def _marked(value: Any, marking: Marking) -> Any:
    """A JSON value with every text in it marked."""
    if isinstance(value, str):
        return marking.put(value)
    if isinstance(value, Mapping):
        return {marking.put(str(key)): _marked(entry, marking) for key, entry in value.items()}
    if isinstance(value, Sequence):
        return [_marked(entry, marking) for entry in value]
    return value


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield str(key)
            yield from _texts(entry)
    elif isinstance(value, Sequence):
        for entry in value:
            yield from _texts(entry)
