"""Harmony, the format of gpt-oss: messages in channels, calls as messages to a function."""

from __future__ import annotations

import re
from collections.abc import Sequence

from t1.gateway.conversation import Tool
from t1.gateway.rendering.formats.parsed import Call, Parsed
from t1.gateway.rendering.formats.written import object_text

START, MESSAGE, ENDS = "<|start|>", "<|message|>", ("<|end|>", "<|call|>", "<|return|>")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=functions\.([^\s<]+)")


def parse(text: str, tools: Sequence[Tool] = ()) -> Parsed:
    """Analysis is reasoning, a message to a function is a call, everything else is content."""
    reasoning: list[str] = []
    content: list[str] = []
    calls: list[Call] = []
    for index, piece in enumerate(text.split(START)):
        written = piece if index == 0 else START + piece
        header, found, body = piece.partition(MESSAGE)
        body = _without_end(body)
        recipient, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
        arguments = object_text(body) if recipient else None
        if not found:
            content.append(written)
        elif recipient and arguments is not None:
            calls.append(Call(recipient[1], arguments))
        elif recipient or "to=" in header:
            content.append(written)
        elif channel and channel[1] == "analysis":
            reasoning.append(body)
        else:
            content.append(body)
    return Parsed("\n".join(filter(None, content)), "\n".join(reasoning), tuple(calls))


def _without_end(body: str) -> str:
    """The body of a message without the token that ends it."""
    for end in ENDS:
        body = body.removesuffix(end)
    return body
