"""Control tokens and text of one tokenizer, kept apart.

A control token is an id that frames a conversation. Text that merely spells one (an agent printed `<|im_end|>`) is
text: it gets the ids of its characters. Text on its way into a template is therefore *marked* with a character that
occurs nowhere in it, so that no control token can be read out of it or across its edges; what the template itself
writes is not marked. This module never learns of messages, templates or families.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from t1.errors import CheckpointError
from t1.types import IntArray

_NONCHARACTERS = tuple(map(chr, range(0xFDD0, 0xFDF0)))
_PRIVATE_PLANE = range(0xF0000, 0xFFFFE)
_MARKUP = re.compile(r"[<|｜\[{(].+[>|｜\]}):]", re.DOTALL)


def well_formed(text: str) -> str:
    """Text that UTF-8 can hold: surrogates that make a pair become its character, lone ones U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def marks_absent_from(texts: Iterable[str], count: int) -> list[str]:
    """`count` characters that occur in none of the texts."""
    held = list(texts)
    # A noncharacter is hardly ever there, and looking for one in text of narrower characters takes no time.
    marks = [mark for mark in _NONCHARACTERS[: count + 2] if not any(mark in text for text in held)]
    if len(marks) < count:
        present = set().union(*held)
        marks = list(islice((m for m in (*_NONCHARACTERS, *map(chr, _PRIVATE_PLANE)) if m not in present), count))
    return marks[:count]


@dataclass(frozen=True, slots=True)
class Marking:
    """How text is broken so that it spells no control token, and made whole again."""

    mark: str
    table: dict[int, str] = field(repr=False)

    def put(self, text: str) -> str:
        """Marked text: well formed, and no control token can begin or end in it."""
        return well_formed(text).translate(self.table)

    def take(self, text: str) -> str:
        """The text before it was marked."""
        return text.replace(self.mark, "")


class Spelling:
    """One tokenizer: text to text ids, control tokens to theirs."""

    def __init__(self, tokenizer_json: str) -> None:
        document = json.loads(tokenizer_json)
        added: list[dict[str, Any]] = document.get("added_tokens") or []
        self.control: dict[str, int] = {t["content"]: t["id"] for t in added if _is_control(t)}
        """Spelling of each control token → its id."""
        self._names = {id_: name for name, id_ in self.control.items()}
        self.control_ids = frozenset(self._names)
        self._text = Tokenizer.from_str(json.dumps(_text_only(document)))
        spellings = sorted(self.control, key=len, reverse=True)
        self._pattern = re.compile("(" + "|".join(map(re.escape, spellings)) + ")" if spellings else r"((?!))")
        self._firsts = {name[0] for name in spellings}
        self._lasts = {name[-1] for name in spellings if not name[-1].isalnum()}
        self._check(added)

    def marking(self, mark: str) -> Marking:
        """The marking that breaks every control token of this tokenizer with `mark`."""
        table = {
            ord(c): (mark if c in self._lasts else "") + c + (mark if c in self._firsts else "")
            for c in self._firsts | self._lasts
        }
        return Marking(mark, table)

    def encode(self, rendered: str, marking: Marking) -> IntArray:
        """[P] ids of rendered text: control tokens as the template wrote them, all else as text."""
        ids: list[int] = []
        for is_control, piece in self._pieces(rendered):
            ids += [self.control[piece]] if is_control else self._encode(marking.take(piece))
        return np.array(ids, dtype=np.int32)

    def encode_text(self, text: str) -> IntArray:
        """[n] ids of text, none of them a control token's."""
        return np.array(self._encode(well_formed(text)), dtype=np.int32)

    def decode(self, ids: IntArray) -> str:
        """Text of ids [n], control tokens spelled out."""
        return "".join(piece for _, piece in self._runs(ids))

    def decode_marked(self, ids: IntArray) -> tuple[str, str]:
        """Text of ids [n] in which only control ids spell control tokens, and the mark that keeps the rest apart."""
        runs = list(self._runs(ids))
        mark = marks_absent_from((piece for _, piece in runs), 1)[0]

        def broken(match: re.Match[str]) -> str:
            return match[0][0] + mark + match[0][1:]

        return "".join(piece if is_control else self._pattern.sub(broken, piece) for is_control, piece in runs), mark

    def _pieces(self, rendered: str) -> Iterable[tuple[bool, str]]:
        """Pieces of rendered text in order; True for a control token."""
        for index, piece in enumerate(self._pattern.split(rendered)):
            if piece:
                yield index % 2 == 1, piece

    def _runs(self, ids: IntArray) -> Iterable[tuple[bool, str]]:
        """Ids [n] as texts in order; True for a control token."""
        run: list[int] = []
        for id_ in [*ids.tolist(), None]:
            name = self._names.get(id_)
            if id_ is not None and name is None:
                run.append(id_)
                continue
            if run:
                yield False, str(self._text.decode(run, skip_special_tokens=False))
                run = []
            if name is not None:
                yield True, name

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._text.encode(text, add_special_tokens=False).ids
        if self.control_ids.isdisjoint(ids):
            return ids
        # A vocabulary whose model spells a control token in one piece: letter by letter there is no such piece.
        return list(chain.from_iterable(self._text.encode(c, add_special_tokens=False).ids for c in text))

    def _check(self, added: Sequence[dict[str, Any]]) -> None:
        """Refuse a tokenizer whose texts cannot be encoded apart from one another."""
        moved = [t["content"] for t in added if not _is_control(t) and self._text.token_to_id(t["content"]) != t["id"]]
        if moved:
            raise CheckpointError(f"tokenizer.json: the added tokens {moved[:3]} have no id of their own; save it anew")
        apart = np.concatenate([self.encode_text(text) for text in ("ab", " c", "\n", "d")])
        if self.decode(apart) != "ab c\nd":
            raise CheckpointError(
                f"tokenizer.json: pieces of text decode to {self.decode(apart)!r}, not 'ab c\\nd'; "
                "the gateway needs a byte-level tokenizer"
            )


def _is_control(token: dict[str, Any]) -> bool:
    """Special, or spelled like markup (`<think>`, `｜DSML｜`); other added tokens are plain vocabulary."""
    return bool(token.get("special")) or _MARKUP.fullmatch(token["content"]) is not None


def _text_only(document: dict[str, Any]) -> dict[str, Any]:
    """The tokenizer without its control tokens, which adds nothing and cuts nothing; every other id stays."""
    vocabulary = document["model"].get("vocab") or {}
    held = vocabulary if isinstance(vocabulary, dict) else {}
    added = []
    for token in document.get("added_tokens") or []:
        if not _is_control(token):
            added.append(token)
        elif token["content"] not in held:
            # Dropping it would move the ids after it, so it keeps its place under a name that no text has.
            added.append({**token, "content": f"\ufdd0{token['id']}\ufdd1", "special": True, "normalized": False})
    whole = {"post_processor": None, "truncation": None, "padding": None}
    return {**document, "added_tokens": added, **whole}
