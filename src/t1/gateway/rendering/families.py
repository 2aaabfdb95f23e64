"""Model families: what a renderer must know that no chat template says.

A family is a way to write calls and reasoning, and the tokens with which its models stop. `renderer_for` finds the
family of a checkpoint by its control tokens and its template.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from t1.gateway.conversation import Tool
from t1.gateway.rendering.formats import deepseek, harmony, hermes, markup
from t1.gateway.rendering.formats.parsed import Parser, plain
from t1.gateway.rendering.template import ChatTemplate

Describe: TypeAlias = Callable[[Sequence[Tool]], str]


@dataclass(frozen=True, slots=True)
class Family:
    """How the models of a family speak."""

    name: str
    parse: Parser
    describe: Describe | None = None
    """The tools as text, for a template that knows none; None: such a template gets no tools."""
    stops: tuple[str, ...] = ()
    """Control tokens that end a completion."""
    opening: tuple[str, ...] = ()
    """Control tokens that open a message; where one of them ends a completion it is the next message's first token."""


_GLM_ROLES = ("<|user|>", "<|observation|>")
FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("plain", plain),
        Family("hermes", hermes.parse, hermes.describe),
        Family("qwen3.5", markup.parse_function_tags),
        Family("deepseek", deepseek.parse, deepseek.describe),
        Family("gpt-oss", harmony.parse, stops=("<|return|>", "<|call|>")),
        Family(
            "glm", markup.parse_argument_tags, stops=_GLM_ROLES, opening=(*_GLM_ROLES, "<|system|>", "<|assistant|>")
        ),
    )
}


def family_of(control: Container[str], template: ChatTemplate) -> str:
    """The family whose marks a tokenizer's control tokens or its template bear."""
    for name, marks in _MARKS.items():
        if any(mark in control or mark in template.source for mark in marks):
            return name
    # Tools that the template describes in a manner of its own cannot be parsed; those that we describe can.
    return "plain" if template.knows_tools() else "hermes"


_MARKS = {
    "gpt-oss": ("<|channel|>",),
    "deepseek": ("<｜tool▁calls▁begin｜>",),
    "glm": ("<arg_key>",),
    "qwen3.5": ("<function=",),
    "hermes": ("<tool_call>",),
}
