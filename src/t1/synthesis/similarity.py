"""Which tasks are nearly the same: MinHash over what they say and over the shape of their solution.

Words that only name something (a file, a number, a quoted value) are masked for the shape, so that a task is no new
task because its files are called otherwise. Boundary: text and signatures; the library does the hashing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from datasketch import MinHash, MinHashLSH

NUM_PERM = 128
SHINGLE = 3
_WORD = re.compile(r"[\w'-]+")
_NAME = re.compile(r"[\w/-]*\.[\w.]+|\d+|[\w-]*/[\w/.-]*")
_LITERAL = re.compile(r"'[^'\n]{0,400}'|\"[^\"\n]{0,400}\"|\d+|[\w./-]*[./][\w./-]*")


def words(instruction: str) -> list[str]:
    """What an instruction says: its words, case folded."""
    return [word.lower() for word in _WORD.findall(instruction)]


def shape(instruction: str, script: str) -> list[str]:
    """What has to be done, whatever things are called: words of the instruction with names masked, and commands."""
    masked = _WORD.findall(_NAME.sub(" N ", instruction).lower())
    commands = [
        token
        for line in script.splitlines()
        if line.strip() and not line.startswith(("#", "set "))
        for token in ["\n", *_LITERAL.sub(" L ", line).split()]
    ]
    return [*masked, *commands]


def shingles(tokens: list[str], size: int = SHINGLE) -> set[bytes]:
    """Every run of `size` tokens; all of a shorter text as one."""
    if len(tokens) <= size:
        return {" ".join(tokens).encode()}
    return {" ".join(tokens[i : i + size]).encode() for i in range(len(tokens) - size + 1)}


def signature(tokens: list[str]) -> MinHash:
    """The MinHash of a text."""
    made = MinHash(num_perm=NUM_PERM, seed=1)
    made.update_batch(sorted(shingles(tokens)))
    return made


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The nearest task of a pool, and how near it is."""

    name: str
    similarity: float
    """Estimated Jaccard index of the shingles."""


class Pool:
    """Tasks that are there already; answers which one is nearest."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self._index = MinHashLSH(threshold=threshold, num_perm=NUM_PERM)
        self._signatures: dict[str, MinHash] = {}

    def __len__(self) -> int:
        return len(self._signatures)

    def add(self, name: str, made: MinHash) -> None:
        """Let a task in; the same name once."""
        self._index.insert(name, made)
        self._signatures[name] = made

    def remove(self, name: str) -> None:
        """Let a task go; unknown ones are fine."""
        if self._signatures.pop(name, None) is not None:
            self._index.remove(name)

    def nearest(self, made: MinHash) -> Neighbour | None:
        """The most similar task at or above the threshold, or None."""
        found = [Neighbour(name, made.jaccard(self._signatures[name])) for name in self._index.query(made)]
        near = [n for n in found if n.similarity >= self.threshold]
        return max(near, key=lambda n: (n.similarity, n.name), default=None)


class Reference:
    """An evaluation set, for exact comparison with every one of its tasks: it is small, and must not be missed."""

    def __init__(self, tasks: Iterable[tuple[str, str]]) -> None:
        """`tasks`: (name, instruction)."""
        pairs = [(name, words(text)) for name, text in tasks]
        self.names = [name for name, _ in pairs]
        self._rows = np.array([signature(tokens).hashvalues for _, tokens in pairs])
        self._grams: dict[bytes, str] = {
            gram: name for name, tokens in pairs if len(tokens) >= GRAM for gram in shingles(tokens, GRAM)
        }

    def nearest(self, tokens: list[str]) -> Neighbour | None:
        """The most similar task, however far."""
        if not self.names:
            return None
        same = (self._rows == signature(tokens).hashvalues).mean(axis=1)
        best = int(same.argmax())
        return Neighbour(self.names[best], float(same[best]))

    def shared_gram(self, tokens: list[str]) -> tuple[str, str] | None:
        """(task, run of 13 words) that both have: the usual sign of contamination."""
        if len(tokens) < GRAM:
            return None
        common = shingles(tokens, GRAM) & self._grams.keys()
        return (self._grams[first], first.decode()) if (first := min(common, default=b"")) else None


GRAM = 13
"""Words in a row that no two tasks share by chance."""
