"""What a shell script asks for and writes, read with tree-sitter's bash grammar.

Boundary: syntax only. Strings that hold shell (`check NAME 'TEST'`, `bash -c`) are read as shell themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Query, QueryCursor

MAX_DEPTH = 3
FILTERS = frozenset("jq awk gawk sed perl sqlite3 psql mysql python python3 node ruby grep egrep rg".split())
"""Commands whose first argument is a program of its own."""
_LOOKS_LIKE_SHELL = re.compile(
    r"[|&;`]|\$\(|\[ | /[\w.]|^(?:test|grep|cmp|diff|ls|cat|git|stat|!|wc|cd|jq|make|python3?) "
)
_FUNCTION = re.compile(r"^\s*(?:function\s+)?(\w+)\s*\(\s*\)", re.MULTILINE)
_COMPARED = re.compile(
    r"\b(?:cmp|diff|grep|jq|sha256sum|md5sum|git|stat|cat|wc|python3?|pytest|node|make|curl|tar|unzip|file|cksum|openssl|sqlite3)\b"
)


@dataclass(frozen=True, slots=True)
class Word:
    """A word or string of a script."""

    text: str
    line: int
    role: Literal["word", "program", "heredoc", "target"]
    """program: of another language, such as a filter of jq; target: what output is redirected to."""


@dataclass(slots=True)
class Script:
    """A script as it was read."""

    literals: list[Word] = field(default_factory=list)
    commands: list[tuple[str, int]] = field(default_factory=list)
    """(name, line)."""
    tests: list[tuple[str, int]] = field(default_factory=list)
    """Texts of what decides: `[ … ]`, `[[ … ]]`, `test`, and commands that compare."""
    writes: set[str] = field(default_factory=set)
    """Names of files that it writes itself."""


@lru_cache(maxsize=1)
def _bash() -> Language:
    return Language(tree_sitter_bash.language())


@lru_cache(maxsize=1)
def _parser() -> Parser:
    return Parser(_bash())


@lru_cache(maxsize=64)
def read_script(text: str) -> Script:
    """Read a script, to be looked at only: several readers share it. The parser recovers from broken syntax."""
    script = Script()
    root = _parser().parse(text.encode("utf-8", "replace")).root_node
    functions = set(_FUNCTION.findall(text))
    _read(root, script, functions, 0, 0)
    return script


def _walk(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(current.named_children))


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


@lru_cache(maxsize=1)
def _told() -> Query:
    """The nodes that say something, found without a walk in Python."""
    kinds = "command test_command variable_assignment file_redirect heredoc_body".split()
    return Query(_bash(), f"[{' '.join(f'({kind})' for kind in kinds)}] @node")


def _read(root: Node, script: Script, functions: set[str], first: int, depth: int) -> None:
    """Collect from one parse; `first` is the line above it in the file."""
    found = QueryCursor(_told()).captures(root).get("node", [])
    for node in sorted(found, key=lambda node: (node.start_byte, -node.end_byte)):  # outer before inner
        kind = node.type
        line = first + node.start_point[0] + 1
        if kind == "command":
            _command(node, script, functions, line, depth)
        elif kind == "test_command":
            script.tests.append((_text(node), line))
            for below in _walk(node):
                if below.type in ("word", "string", "raw_string", "number", "extglob_pattern", "regex") and (
                    below.parent is None or below.parent.type not in ("command", "command_name", "string")
                ):
                    script.literals.append(Word(_plain(below), line, "word"))
        elif kind == "variable_assignment":
            value = node.children[-1]
            if value.type in ("string", "raw_string", "ansi_c_string", "word", "number", "concatenation"):
                script.literals.append(Word(_plain(value), line, "word"))
        elif kind == "file_redirect":
            _redirect(node, script, line)
        else:
            script.literals.append(Word(_text(node), line, "heredoc"))


def _redirect(node: Node, script: Script, line: int) -> None:
    target = _plain(node.children[-1])
    if any(child.type in (">", ">>", "&>", ">|") for child in node.children):
        script.writes.add(target)
        script.literals.append(Word(target, line, "target"))
    else:
        script.literals.append(Word(target, line, "word"))


def _command(node: Node, script: Script, functions: set[str], line: int, depth: int) -> None:
    """A command: its arguments are words, programs of other languages, or shell."""
    name_node = node.child_by_field_name("name")
    name = _plain(name_node) if name_node is not None else ""
    script.commands.append((name, line))
    arguments = [child for child in node.children if child.type in _WORDS]
    if _COMPARED.fullmatch(name) or name == "test":
        script.tests.append((_text(node), line))
    if name in functions and len(arguments) > 1:
        arguments = arguments[1:]
    program_seen = False
    for argument in arguments:
        text = _plain(argument)
        nested = name in functions or name in ("eval", "bash", "sh", "timeout", "su", "xargs")
        if nested and depth < MAX_DEPTH and _LOOKS_LIKE_SHELL.search(text):
            before = len(script.tests)
            below = _parser().parse(text.encode("utf-8", "replace")).root_node
            _read(below, script, functions, line - 1, depth + 1)
            if name in functions and len(script.tests) == before:
                script.tests.append((text, line))
        elif name in FILTERS and not program_seen and not text.startswith("-") and name not in ("python3", "node"):
            program_seen = True
            role: Literal["word", "program"] = "word" if name in ("grep", "egrep", "rg") else "program"
            script.literals.append(Word(text, line, role))
        elif not re.match(r"[-+]", text):
            script.literals.append(Word(text, line, "word"))


_WORDS = ("word", "string", "raw_string", "ansi_c_string", "concatenation", "number")


def _plain(node: Node) -> str:
    """The text of a word without its quotes; expansions stay as they are written."""
    text = _text(node)
    if node.type == "raw_string":
        return text[1:-1]
    if node.type == "ansi_c_string":
        return text[2:-1].replace("\\n", "\n").replace("\\t", "\t")
    if node.type == "string":
        return text[1:-1].replace('\\"', '"')
    return "".join(map(_plain, node.children)) if node.type == "concatenation" else text
