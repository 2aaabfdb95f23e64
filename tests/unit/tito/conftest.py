"""A small real tokenizer, and conversations whose every number is known."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from t1.tito import AuditReport, assemble, audit
from t1.types import FinishReason, Outcome, RewardSource, Rollout, RolloutId, StopReason, Trajectory, Turn

NUM_EXPERTS = 8
TEXT = [
    "list the files in the directory and sort them by size",
    "echo hello world > hello.txt && cat hello.txt",
    '{"command": "grep -r needle .", "timeout": 10}',
    "the command printed nothing; the exit code was 0\n",
    "assistant\nuser\nsystem\n",
]


class Chat:
    """ChatML by hand over a small BPE."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.start, self.end = tokenizer.token_to_id("<|im_start|>"), tokenizer.token_to_id("<|im_end|>")
        self.newline = int(self.ids("\n")[0])
        self.boundary_ids = frozenset({self.end, self.newline})

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.get_vocab_size()

    def ids(self, text: str) -> np.ndarray:
        return np.array(self.tokenizer.encode(text).ids, dtype=np.int32)

    def letters(self, text: str) -> np.ndarray:
        """The same text one character a token: ids that the tokenizer would not produce."""
        return np.concatenate([self.ids(letter) for letter in text])

    def decode(self, ids: np.ndarray) -> str:
        kept = ids[:-1] if len(ids) and ids[-1] == self.end else ids
        return self.tokenizer.decode(kept.tolist(), skip_special_tokens=False)

    def opening(self, text: str = "list the files") -> np.ndarray:
        return self.ids(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")

    def said(self, text: str) -> np.ndarray:
        """A completion that ends with its stop id."""
        return self.ids(f"{text}<|im_end|>")

    def observed(self, text: str = "the exit code was 0") -> np.ndarray:
        """What follows a completion's stop id."""
        return self.ids(f"\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")

    def exchanges(self, *texts: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """(prompt, completion) of an append-only conversation."""
        prompt, exchanges = self.opening(), []
        for text in texts:
            completion = self.said(text)
            exchanges.append((prompt, completion))
            prompt = np.concatenate([prompt, completion, self.observed()])
        return exchanges

    @staticmethod
    def deltas(exchanges: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[int]:
        """Where captures start when each turn returns only the rows of tokens fed first in it."""
        return [0, *(len(prompt) + len(completion) - 1 for prompt, completion in exchanges[:-1])]

    def turns(
        self,
        exchanges: Sequence[tuple[np.ndarray, np.ndarray]],
        *,
        starts: Sequence[int] | None = None,
        versions: Sequence[int] | None = None,
    ) -> tuple[Turn, ...]:
        """Turns of (prompt, completion). With `starts`, each captures routing from there on."""
        turns = []
        for index, (prompt, completion) in enumerate(exchanges):
            rng = np.random.default_rng(index)
            turn = Turn(
                prompt=prompt,
                completion=completion,
                logprobs=-rng.random(len(completion), dtype=np.float32) - np.float32(0.01),
                versions=np.full(len(completion), 5 if versions is None else versions[index], dtype=np.int32),
                finish=FinishReason.STOP if completion[-1] == self.end else FinishReason.LENGTH,
            )
            if starts is not None:
                number = len(prompt) + len(completion) - 1 - starts[index]
                turn = replace(turn, routing=_rows(rng, number), routing_start=starts[index])
            turns.append(turn)
        return tuple(turns)

    @staticmethod
    def rollout(turns: Sequence[Turn], stop: StopReason = StopReason.TURN_LIMIT) -> Rollout:
        outcome = Outcome(stop, None, 0.5, RewardSource.ASSERTIONS)
        return Rollout(RolloutId("task", 1, 2), "digest", tuple(turns), outcome)

    def checked(self, turns: Sequence[Turn], **options: Any) -> tuple[tuple[Trajectory, ...], AuditReport]:
        """Assembled with all cases, and audited."""
        settings = {"boundary_ids": self.boundary_ids, "decode": self.decode} | options
        rollout = self.rollout(turns)
        trajectories = assemble(rollout.id, turns, **settings)
        return trajectories, audit(
            rollout,
            trajectories,
            vocab_size=self.vocab_size,
            num_experts=NUM_EXPERTS,
            decode=settings["decode"],
            boundary_ids=settings["boundary_ids"],
        )


def _rows(rng: np.random.Generator, number: int) -> np.ndarray:
    """uint8[number, 2, 2] distinct experts in each layer."""
    first = rng.integers(0, NUM_EXPERTS, (number, 2))
    return np.stack([first, (first + rng.integers(1, NUM_EXPERTS, first.shape)) % NUM_EXPERTS], axis=2).astype(np.uint8)


def byte_level() -> Tokenizer:
    """As GPT-2 and Qwen have it: every byte is a character of the alphabet."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _trained(tokenizer, [], alphabet)


def byte_fallback() -> Tokenizer:
    """As Llama 2 and Gemma have it: characters, and bytes for those that are not in the vocabulary."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return _trained(tokenizer, ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))], ["\n"])


def _trained(tokenizer: Tokenizer, special: list[str], alphabet: list[str]) -> Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=400 + len(special),
        special_tokens=["<|im_start|>", "<|im_end|>", *special],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


@pytest.fixture(scope="session")
def chat() -> Chat:
    return Chat(byte_level())


@pytest.fixture(scope="session", params=[byte_level, byte_fallback], ids=lambda make: make.__name__)
def any_chat(request: pytest.FixtureRequest) -> Chat:
    """Both kinds of tokenizers, one after the other."""
    return Chat(request.param())
