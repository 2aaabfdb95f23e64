"""A Renderer without a tokenizer: one id a character. Held to the same contract test as the real one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from t1.types import IntArray

START, END, FIRST = 0, 1, 2
"""Start of a message, end of a turn, and the id of character 0."""


class CharacterRenderer:
    """ChatML's frame over characters: easy to read in a failing test, and every text has exactly one spelling."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The id that ends a completion."""
        return (END,)

    @property
    def boundary_ids(self) -> frozenset[int]:
        """End of turn and newline."""
        return frozenset({END, FIRST + ord("\n")})

    def open(self, messages: Sequence[tuple[str, str]]) -> IntArray:
        """[P] the messages, then the generation prompt."""
        return np.concatenate([*map(self._message, messages), self._generation()])

    def extend(self, completion: IntArray, messages: Sequence[tuple[str, str]]) -> IntArray:
        """Ids that follow `completion` [C]."""
        ended = len(completion) > 0 and completion[-1] == END
        closing = _ids([] if ended else [END]), self.encode("\n")
        return np.concatenate([*closing, *map(self._message, messages), self._generation()])

    def encode(self, text: str) -> IntArray:
        """One id a character; there is no text that means START or END."""
        return _ids([FIRST + ord(character) for character in text])

    def decode(self, ids: IntArray) -> str:
        """The text, without the closing end of turn."""
        kept = ids[:-1] if len(ids) and ids[-1] == END else ids
        names = {START: "<start>", END: "<end>"}
        return "".join(names.get(int(i)) or chr(int(i) - FIRST) for i in kept)

    def _message(self, message: tuple[str, str]) -> IntArray:
        role, content = message
        return np.concatenate([_ids([START]), self.encode(f"{role}\n{content}"), _ids([END]), self.encode("\n")])

    def _generation(self) -> IntArray:
        return np.concatenate([_ids([START]), self.encode("assistant\n")])


def _ids(ids: list[int]) -> IntArray:
    return np.array(ids, dtype=np.int32)
