"""A ChatRenderer without tokenizer and template: one id a character, control tokens below them.

Every text has exactly one spelling, calls are JSON lines between control tokens, and a failing test reads like the
conversation. Held to the same contract test as the real renderers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from t1.gateway.conversation import Message, Role, Tool, ToolCall
from t1.types import IntArray

START, END, CALL, THINK, FIRST = 0, 1, 2, 3, 4
"""Start of a message, end of a turn, start of a call, end of reasoning, and the id of character 0."""
NAMES = {START: "<start>", END: "<end>", CALL: "<call>", THINK: "<think>"}


class CharacterChatRenderer:
    """Messages as `START role newline [reasoning THINK] content (CALL json)* END newline`."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The id that ends a completion."""
        return (END,)

    @property
    def boundary_ids(self) -> frozenset[int]:
        """End of turn and newline."""
        return frozenset({END, FIRST + ord("\n")})

    def open(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> IntArray:
        """[P] the tools, the messages, then the generation prompt."""
        listed = [json.dumps([tool.name, tool.description, dict(tool.parameters)]) for tool in tools]
        described = [Message(Role.SYSTEM, "\n".join(listed))] if tools else []
        return np.concatenate([*map(self._message, [*described, *messages]), self._generation()])

    def extend(self, completion: IntArray, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> IntArray:
        """Ids that follow `completion` [C]."""
        ended = len(completion) > 0 and completion[-1] == END
        closing = _ids([] if ended else [END]), self.encode("\n")
        return np.concatenate([*closing, *map(self._message, messages), self._generation()])

    def completion(self, message: Message, end: bool = True) -> IntArray:
        """[C] what a policy samples to say `message`: for tests."""
        reasoning = [self.encode(message.reasoning), _ids([THINK])] if message.reasoning else []
        calls = [np.concatenate([_ids([CALL]), self.encode(_written(call))]) for call in message.tool_calls]
        return np.concatenate([*reasoning, self.encode(message.content), *calls, _ids([END] if end else [])])

    def parse(self, completion: IntArray, tools: Sequence[Tool] = ()) -> Message:
        """The message that `completion` [C] says; a call that is no JSON is content."""
        ids = completion[:-1].tolist() if len(completion) and completion[-1] == END else completion.tolist()
        reasoning, said = self._split(ids, THINK) if THINK in ids else ([], ids)
        content, *written = self._parts(said)
        calls: list[ToolCall] = []
        for text in written:
            try:
                name, arguments = json.loads(text)
                calls.append(ToolCall(f"call_{len(completion)}_{len(calls)}", str(name), str(arguments)))
            except (ValueError, TypeError):
                content += NAMES[CALL] + text
        return Message(Role.ASSISTANT, content, self.decode(_ids(reasoning)), tuple(calls))

    def encode(self, text: str) -> IntArray:
        """One id a character; no text means a control token, a lone surrogate becomes U+FFFD."""
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return _ids([FIRST + ord(character) for character in whole])

    def decode(self, ids: IntArray) -> str:
        """The text, control tokens spelled out."""
        return "".join(NAMES.get(int(i)) or chr(int(i) - FIRST) for i in ids)

    def _message(self, message: Message) -> IntArray:
        role = self.encode(f"{message.role.value}\n")
        return np.concatenate([_ids([START]), role, self.completion(message), self.encode("\n")])

    def _generation(self) -> IntArray:
        return np.concatenate([_ids([START]), self.encode("assistant\n")])

    def _parts(self, ids: list[int]) -> list[str]:
        """Texts between CALL tokens."""
        parts = []
        while CALL in ids:
            head, ids = self._split(ids, CALL)
            parts.append(self.decode(_ids(head)))
        return [*parts, self.decode(_ids(ids))]

    @staticmethod
    def _split(ids: list[int], at: int) -> tuple[list[int], list[int]]:
        position = ids.index(at)
        return ids[:position], ids[position + 1 :]


def _written(call: ToolCall) -> str:
    return json.dumps([call.name, call.arguments])


def _ids(ids: Sequence[int]) -> IntArray:
    return np.array(ids, dtype=np.int32)
