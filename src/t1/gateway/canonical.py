"""When two messages are the same message: what clients change on the way, named and forgiven.

A client that sends a conversation back may strip whitespace, change newlines, write tool arguments anew, drop reasoning
or rename tool calls. `message_key` is blind to all of that, `differences` names it. Boundary: text only; no ids, no
history. Hostile text costs time linear in its length and never raises.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from t1.gateway.conversation import Message, Role, Tool, ToolCall

MAX_NESTING = 64
"""Tool arguments that are nested deeper are compared as text."""
NO_CALL = -1
"""A tool result that answers no call of the assistant message before it."""


class ChangeKind(StrEnum):
    """What a client did to a conversation between two calls."""

    WHITESPACE = "whitespace"
    """Around a message's content. Forgiven: the recorded ids are sent."""
    NEWLINES = "newlines"
    """\\r\\n or \\r for \\n. Forgiven."""
    ARGUMENTS = "arguments"
    """JSON spacing, key order, escapes or the spelling of numbers in tool arguments. Forgiven."""
    DEFAULTS = "defaults"
    """Arguments that the call left open were filled in. Forgiven where the call kept its id."""
    REASONING_DROPPED = "reasoning_dropped"
    """The reply's reasoning is gone. Forgiven."""
    CALL_IDS = "call_ids"
    """Tool calls, or the results that answer them, have other ids. Forgiven."""
    BRANCH = "branch"
    """Another continuation of a history that has one: a sub-agent, a rewind, a second sample."""
    REWRITTEN = "rewritten"
    """A message in the middle is another one. What follows it is context, encoded as text."""
    FRESH = "fresh"
    """Nothing recorded begins this conversation: a summary, a truncated history, a new sub-agent."""
    TOOLS = "tools"
    """The same conversation with other tools. It is opened anew, since tools stand in the first message."""
    NOT_CONTINUED = "not_continued"
    """The template cannot continue the recorded ids with these messages. The conversation is opened anew."""


def message_key(message: Message, answers: int = NO_CALL) -> bytes:
    """[16] the same for messages that differ only in what is forgiven.

    `answers`: of a tool result, the place of the call that it answers; ids of calls mean nothing. Reasoning is not part
    of the key: `same_reasoning` judges it.
    """
    parts = [str(message.role), plain_text(message.content), message.name]
    for call in message.tool_calls:
        parts += [call.name, canonical_json(call.arguments)]
    if message.role is Role.TOOL:
        parts.append(str(answers))
    return digest(*parts)


def same_reasoning(recorded: Message, sent: Message) -> bool:
    """True where the client kept the reasoning, or dropped it."""
    return not sent.reasoning or plain_text(recorded.reasoning) == plain_text(sent.reasoning)


def fills_in(recorded: Message, sent: Message) -> bool:
    """True where `sent` is `recorded` with arguments added to its calls: same text, same ids and names of calls."""
    if plain_text(recorded.content) != plain_text(sent.content) or not same_reasoning(recorded, sent):
        return False
    calls = list(zip(recorded.tool_calls, sent.tool_calls, strict=False))
    if not calls or len(recorded.tool_calls) != len(sent.tool_calls):
        return False
    return all(one.id == other.id and one.name == other.name and _within(one, other) for one, other in calls)


def _within(recorded: ToolCall, sent: ToolCall) -> bool:
    """True where every argument that was recorded is among those that were sent."""
    ours, theirs = (_members(call.arguments) for call in (recorded, sent))
    return ours is not None and theirs is not None and ours.items() <= theirs.items()


def _members(arguments: str) -> dict[str, str] | None:
    """Name → value in one spelling, of arguments that are a JSON object without repeated names."""
    if _nesting(arguments) > MAX_NESTING:
        return None
    try:
        value = _parse(arguments.strip() or "{}")
    except ValueError:
        return None
    if not isinstance(value, _Pairs) or len({name for name, _ in value}) < len(value):
        return None
    return {name: repr(_ordered(member)) for name, member in value}


