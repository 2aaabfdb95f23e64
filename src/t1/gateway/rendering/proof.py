"""Whether a chat template is append-only: does a conversation that grows keep the text that it had?

A template that is not would split trajectories in software that renders every prompt anew. Here recorded ids are
extended, so the answer changes nothing that runs: it is for the person who reads it, and for conversations that have
to be opened anew. This module never learns of token ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

from t1.gateway.conversation import Message, Role, Tool, ToolCall

Render: TypeAlias = Callable[[Sequence[Message], Sequence[Tool], bool], str]
"""(messages, tools, with the generation prompt) → text. Raises ValueError where the template refuses."""

_EXCERPT = 60
_TOOL = Tool("lookup", "Look a word up.", {"type": "object", "properties": {"word": {"type": "string"}}})


@dataclass(frozen=True, slots=True)
class Break:
    """Where a conversation that grew did not keep its text."""

    conversation: str
    """plain, tools, several results or reasoning."""
    because: str
    message: int = -1
    """Index of the assistant's message that was the last one before."""
    before: str = ""
    """What stood there, from the first difference on."""
    after: str = ""
    """What stands there now."""

    def __str__(self) -> str:
        where = f" (message {self.message}: {self.before!r} became {self.after!r})" if self.message >= 0 else ""
        return f"{self.conversation}: {self.because}{where}"


@dataclass(frozen=True, slots=True)
class Proof:
    """What growing conversations showed of a template."""

    breaks: tuple[Break, ...]
    """The first of each conversation."""

    @property
    def append_only(self) -> bool:
        """Whether every conversation kept its text."""
        return not self.breaks

    def __str__(self) -> str:
        if self.append_only:
            return "append-only: yes, because each prompt of growing conversations begins with all that was before"
        return "append-only: no, because " + "; ".join(map(str, self.breaks))


def prove_append_only(render: Render, ends: Sequence[str]) -> Proof:
    """Grow conversations message by message and compare. `ends`: spellings of the tokens that end a turn."""
    breaks = []
    for name, messages, tools in _conversations():
        try:
            broken = _first_break(render, ends, name, messages, tools)
        except ValueError as error:
            broken = Break(name, str(error))
        if broken is not None:
            breaks.append(broken)
    return Proof(tuple(breaks))


def _first_break(
    render: Render, ends: Sequence[str], name: str, messages: Sequence[Message], tools: Sequence[Tool]
) -> Break | None:
    """The first message of the assistant that does not stay as it was."""
    for index, message in enumerate(messages):
        if message.role is not Role.ASSISTANT:
            continue
        prompt = render(messages[:index], tools, True)
        said = render(messages[: index + 1], tools, False)
        if not said.startswith(prompt):
            return _difference(prompt, said, _reason(messages[:index], prompt, said), name, index)
        follow = list(takewhile(lambda m: m.role is not Role.ASSISTANT, messages[index + 1 :]))
        later = render([*messages[: index + 1], *follow], tools, True)
        kept = _without_end(said, ends)
        if follow and not later.startswith(kept):
            return _difference(kept, later, _reason(messages[: index + 1], kept, later), name, index)
    return None


def _reason(messages: Sequence[Message], before: str, after: str) -> str:
    """Why text is no longer what it was, as far as its parts tell."""
    if any(m.reasoning and m.reasoning in before and m.reasoning not in after for m in messages):
        return "reasoning of an earlier turn is dropped"
    at = _first_difference(before, after)
    if "</think>" in before[at : at + _EXCERPT] and "</think>" not in after[at : at + _EXCERPT]:
        return "an empty reasoning block stands only before the last answer"
    if before.rstrip().endswith("<think>"):
        return "the generation prompt opens a reasoning block that messages lack"
    return "an earlier message is written differently once another follows"


def _difference(before: str, after: str, because: str, name: str, index: int) -> Break:
    """The break that `before` and `after` show."""
    at = _first_difference(before, after)
    return Break(name, because, index, before[at : at + _EXCERPT], after[at : at + _EXCERPT])


def _first_difference(before: str, after: str) -> int:
    """Where two texts first differ."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(before), len(after)))


def _without_end(said: str, ends: Sequence[str]) -> str:
    """What was said, without the token that ended it and the space after that."""
    said = said.rstrip()
    for end in ends:
        said = said.removesuffix(end)
    return said


def _conversations() -> list[tuple[str, list[Message], list[Tool]]]:
    """Conversations that templates are known to treat differently."""
    system, question, thanks = Message(Role.SYSTEM, "Help."), Message(Role.USER, "Why?"), Message(Role.USER, "Go on.")
    first, second = (ToolCall(f"call_{word}", "lookup", f'{{"word": "{word}"}}') for word in ("left", "right"))
    results = [Message(Role.TOOL, f"about {c.id}", tool_call_id=c.id, name="lookup") for c in (first, second)]

    def says(content: str, *calls: ToolCall, reasoning: str = "") -> Message:
        return Message(Role.ASSISTANT, content, reasoning, calls)

    def think(word: str) -> str:
        return f"thought {word}"

    return [
        ("plain", [system, question, says("So."), thanks, says("And so."), thanks], []),
        (
            "tools",
            [system, question, says("", first), results[0], says("", second), results[1], says("So."), thanks],
            [_TOOL],
        ),
        (
            "several results",
            [system, question, says("", first, second), *results, says("So."), thanks],
            [_TOOL],
        ),
        (
            "reasoning",
            [
                system,
                question,
                says("", first, reasoning=think("one")),
                results[0],
                says("So.", reasoning=think("two")),
                thanks,
                says("Yes.", reasoning=think("three")),
                thanks,
            ],
            [_TOOL],
        ),
    ]
