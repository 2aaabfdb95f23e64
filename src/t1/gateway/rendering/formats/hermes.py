"""Hermes and Qwen3: `<tool_call>` around a JSON object with name and arguments, reasoning in `<think>`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from t1.gateway.conversation import Tool
from t1.gateway.rendering.formats.parsed import Call, Parsed, split_reasoning, take_calls
from t1.gateway.rendering.formats.written import members_at, object_text

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def parse(text: str, tools: Sequence[Tool] = ()) -> Parsed:
    """Reasoning, content and calls. The end of a call is where its JSON ends, whatever stands in its strings."""
    reasoning, rest = split_reasoning(text)
    content, calls = take_calls(rest, OPEN, _call)
    return Parsed(content, reasoning, calls)


def describe(tools: Sequence[Tool]) -> str:
    """The tools and how to call one, for the system message of a template that knows no tools."""
    listed = "\n".join(
        json.dumps({"name": t.name, "description": t.description, "parameters": dict(t.parameters)}, ensure_ascii=False)
        for t in tools
    )
    return (
        "# Tools\n\nThese functions can be called; each line is the JSON schema of one:\n"
        f"<tools>\n{listed}\n</tools>\n\n"
        f"To call one, write a JSON object with its name and its arguments between tags:\n{OPEN}\n"
        f'{{"name": "the function", "arguments": {{"a parameter": "its value"}}}}\n{CLOSE}'
    )


def call_of(members: dict[str, str]) -> Call | None:
    """The call in the members of a JSON object; arguments that are the JSON text of an object are taken out of it."""
    name = json.loads(members.get("name", '""'))
    arguments = members.get("arguments", "{}")
    if arguments.startswith('"'):
        arguments = json.loads(arguments)
    written = object_text(arguments)
    return Call(name, written) if isinstance(name, str) and name and written is not None else None


def _call(text: str, start: int) -> tuple[Call, int] | None:
    """The call whose JSON begins at `start`; a missing closing tag at the very end is forgiven (a stop cut it)."""
    try:
        members, end = members_at(text, start)
    except ValueError:
        return None
    rest = text[end:].lstrip()
    end = len(text) - len(rest)
    call = call_of(members)
    if call is None or not (rest.startswith(CLOSE) or not rest):
        return None
    return call, end + (len(CLOSE) if rest else 0)
