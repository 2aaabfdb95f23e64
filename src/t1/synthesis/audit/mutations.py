"""Wrong versions of what a solution left: an output that no sound verifier would take.

Boundary: pure functions of bytes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from t1.synthesis.audit.databases import is_database, with_other_values
from t1.synthesis.audit.sources import is_code

STUBS = {"py": "pass\n", "js": "\n", "sh": "exit 0\n", "bash": "exit 0\n"}
_NUMBER = re.compile(rb"\d")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong output."""

    name: str
    content: bytes
    is_gross: bool
    """True where nothing of the meaning is left: a verifier that takes it looks at nothing."""


def mutants(path: str, content: bytes, stated: str = "") -> list[Mutant]:
    """Wrong versions of the file `path`, each different from it and from one another; the grossest first.

    `stated`: the instruction; what it spells out may be all that is looked at.
    """
    if is_code(path, content[:2].decode("ascii", "replace")):
        stub = STUBS.get(path.rpartition(".")[2].lower(), "all:\n" if "makefile" in path.lower() else "\n").encode()
        return _distinct(content, [Mutant("an empty program", stub, True), *_idle(content)])
    if is_database(content):
        return _distinct(content, [Mutant("other values", with_other_values(content), True)])
    if b"\0" in content:
        return _distinct(content, [Mutant("other bytes", b"\x7f" * max(1, len(content) // 2), True)])
    text = content
    drawn = [
        Mutant("other values", _turned(text), True),
        Mutant("other digits", _NUMBER.sub(_next_digit, text), True),
        Mutant("other words where the instruction has none", _unstated(text, stated), True),
        Mutant("no text", b"", True),
        Mutant("a line less", b"".join(text.splitlines(keepends=True)[:-1]), False),
        Mutant("a line twice", text + (text.splitlines(keepends=True) or [b""])[-1], False),
    ]
    return _distinct(content, drawn)


def _idle(content: bytes) -> list[Mutant]:
    """A program that says the same whatever it is asked."""
    first = content.partition(b"\n")[0]
    says = b'print("x")' if b"python" in first else b"echo x" if b"sh" in first else b""
    return [Mutant("a program that always prints x", first + b"\n" + says + b"\n", True)] if says else []


def _unstated(content: bytes, stated: str) -> bytes:
    """Words and numbers that the instruction does not have are others."""
    told = {word.lower() for word in re.findall(r"\w+", stated)}
    if not told:
        return content
    text = content.decode("utf-8", "surrogateescape")
    turned = re.sub(r"\w+", lambda word: word[0] if word[0].lower() in told else turn(word[0]), text)
    return turned.encode("utf-8", "surrogateescape")


def _distinct(content: bytes, drawn: list[Mutant]) -> list[Mutant]:
    seen, kept = {content.strip()}, []
    for mutant in drawn:
        if mutant.content.strip() not in seen:
            seen.add(mutant.content.strip())
            kept.append(mutant)
    return kept


def _turned(content: bytes) -> bytes:
    """Every value another one of the same form: letters by 13, digits by 1; keys of JSON and INI stay."""
    text = content.decode("utf-8", "surrogateescape")
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict | list):
        return json.dumps(_turned_json(parsed)).encode("utf-8", "surrogateescape")
    turned = "".join(_turned_line(line) for line in text.splitlines(keepends=True))
    return turned.encode("utf-8", "surrogateescape")


def _turned_line(line: str) -> str:
    key = re.match(r"\s*[\w.-]+\s*[=:]\s*(?=\S)|\s*\[[\w. -]+\]\s*$", line)
    start = key.end() if key else 0
    return line[:start] + turn(line[start:])


def turn(text: str) -> str:
    """`Ab 19` → `No 20`, character by character (9 becomes 0)."""
    return text.translate(_TURN)


def _turned_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _turned_json(below) for key, below in value.items()}
    if isinstance(value, list):
        return [_turned_json(below) for below in value]
    if isinstance(value, bool) or value is None:
        return not value
    return turn(value) if isinstance(value, str) else value + 1


def _next_digit(match: re.Match[bytes]) -> bytes:
    return b"%d" % ((int(match[0]) + 1) % 10)


def _shift(first: str, count: int, by: int) -> dict[int, int]:
    return {ord(first) + i: ord(first) + (i + by) % count for i in range(count)}


_TURN = _shift("a", 26, 13) | _shift("A", 26, 13) | _shift("0", 10, 1)
