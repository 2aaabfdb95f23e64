"""What the vendors' spellings share: how a body is read, what a call is, how errors and events are written.

Boundary: everything here is text and JSON. Which session is meant, and what is sampled, this module never learns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from t1.gateway.conversation import GatewayError, Message, Reply, Request, Role

Json: TypeAlias = dict[str, Any]


class Body(BaseModel):
    """Part of a body. Wrong types are refused, unknown fields are kept apart so that they can be named."""

    model_config = ConfigDict(extra="allow", strict=True)


class Part(Body):
    """One part of a content list; the front ends read the types that they know."""

    type: str
    text: str | None = None


BodyT = TypeVar("BodyT", bound=Body)


@dataclass(frozen=True, slots=True)
class Call:
    """One call, read: what to sample for, and how to tell the client."""

    request: Request
    stream: bool
    body: Callable[[Reply], Json]
    """The reply as one body."""
    events: Callable[[Reply], Iterator[bytes]]
    """The reply as server-sent events."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One vendor's spelling of a completion."""

    read: Callable[[bytes], Call]
    """Raises GatewayError 400 that names the field at fault."""
    error: Callable[[GatewayError], Json]
    error_events: Callable[[GatewayError], Iterator[bytes]]
    """An error after the stream has begun."""
    keep_alive: bytes
    """What a waiting client is sent, and reads over."""


def bad_field(param: str, message: str) -> GatewayError:
    """The error for a field that cannot be used."""
    return GatewayError(400, "invalid_request_error", f"{param}: {message}" if param else message, param)


def read_body(kind: type[BodyT], body: bytes) -> BodyT:
    """Parse and check a body in one pass. Raises GatewayError 400 that names the field."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        if b"\\ud" in body.lower() and error.errors()[0]["type"] == "json_invalid":
            return _read_surrogates(kind, body)
        raise _refusal(error) from None


def _read_surrogates(kind: type[BodyT], body: bytes) -> BodyT:
    """Parse a body in which a client cut a character in half: the half becomes U+FFFD, as no tokenizer has it."""
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False)
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return kind.model_validate_json(whole.encode())
    except ValidationError as error:
        raise _refusal(error) from None
    except (ValueError, RecursionError):
        raise bad_field("", "the body is not JSON") from None


def _refusal(error: ValidationError) -> GatewayError:
    """The error that looked deepest into the body, with its place in the client's own words."""
    worst = max(error.errors(include_url=False, include_input=False), key=lambda one: len(one["loc"]))
    if worst["type"] == "json_invalid":
        return bad_field("", f"the body is not JSON: {worst['ctx']['error']}")
    # A union adds the names of its branches to the place: they are not names of fields.
    place = [str(step) for step in worst["loc"] if isinstance(step, int) or _names_a_field(step)]
    return bad_field(".".join(place), worst["msg"])


def _names_a_field(step: str) -> bool:
    """False for the names of a union's branches: str, list[…], and our own classes."""
    return step.isidentifier() and step != "str" and not step.startswith("_")


def unknown_fields(body: Body) -> tuple[str, ...]:
    """Dotted names of the fields that mean nothing here, each once, list positions left out."""
    return tuple(dict.fromkeys(_unknown(body, "")))


def _unknown(body: Body, path: str) -> Iterator[str]:
    for name in body.__pydantic_extra__ or ():
        yield path + name
    values = body.__dict__
    for name in _nested(type(body)):
        value = values[name]
        if isinstance(value, Body):
            yield from _unknown(value, f"{path}{name}.")
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Body) and (item.__pydantic_extra__ or not _is_flat(item)):
                    yield from _unknown(item, f"{path}{name}.")


def _is_flat(body: Body) -> bool:
    """True where a body holds no other: most messages hold text."""
    kinds = set(map(type, body.__dict__.values()))
    return kinds <= _FLAT


_FLAT = {str, type(None), int, float, bool, dict}


@cache
def _nested(kind: type[Body]) -> tuple[str, ...]:
    """The fields of a body that may hold bodies."""
    return tuple(name for name, field in kind.model_fields.items() if _mentions_body(field.annotation))


def _mentions_body(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Body):
        return True
    return any(_mentions_body(argument) for argument in getattr(annotation, "__args__", ()))


def join_texts(content: str | Sequence[Part] | None, param: str, kinds: Sequence[str], separator: str) -> str:
    """The text of a content field, given as text or as parts of the kinds named."""
    if content is None or isinstance(content, str):
        return content or ""
    for index, part in enumerate(content):
        if part.type not in kinds:
            known = " or ".join(kinds)
            raise bad_field(f"{param}.{index}.type", f"this model reads text only: expected {known}, got {part.type}")
    return separator.join(part.text or "" for part in content)


def in_order_of_calls(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation with the results of each reply's calls in the order of the calls.

    Clients send them as the tools end. Templates name no calls, so that the order alone tells a policy which is which.
    """
    if not any(message.role is Role.TOOL for message in messages):
        return tuple(messages)
    ordered: list[Message] = []
    for role, group in groupby(messages, key=lambda message: message.role):
        answers = list(group)
        if role is Role.TOOL and len(answers) > 1 and ordered:
            places = {call.id: place for place, call in enumerate(ordered[-1].tool_calls)}
            answers.sort(key=lambda message: places.get(message.tool_call_id, len(places)))
        ordered += answers
    return tuple(ordered)


def tool_arguments(value: Json) -> str:
    """JSON text of arguments that a protocol carries as an object."""
    return _ENCODER.encode(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False)  # made once: json.dumps makes one a call


def to_json(value: Any) -> bytes:
    """Compact JSON that no client can misread: non-ASCII is escaped."""
    return json.dumps(value, separators=(",", ":")).encode()


def sse(value: Json, *, name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + to_json(value) + b"\n\n"


def wording(error: GatewayError) -> str:
    """What a client is told. Of a prompt that is too long, in the words by which clients of either vendor know it."""
    return f"prompt is too long: {error}" if error.kind == "context_length_exceeded" else str(error)


def openai_error(error: GatewayError) -> Json:
    """The error body of both OpenAI protocols."""
    of_kind = error.kind.endswith("_error")
    by_status = "invalid_request_error" if error.status < 500 else "server_error"
    return {
        "error": {
            "message": wording(error),
            "type": error.kind if of_kind else by_status,
            "param": error.param or None,
            "code": None if of_kind else error.kind,
        }
    }
