"""The event stream of `/v1/responses`: each item opens, grows and closes, every event numbered."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

from t1.gateway.conversation import GatewayError, Reply
from t1.gateway.protocols import openai_responses
from t1.gateway.protocols.wire import Call, Dialect, Json, openai_error, sse


def read(raw: bytes) -> Call:
    """Read the body of a call."""
    request, stream, ways = openai_responses.read(raw)
    body = partial(openai_responses.write, ways=ways)
    return Call(request, stream, body, partial(write_events, ways=ways))


def write_events(reply: Reply, *, ways: openai_responses.Ways) -> Iterator[bytes]:
    """The reply as events, in the order that the vendor promises."""
    head, whole = openai_responses.write_head(reply), openai_responses.write(reply, ways)
    events = [("response.created", {"response": head}), ("response.in_progress", {"response": head})]
    for index, item in enumerate(whole["output"]):
        events += _item_events(item, index)
    events.append((f"response.{whole['status']}", {"response": whole}))
    for number, (kind, fields) in enumerate(events):
        yield sse({"type": kind, "sequence_number": number, **fields}, name=kind)


def _item_events(item: Json, index: int) -> Iterator[tuple[str, Json]]:
    """An item's opening, its content in one delta, its closing."""
    opened = {**item, "status": "in_progress"}
    where: Json = {"item_id": item["id"], "output_index": index}
    match item["type"]:
        case "message":
            opened["content"] = []
            inner = _text_events(item["content"][0], where)
        case "reasoning":
            opened |= {"summary": [], "encrypted_content": None}
            inner = _summary_events(item["summary"][0], where)
        case "custom_tool_call":
            opened["input"] = ""
            inner = _grown("response.custom_tool_call_input", "input", item["input"], where)
        case _:
            opened["arguments"] = ""
            inner = _grown("response.function_call_arguments", "arguments", item["arguments"], where)
    yield "response.output_item.added", {"output_index": index, "item": opened}
    yield from inner
    yield "response.output_item.done", {"output_index": index, "item": item}


def _text_events(part: Json, where: Json) -> Iterator[tuple[str, Json]]:
    place = {**where, "content_index": 0}
    yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
    if part["text"]:
        yield "response.output_text.delta", {**place, "delta": part["text"], "logprobs": []}
    yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**place, "part": part}


def _summary_events(part: Json, where: Json) -> Iterator[tuple[str, Json]]:
    place = {**where, "summary_index": 0}
    yield "response.reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
    yield from _grown("response.reasoning_summary_text", "text", part["text"], place)
    yield "response.reasoning_summary_part.done", {**place, "part": part}


def _grown(kind: str, field: str, text: str, place: Json) -> Iterator[tuple[str, Json]]:
    """A text in one delta, then the whole of it."""
    yield f"{kind}.delta", {**place, "delta": text}
    yield f"{kind}.done", {**place, field: text}


def write_error_events(error: GatewayError) -> Iterator[bytes]:
    """An error after the stream has begun, in both ways that clients look for."""
    number = itertools.count()
    told: Json = openai_error(error)["error"]
    code = told["code"] or told["type"]

    def event(kind: str, **fields: Any) -> bytes:
        return sse({"type": kind, "sequence_number": next(number), **fields}, name=kind)

    failed = {"object": "response", "status": "failed", "error": {"code": code, "message": told["message"]}}
    yield event("response.failed", response={"id": "resp_failed", "output": [], **failed})
    yield event("error", code=code, message=told["message"], param=told["param"], error=told)


RESPONSES = Dialect(read=read, error=openai_error, error_events=write_error_events, keep_alive=b": keep-alive\n\n")
