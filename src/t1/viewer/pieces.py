"""Token ids as text, one at a time, by the tokenizer of the run's own policy.

Boundary: a tokenizer that is missing or does not know an id gives no text; the page shows the id then.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from t1.types import IntArray


class Pieces:
    """The text of each id."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self.text = lru_cache(maxsize=1 << 18)(self._text)

    @classmethod
    def of_run(cls, run: Path) -> Pieces:
        """By the first tokenizer among the run's checkpoints, if it has any that can be read."""
        for file in _tokenizers(run):
            try:
                return cls(Tokenizer.from_file(str(file)))
            except Exception:  # tokenizers raises bare Exception for a file that it cannot read
                continue
        return cls(None)

    @property
    def known(self) -> bool:
        """True when ids have text."""
        return self._tokenizer is not None

    def join(self, ids: IntArray) -> str:
        """The text of many ids together, control tokens spelled out."""
        return "" if self._tokenizer is None else self._tokenizer.decode(ids.tolist(), skip_special_tokens=False)

    def _text(self, token: int) -> str | None:
        if self._tokenizer is None or token < 0 or self._tokenizer.id_to_token(token) is None:
            return None
        return self._tokenizer.decode([token], skip_special_tokens=False)


def _tokenizers(run: Path) -> Iterator[Path]:
    for root in (run, run.parent, run.parent.parent):
        if (root / "checkpoints").is_dir():
            yield from sorted((root / "checkpoints").glob("**/tokenizer.json"))
            return
