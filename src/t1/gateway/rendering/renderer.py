"""Conversations to ids and sampled ids to messages, through a tokenizer's own chat template.

A conversation is rendered once, when it opens. What follows a completion is cut out of the rendering of a small
conversation in which a stand-in plays the completion, so nothing that was sent or sampled is ever rendered again.
This module never learns of sessions, and of a model family only what `families.Family` says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile, zip_longest

from t1.errors import CheckpointError
from t1.gateway.conversation import Message, Role, Tool, ToolCall
from t1.gateway.rendering.families import Family
from t1.gateway.rendering.formats.parsed import END_THINK, THINK, Parsed
from t1.gateway.rendering.inputs import Shape, marked_tools, template_messages, template_tools, texts_of
from t1.gateway.rendering.proof import Proof, prove_append_only
from t1.gateway.rendering.template import ChatTemplate
from t1.harness.spelling import Marking, Spelling, marks_absent_from
from t1.types import IntArray

_WHITESPACE = ("\n", "\n\n", "\r\n", " ", "\t")
_QUESTION = Message(Role.USER, "?")
_REASONING_FIELD = re.compile(r"""(?:\.|\[['"])thinking\b""")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation as marked text."""

    text: str
    marking: Marking


class ChatTemplateRenderer:
    """A ChatRenderer over a chat template and the tokenizer that it belongs to."""

    def __init__(
        self, spelling: Spelling, template: ChatTemplate, family: Family, more_stop_ids: Sequence[int] = ()
    ) -> None:
        """`more_stop_ids`: those that the checkpoint declares beside what the template ends a turn with."""
        self.family, self.template, self.spelling = family, template, spelling
        self._takes_tools = template.knows_tools()
        shape = self._fitting_shape()
        self._writes_calls, self.shape = shape is not None, shape or Shape()
        ids = spelling.control
        self._opening = frozenset(ids[name] for name in family.opening if name in ids)
        try:
            self._end = self._first_control_after([_QUESTION], generate=True)
            final = self._first_control_after([], generate=False)
        except ValueError as error:
            raise CheckpointError(f"{template.name}: a question and an answer are too much for it: {error}") from error
        declared = [ids[name] for name in family.stops if name in ids]
        self._stop_ids = tuple(dict.fromkeys([*([] if final is None else [final]), *declared, *more_stop_ids]))
        if not self._stop_ids:
            raise CheckpointError(
                f"{template.name}: nothing ends a turn of this template; declare eos_token in tokenizer_config.json"
            )
        spaces = (self.encode(text).tolist() for text in _WHITESPACE)
        ends = () if self._end is None else (self._end,)
        self._boundary_ids = frozenset({*self._stop_ids, *ends, *(s[0] for s in spaces if len(s) == 1)})
        self._opens_reasoning = self._reasoning_opened()

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a completion."""
        return self._stop_ids

    @property
    def boundary_ids(self) -> frozenset[int]:
        """Stop and end-of-turn ids, and whitespace that is one id."""
        return self._boundary_ids

    def open(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> IntArray:
        """[P] the whole conversation and the generation prompt.

        Raises ValueError where the template refuses the conversation.
        """
        rendered = self.render(messages, tools)
        return self.spelling.encode(rendered.text, rendered.marking)

    def extend(self, completion: IntArray, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> IntArray:
        """Ids that follow `completion` [C]: its missing end of turn, the new messages, the generation prompt.

        Tools stand before the completion, so they change nothing here. Raises ValueError where the template refuses
        the messages in this place.
        """
        ids = self._following(messages, self._names_answered(completion, messages))
        last = int(completion[-1]) if len(completion) else None
        if len(ids) and last in self._stop_ids and self._closed_by(int(ids[0]), last):
            return ids[1:]
        return ids

    def parse(self, completion: IntArray, tools: Sequence[Tool] = ()) -> Message:
        """The assistant message that `completion` [C] says. The ids of its calls are made of its token ids."""
        parsed = self._parsed(completion, tools)
        stem = hashlib.blake2b(completion.tobytes(), digest_size=8).hexdigest()
        calls = [ToolCall(f"call_{stem}_{i}", call.name, call.arguments) for i, call in enumerate(parsed.calls)]
        return Message(Role.ASSISTANT, parsed.content, parsed.reasoning, tuple(calls))

    def encode(self, text: str) -> IntArray:
        """Ids of text; control tokens spelled out in it stay text, a lone surrogate becomes U+FFFD."""
        return self.spelling.encode_text(text)

    def decode(self, ids: IntArray) -> str:
        """Text of ids, control tokens spelled out."""
        return self.spelling.decode(ids)

    def append_only(self) -> Proof:
        """Whether the template lets conversations grow without changing what was said, with the place where not."""
        names = {id_: name for name, id_ in self.spelling.control.items()}
        ends = [names[id_] for id_ in (*self._stop_ids, self._end) if id_ in names and id_ not in self._opening]

        def text(messages: Sequence[Message], tools: Sequence[Tool], generate: bool) -> str:
            rendered = self.render(messages, tools, generate)
            return rendered.marking.take(rendered.text)

        return prove_append_only(text, ends)

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = (), generate: bool = True) -> Rendered:
        """The conversation as text, before it becomes ids.

        Raises ValueError where the template refuses the conversation.
        """
        if not self._writes_calls and any(message.tool_calls for message in messages):
            raise ValueError(f"{self.template.name}: the chat template writes no tool calls")
        try:
            mark, slot = marks_absent_from(texts_of(messages, tools), 2)
            marking = self.spelling.marking(mark)
            return Rendered(self._with_or_without_reasoning(messages, tools, generate, marking, slot), marking)
        except RecursionError as error:
            raise ValueError("messages or tools are nested too deeply to be rendered") from error

    def _with_or_without_reasoning(
        self, messages: Sequence[Message], tools: Sequence[Tool], generate: bool, marking: Marking, slot: str
    ) -> str:
        """Marked text, without reasoning where the template refuses it (gpt-oss: beside content and a call)."""
        try:
            return self._through_template(messages, tools, generate, marking, slot)
        except ValueError:
            silent = [replace(message, reasoning="") for message in messages]
            if silent == list(messages):
                raise
            return self._through_template(silent, tools, generate, marking, slot)

    def _through_template(
        self, messages: Sequence[Message], tools: Sequence[Tool], generate: bool, marking: Marking, slot: str
    ) -> str:
        """Marked text. Where the template knows no tools, their description takes the place of `slot`."""
        marked = marked_tools(tools, marking)
        if not tools or self._takes_tools:
            written = template_messages(messages, self.shape, marking)
            return self.template.render(written, template_tools(marked), generate)
        if self.family.describe is None:
            raise ValueError(
                f"{self.template.name}: neither the chat template nor family {self.family.name} knows tools"
            )
        written = template_messages(_with_system_text(messages, slot), self.shape, marking)
        return self.template.render(written, [], generate).replace(slot, self.family.describe(marked))

    def _following(self, messages: Sequence[Message], names: Sequence[str]) -> IntArray:
        """Ids from the end of an assistant's turn on, when these messages come after it.

        `names`: the functions whose calls the leading tool messages answer.
        """
        rest = self._after_stand_in(messages, names, generate=True)
        ids = self.spelling.encode(rest.text, rest.marking)
        ends = {*self._stop_ids, *self._opening, self._end}
        # What comes before the end of the turn closes the stand-in's own call: a completion says that itself.
        start = next((index for index, id_ in enumerate(ids.tolist()) if id_ in ends), 0)
        if not start and names and ids[:1].tolist() and int(ids[0]) not in ends:
            raise ValueError(f"{self.template.name}: the chat template does not say where a turn with tool calls ends")
        return ids[start:]

    def _after_stand_in(self, messages: Sequence[Message], names: Sequence[str], generate: bool) -> Rendered:
        """The marked text that follows what a stand-in for a completion says, when these messages come after it."""
        stand_in = marks_absent_from([*texts_of(messages, ()), *names], 2)[1]
        arguments = f'{{"_": "{stand_in}"}}'
        calls = [
            ToolCall(m.tool_call_id, name, arguments) for m, name in zip(messages[: len(names)], names, strict=True)
        ]
        said = Message(Role.ASSISTANT, stand_in, tool_calls=tuple(calls) if self._writes_calls else ())
        rendered = self.render([_QUESTION, said, *messages], generate=generate)
        _, found, rest = rendered.text.rpartition(stand_in)
        if not found:
            raise ValueError(f"{self.template.name}: the chat template hides an earlier message of the assistant")
        return Rendered(rest, rendered.marking)

    def _names_answered(self, completion: IntArray, messages: Sequence[Message]) -> list[str]:
        """The functions whose calls the leading tool messages answer, in order; "tool" where nobody says."""
        answers = list(takewhile(lambda message: message.role is Role.TOOL, messages))
        if all(answer.name for answer in answers):
            return [answer.name for answer in answers]
        said = [call.name for call in self._parsed(completion, ()).calls][: len(answers)]
        return [answer.name or name or "tool" for answer, name in zip_longest(answers, said, fillvalue=None) if answer]

    def _closed_by(self, first: int, last: int) -> bool:
        """Whether a turn that ended with stop id `last` already said what `first` says."""
        return first == last if first in self._opening else first == self._end or first in self._stop_ids

    def _parsed(self, completion: IntArray, tools: Sequence[Tool]) -> Parsed:
        """What `completion` [C] says; its closing stop id is no part of it."""
        ended = len(completion) > 0 and int(completion[-1]) in self._stop_ids
        text, mark = self.spelling.decode_marked(completion[:-1] if ended else completion)
        return self._with_prompt(text, tools).without(mark)

    def _with_prompt(self, text: str, tools: Sequence[Tool]) -> Parsed:
        """What a text says after a prompt that may have opened its reasoning."""
        if not any(self._opens_reasoning):
            return self.family.parse(text, tools)
        bare = self.family.parse(text, tools)
        opened = END_THINK in text or (all(self._opens_reasoning) and not bare.calls)
        return self.family.parse(THINK + text, tools) if opened and not bare.reasoning else bare

    def _fitting_shape(self) -> Shape | None:
        """The shape of messages in which this template writes a tool call as it was made, if there is one."""
        key = "thinking" if _REASONING_FIELD.search(self.template.source) else "reasoning_content"
        asked = Message(Role.ASSISTANT, tool_calls=(ToolCall("call_0", "lookup", '{"at": "somewhere"}'),))
        marking = self.spelling.marking(marks_absent_from([], 1)[0])
        for shape in (Shape(True, key), Shape(False, key)):
            try:
                text = self.template.render(template_messages([_QUESTION, asked], shape, marking), [], False)
            except ValueError:
                continue
            if "lookup" in text and "somewhere" in text and '\\"at' not in text:
                return shape
        return None

    def _first_control_after(self, messages: Sequence[Message], generate: bool) -> int | None:
        """The control token that ends a completion when these messages follow; None where the next message does."""
        rest = self._after_stand_in(messages, (), generate)
        ids = self.spelling.encode(rest.text, rest.marking).tolist()
        first = next((id_ for id_ in ids if id_ in self.spelling.control_ids), None)
        return None if first in self._opening else first

    def _reasoning_opened(self) -> tuple[bool, bool]:
        """Whether the generation prompt opens the reasoning: after a question, and after a tool's answer."""
        answer = Message(Role.TOOL, "!", tool_call_id="call_0", name="look")
        question = self.render([_QUESTION]).text.rstrip().endswith(THINK)
        try:
            return question, self._after_stand_in([answer], ["look"], generate=True).text.rstrip().endswith(THINK)
        except ValueError:
            return question, question


def _with_system_text(messages: Sequence[Message], text: str) -> list[Message]:
    """The messages with a text at the end of their system message."""
    if messages and messages[0].role is Role.SYSTEM:
        return [replace(messages[0], content=f"{messages[0].content}\n\n{text}"), *messages[1:]]
    return [Message(Role.SYSTEM, text), *messages]
