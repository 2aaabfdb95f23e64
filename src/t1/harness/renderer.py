"""Messages to token ids, append-only.

Each message is encoded once, when it is new. What the policy sampled is never decoded and encoded again, so the ids
that the sampler sees at turn n+1 start with exactly the ids of turn n (case strict of `t1.tito`, by construction).
This module never learns of sandboxes, samplers or rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from t1.errors import CheckpointError
from t1.harness.spelling import Spelling
from t1.types import IntArray

START, END = "<|im_start|>", "<|im_end|>"


class ChatMLRenderer:
    """ChatML (`<|im_start|>role\\ncontent<|im_end|>\\n`), the frame of the Qwen family."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        start, end = tokenizer.token_to_id(START), tokenizer.token_to_id(END)
        if start is None or end is None:
            raise CheckpointError(f"tokenizer: ChatML needs the special tokens {START} and {END}")
        # A control token spelled out in a file, a file name or a command's output must stay text.
        self._spelling = Spelling(tokenizer.to_str())
        self._start, self._end = start, end
        self._newline = [int(i) for i in self.encode("\n")]
        self._generation = [self._start, *map(int, self.encode("assistant\n"))]

    @classmethod
    def from_pretrained(cls, path: Path) -> ChatMLRenderer:
        """The renderer of a checkpoint directory that holds a `tokenizer.json`."""
        file = path / "tokenizer.json"
        if not file.is_file():
            raise CheckpointError(f"{file}: no such file; a checkpoint directory needs its tokenizer.json")
        return cls(Tokenizer.from_file(str(file)))

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The id that ends a completion."""
        return (self._end,)

    @property
    def boundary_ids(self) -> frozenset[int]:
        """End of turn and newline: what may stand between a completion and the next message."""
        return frozenset({self._end, *self._newline})

    def open(self, messages: Sequence[tuple[str, str]]) -> IntArray:
        """[P] ids of the first prompt: the messages, then the generation prompt."""
        return self._ids([*self._messages(messages), *self._generation])

    def extend(self, completion: IntArray, messages: Sequence[tuple[str, str]]) -> IntArray:
        """Ids that follow `completion` [C]: its missing end of turn, the new messages, the generation prompt."""
        closing = self._newline if len(completion) and completion[-1] == self._end else [self._end, *self._newline]
        return self._ids([*closing, *self._messages(messages), *self._generation])

    def encode(self, text: str) -> IntArray:
        """Ids of text; control tokens spelled out in it stay text."""
        return self._spelling.encode_text(text)

    def decode(self, ids: IntArray) -> str:
        """Text of ids, without the closing end-of-turn token."""
        kept = ids[:-1] if len(ids) and ids[-1] == self._end else ids
        return self._spelling.decode(kept)

    def _messages(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        ids: list[int] = []
        for role, content in messages:
            ids += [self._start, *map(int, self.encode(f"{role}\n{content}")), self._end, *self._newline]
        return ids

    @staticmethod
    def _ids(ids: Sequence[int]) -> IntArray:
        return np.asarray(ids, dtype=np.int32)
