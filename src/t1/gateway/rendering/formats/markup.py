"""Calls as markup: Qwen3.5's `<function=…><parameter=…>` and GLM's `<arg_key>/<arg_value>`.

Values are bare text, so a delimiter inside a value is told from a real one by what follows it: only a delimiter that
leads on to the next piece of the structure ends a value. Strings stay text, other types of the schema stay the JSON
that was written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from t1.gateway.conversation import Tool
from t1.gateway.rendering.formats.hermes import CLOSE, OPEN
from t1.gateway.rendering.formats.parsed import Call, Parsed, split_reasoning, take_calls
from t1.gateway.rendering.formats.written import value_at

_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>\s*")
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?")
_END_PARAMETER = re.compile(r"\n?</parameter>\s*(?=<parameter=[^>\n]+>|</function>\s*(?:</tool_call>|\Z))")
_END_FUNCTION = re.compile(r"</function>\s*(?:</tool_call>|\Z)")
_KEY = re.compile(r"<arg_key>([^<\n]*)</arg_key>\s*<arg_value>")
_END_VALUE = re.compile(rf"</arg_value>\s*(?={_KEY.pattern}|</tool_call>)")


def parse_function_tags(text: str, tools: Sequence[Tool] = ()) -> Parsed:
    """Qwen3.5 and Qwen3-Coder."""
    reasoning, rest = split_reasoning(text)
    content, calls = take_calls(rest, OPEN, lambda inside, start: _function_call(inside, start, tools))
    return Parsed(content, reasoning, calls)


def parse_argument_tags(text: str, tools: Sequence[Tool] = ()) -> Parsed:
    """GLM 4.5 and later."""
    reasoning, rest = split_reasoning(text)
    rest = rest.removeprefix("\n")
    content, calls = take_calls(rest, OPEN, lambda inside, start: _argument_call(inside, start, tools))
    return Parsed(content, reasoning, calls)


def _function_call(text: str, start: int, tools: Sequence[Tool]) -> tuple[Call, int] | None:
    opened = _FUNCTION.match(text, start)
    if opened is None:
        return None
    values: dict[str, str] = {}
    position = opened.end()
    while (parameter := _PARAMETER.match(text, position)) is not None:
        end = _END_PARAMETER.search(text, parameter.end())
        if end is None:
            return None
        values[parameter[1]] = text[parameter.end() : end.start()]
        position = end.end()
    closed = _END_FUNCTION.match(text, position)
    return (_call(opened[1], values, tools), closed.end()) if closed else None


def _argument_call(text: str, start: int, tools: Sequence[Tool]) -> tuple[Call, int] | None:
    position = text.find("<", start)
    name = text[start:position].strip()
    if position < 0 or not name or "\n" in name:
        return None
    values: dict[str, str] = {}
    while (key := _KEY.match(text, position)) is not None:
        end = _END_VALUE.search(text, key.end())
        if end is None:
            return None
        values[key[1].strip()] = text[key.end() : end.start()]
        position = end.end()
    return (_call(name, values, tools), position + len(CLOSE)) if text.startswith(CLOSE, position) else None


def _call(name: str, values: Mapping[str, str], tools: Sequence[Tool]) -> Call:
    """The call with its arguments as the text of one JSON object."""
    parameters = next((tool.parameters for tool in tools if tool.name == name), {})
    properties = parameters.get("properties")
    schemas = properties if isinstance(properties, Mapping) else {}
    members = (f"{_json(key)}: {_value(value, schemas.get(key))}" for key, value in values.items())
    return Call(name, "{" + ", ".join(members) + "}")


def _value(text: str, schema: Any) -> str:
    """A value as JSON text: a string, unless its schema says otherwise and the text is JSON."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    kinds = {kind} if isinstance(kind, str) else set(kind) if isinstance(kind, list) else set()
    if kinds and "string" not in kinds:
        stripped = text.strip()
        try:
            _, end = value_at(stripped, 0)
        except ValueError:
            return _json(text)
        return stripped if end == len(stripped) else _json(text)
    return _json(text)


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
