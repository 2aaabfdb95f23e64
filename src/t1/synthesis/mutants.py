"""Solutions that are wrong on purpose: what a verifier must tell from the right one.

Boundary: text in, text out, the same for the same task; which mutants changed anything at all, trials show.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

_NUMBER = re.compile(r"(?<![\w.$&/-])\d+(?![\w>])")
_FLAG = re.compile(r"(?<=\s)-[a-zA-Z]{1,3}(?=\s)")
_SWAPS = (("-gt", "-lt"), ("==", "!="), ("asc", "desc"), ("head", "tail"), (">", ">="), ("sum", "max"), ("644", "600"))
_SKIPPED = ("#", "set ", "cd ", "fi", "done", "else", "esac", "then", "do")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A wrong solution."""

    name: str
    script: str


def source_mutants(script: str, limit: int, salt: str) -> list[Mutant]:
    """Up to `limit` mutants of the text of a solution, spread over its lines and the kinds of change."""
    lines = script.splitlines()
    works = [i for i, line in enumerate(lines) if line.strip() and not line.strip().startswith(_SKIPPED)]
    made = [*_each(lines, works, "dropped", _drop), *_each(lines, works, "changed", _change)]
    half = works[len(works) // 2] if len(works) > 1 else 0
    made += [Mutant(f"stopped before line {half + 1}", "\n".join(lines[:half]) + "\n")] if half else []
    return _drawn([mutant for mutant in made if mutant.script.strip() != script.strip()], limit, salt)


_SPOILED = """set +e
for f in {files}; do
  mode=$(stat -c %a "$f"); chmod u+w "$f"
  {change}
  [ ! -e "$f" ] || chmod "$mode" "$f"
done
"""
"""Changes files whatever their mode, and leaves them that mode, so that it is the content which is asserted."""
_SPOILS = {
    "without its last line": "sed -i '$d' \"$f\"",
    "with one more line": 'echo 7q >> "$f"',
    "with another letter": "sed -i '1s/[[:alnum:]]/_/' \"$f\"",
    "removed": 'rm -f "$f"',
}


def output_mutants(script: str, changed: Sequence[str], limit: int, salt: str) -> list[Mutant]:
    """The right solution, then one of the files that it made or changed is spoiled."""
    made = [
        Mutant(f"{path} {how}", _spoiled(script, [path], change))
        for path in sorted(changed)
        for how, change in _SPOILS.items()
    ]
    return _drawn(made, limit, salt)


def emptied(script: str, changed: Sequence[str]) -> Mutant:
    """The right solution, then everything that it made or changed is empty."""
    return Mutant("every output empty", _spoiled(script, changed, ': > "$f"'))


def _spoiled(script: str, paths: Iterable[str], change: str) -> str:
    """The right solution, and then `change` on every one of its files."""
    return f"{script}\n{_SPOILED.format(files=' '.join(map(shlex.quote, sorted(paths))), change=change)}"


def _each(
    lines: Sequence[str], works: Iterable[int], verb: str, change: Callable[[str], Iterable[tuple[str, str]]]
) -> list[Mutant]:
    """Every change of every line that does something."""
    return [
        Mutant(f"line {i + 1} {verb}{what}", "\n".join([*lines[:i], changed, *lines[i + 1 :]]) + "\n")
        for i in works
        for what, changed in change(lines[i])
    ]


def _drop(line: str) -> Iterable[tuple[str, str]]:
    yield "", ":"


def _change(line: str) -> Iterable[tuple[str, str]]:
    """One number, one flag or one word of a line made another."""
    for found in list(_NUMBER.finditer(line))[:2]:
        yield f": {found[0]} + 1", f"{line[: found.start()]}{int(found[0]) + 1}{line[found.end() :]}"
    for found in list(_FLAG.finditer(line))[:1]:
        yield f": without {found[0]}", line[: found.start()] + line[found.end() :]
    for old, new in _SWAPS:
        if f" {old} " in line and ">" not in old:
            yield f": {new} for {old}", line.replace(f" {old} ", f" {new} ", 1)


def _drawn(mutants: list[Mutant], limit: int, salt: str) -> list[Mutant]:
    """The same `limit` of them for the same task, in their own order."""
    if len(mutants) <= limit:
        return mutants
    digest = hashlib.sha256(salt.encode()).hexdigest()
    chosen = set(Random(digest).sample(range(len(mutants)), limit))
    return [mutant for index, mutant in enumerate(mutants) if index in chosen]