def tools_key(tools: Sequence[Tool]) -> bytes:
    """[16] the same for the same tools in the same order."""
    if not tools:
        return digest()
    listed = [[tool.name, tool.description, tool.parameters] for tool in tools]
    try:
        return digest(json.dumps(listed, sort_keys=True, separators=(",", ":"), default=repr))
    except (RecursionError, TypeError, ValueError):
        return digest(*(repr(tool) for tool in tools))


def differences(recorded: Message, sent: Message) -> Iterator[tuple[ChangeKind, str]]:
    """(kind, detail) of each way in which a message of the same key came back otherwise than it was recorded."""
    if recorded.content != sent.content:
        if unify_newlines(recorded.content) != recorded.content or unify_newlines(sent.content) != sent.content:
            yield ChangeKind.NEWLINES, f"{recorded.role} message"
        if unify_newlines(recorded.content) != unify_newlines(sent.content):
            yield ChangeKind.WHITESPACE, f"{len(recorded.content)} characters became {len(sent.content)}"
    if recorded.reasoning and not sent.reasoning:
        yield ChangeKind.REASONING_DROPPED, f"{len(recorded.reasoning)} characters"
    elif recorded.reasoning != sent.reasoning:
        yield ChangeKind.WHITESPACE, "in the reasoning"
    for ours, theirs in zip(recorded.tool_calls, sent.tool_calls, strict=True):
        if canonical_json(ours.arguments) != canonical_json(theirs.arguments):
            yield ChangeKind.DEFAULTS, f"of {ours.name}"
        elif ours.arguments != theirs.arguments:
            yield ChangeKind.ARGUMENTS, f"of {ours.name}"
    ids = [call.id for call in recorded.tool_calls], [call.id for call in sent.tool_calls]
    if ids[0] != ids[1] or recorded.tool_call_id != sent.tool_call_id:
        yield ChangeKind.CALL_IDS, f"{ids[0] or recorded.tool_call_id} became {ids[1] or sent.tool_call_id}"


def digest(*parts: str | bytes) -> bytes:
    """[16] of the parts in order; no two lists of parts share it by moving a border."""
    state = blake2b(digest_size=16)
    for part in parts:
        encoded = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        state.update(len(encoded).to_bytes(8, "little"))
        state.update(encoded)
    return state.digest()


def unify_newlines(text: str) -> str:
    """The text with \\n for every newline."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def plain_text(text: str) -> str:
    """The text without what is forgiven."""
    return unify_newlines(text).strip()


def canonical_json(text: str) -> str:
    """One spelling for every way to write a JSON value; what is no JSON stays text. "" is {}, as clients have it."""
    stripped = text.strip() or "{}"
    if _nesting(stripped) > MAX_NESTING:
        return stripped
    try:
        value = _parse(stripped)
    except ValueError:
        return plain_text(text)
    return repr(_ordered(value))


def _parse(text: str) -> Any:
    """A JSON value whose objects are `_Pairs` and whose numbers compare by value."""
    return json.loads(text, object_pairs_hook=_Pairs, parse_int=_number, parse_float=_number, parse_constant=_Number)


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, a repeated name included."""


class _Number(str):
    """A number by its value; kept apart from strings."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"#{self}"


def _number(text: str) -> str:
    """1.0 and 1e0 are 1, as a client that parses and writes JSON again has them."""
    value = float(text)
    if not math.isfinite(value):
        return _Number(text)
    return _Number(int(value) if value.is_integer() and abs(value) < 2**53 else repr(value))


def _ordered(value: Any) -> Any:
    """The value with the members of every object in the order of their names."""
    if isinstance(value, _Pairs):
        return {"object": sorted(((name, _ordered(member)) for name, member in value), key=lambda pair: pair[0])}
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    return value


def _nesting(text: str) -> int:
    """At most how deep brackets stand in one another."""
    depth = deepest = 0
    if text.count("[") + text.count("{") <= MAX_NESTING:
        return 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest
