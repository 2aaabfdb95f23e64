"""What a completion says, whatever the format it was written in.

A parser gets the text of a completion in which a control token of the tokenizer is spelled out only where its id was
sampled, and never fails: what it cannot read is content.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from t1.gateway.conversation import Tool

THINK, END_THINK = "<think>", "</think>"
MOST_UNREADABLE = 64
"""So many blocks that cannot be read, and the rest is content: a flood of opening tags costs no time."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as it was written: arguments are the text of a JSON object."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """An assistant's words, taken apart."""

    content: str
    reasoning: str = ""
    calls: tuple[Call, ...] = ()

    def without(self, mark: str) -> Parsed:
        """The same without a character that stood in for nothing."""
        calls = (Call(call.name.replace(mark, ""), call.arguments.replace(mark, "")) for call in self.calls)
        return Parsed(self.content.replace(mark, ""), self.reasoning.replace(mark, ""), tuple(calls))


Parser: TypeAlias = Callable[[str, Sequence[Tool]], Parsed]
BlockReader: TypeAlias = Callable[[str, int], tuple[Call, int] | None]
"""(text, where the inside of a block begins) → the call in it and where the block ends; None: not readable."""


def plain(text: str, tools: Sequence[Tool] = ()) -> Parsed:
    """No format: everything is content."""
    return Parsed(text)


def split_reasoning(text: str) -> tuple[str, str]:
    """Reasoning and the rest of a text that may begin with a `<think>` block, whose end may be missing."""
    body = text.lstrip()
    if not body.startswith(THINK):
        return "", text
    reasoning, _, rest = body[len(THINK) :].partition(END_THINK)
    return reasoning.strip("\n"), rest.lstrip("\n")


def take_calls(text: str, opening: str, read: BlockReader) -> tuple[str, tuple[Call, ...]]:
    """What stands outside the blocks that can be read, and the calls in them; an unreadable block stays outside."""
    outside, calls = "", []
    start = position = unreadable = 0
    while unreadable < MOST_UNREADABLE and (position := text.find(opening, position)) >= 0:
        found = read(text, position + len(opening))
        if found is None:
            unreadable += 1
            position += len(opening)
            continue
        outside += text[start:position]
        calls.append(found[0])
        start = position = found[1]
    outside += text[start:]
    return (outside.strip("\n") if calls else outside), tuple(calls)
