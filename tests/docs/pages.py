"""Commands as the documentation shows them: fenced shell blocks, and `t1 …` and `make …` in a sentence."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "README.zh-TW.md", "CONTRIBUTING.md")),
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "log.md"),
]
"""All but the log, which tells of commands as they were."""
SHELL = ("sh", "bash", "shell", "console")
_FENCE = re.compile(r"^(?P<fence>```+|~~~+)(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=fence)\s*$", re.M | re.S)
_INDENTED = re.compile(r"^    ((?:t1|make) \S[^\n]*)$", re.M)
_SPAN = re.compile(r"`((?:t1|make) [^`]+)`")
_BLANK = re.compile(r"<[^<>\n|&;]+>|…")
"""What the reader fills in: `<this repository>`, `…`."""
FILLED = "FILLED_IN"


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command of a page."""

    page: Path
    line: int
    words: tuple[str, ...]
    whole: bool
    """True in a block, which readers copy; a sentence may name a command without its arguments."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line} {' '.join(self.words)}"


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """(line, script) of every fenced shell block; of a console's, what follows its prompts."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        if found["language"] in SHELL:
            script = found["text"]
            if found["language"] == "console" or re.search(r"^\$ ", script, re.M):
                script = re.sub(r"^(?!\$ ).*$", "", script, flags=re.M)
                script = re.sub(r"^\$ ", "", script, flags=re.M)
            yield text[: found.start()].count("\n") + 2, script


def commands(page: Path) -> Iterator[Command]:
    """Every command of a page."""
    text = page.read_text(encoding="utf-8")
    for first, script in blocks(page):
        for line, words in simple_commands(script):
            yield Command(page, first + line, words, whole=True)
    prose = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
    for pattern in (_INDENTED, _SPAN):
        for found in pattern.finditer(prose):
            said = re.split(r"\s{3,}", " ".join(found[1].split("\n")))[0]
            words = split(said)
            if words:
                yield Command(page, prose[: found.start()].count("\n") + 1, words, whole=False)


def simple_commands(script: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(line, words) of every simple command of a script, without its redirections and variables."""
    for node in _walk(_parser().parse(_BLANK.sub(FILLED, script).encode()).root_node):
        if node.type == "ERROR":
            raise AssertionError(f"no shell: {(node.text or b'').decode()!r} in {script!r}")
        if node.type == "command":
            assigned = [child for child in node.children if child.type == "variable_assignment"]
            start = assigned[-1].end_byte if assigned else node.start_byte
            words = split((node.text or b"")[start - node.start_byte :].decode())
            if words:
                yield node.start_point[0], words


def split(text: str) -> tuple[str, ...]:
    """Words as the shell would take them."""
    return tuple(shlex.split(_BLANK.sub(FILLED, text), comments=True))


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _walk(child)


@lru_cache(maxsize=1)
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))
