"""DeepSeek V3, R1 and V3.1: calls between control tokens of their own, reasoning in `<think>`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from t1.gateway.conversation import Tool
from t1.gateway.rendering.formats.parsed import Call, Parsed, split_reasoning, take_calls
from t1.gateway.rendering.formats.written import object_text, value_at

CALLS, END_CALLS = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEPARATOR, END_CALL = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_FENCED = re.compile(r"([^\n]+)\n```json\s*")
_SPACE = re.compile(r"\s*")


def parse(text: str, tools: Sequence[Tool] = ()) -> Parsed:
    """Reasoning, content and calls, fenced (V3, R1: `function`, name, ```json) or bare (V3.1: name, JSON)."""
    reasoning, rest = split_reasoning(text)
    content, calls = take_calls(rest, CALL, _call)
    if calls:
        content = content.replace(CALLS, "").replace(END_CALLS, "").strip("\n")
    return Parsed(content, reasoning, calls)


def describe(tools: Sequence[Tool]) -> str:
    """The tools and how to call one, for the system message of a template that knows no tools."""
    listed = "\n\n".join(
        f"### {t.name}\n{t.description}\nParameters: {json.dumps(dict(t.parameters), ensure_ascii=False)}"
        for t in tools
    )
    return (
        f"## Tools\n\nThese functions can be called:\n\n{listed}\n\nTo call one or more, end the answer with:\n"
        f"{CALLS}{CALL}function{SEPARATOR}the function's name\n```json\n"
        f'{{"a parameter": "its value"}}\n```{END_CALL}{END_CALLS}'
    )


def _call(text: str, start: int) -> tuple[Call, int] | None:
    """The call whose inside begins at `start`: it ends where its JSON does."""
    inside = text.find(SEPARATOR, start) + len(SEPARATOR)
    head = text[start : inside - len(SEPARATOR)].strip()
    if inside < start or not head:
        return None
    fenced = _FENCED.match(text, inside) if head == "function" else None
    name, begin = (fenced[1], fenced.end()) if fenced else (head, _past_space(text, inside))
    try:
        _, end = value_at(text, begin)
    except ValueError:
        return None
    arguments = object_text(text[begin:end])
    rest = _past_space(text, end)
    if fenced:
        if not text.startswith("```", rest):
            return None
        rest = _past_space(text, rest + 3)
    if arguments is None or not (text.startswith(END_CALL, rest) or rest == len(text)):
        return None
    return Call(name.strip(), arguments), min(rest + len(END_CALL), len(text))


def _past_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
