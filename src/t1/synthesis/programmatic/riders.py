"""Further requirements on a file that a step made: a mode, a checksum, a compressed copy, a count, a link.

Boundary: each takes a move and gives it back with one more sentence, command and assertion.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace

from t1.synthesis.programmatic.scene import Check, Move, Scene


def _with(move: Move, sentence: str, line: str, check: Check) -> Move:
    """One more requirement."""
    return replace(
        move, sentence=f"{move.sentence} {sentence}", lines=(*move.lines, line), checks=(*move.checks, check)
    )


def _mode(s: Scene, move: Move) -> Move:
    """Permissions."""
    mode, file = s.rng.choice(("600", "440", "644", "664")), f"/app/{move.output}"
    said = s.say(f"Its mode is {mode}.", f"Give it the octal mode {mode}.", f"It must have the permissions {mode}.")
    check = Check(f"{move.output} has the mode", f'[ -f {file} ] && [ "$(stat -c %a {file})" = {mode} ]')
    return _with(move, said, f"chmod {mode} {move.output}", check)


def _checksum(s: Scene, move: Move) -> Move:
    """A SHA-256 beside it."""
    made = f"{move.output}.sha256"
    said = s.say(
        f"Write its SHA-256 in hex, and nothing else, to {made}.",
        f"{made} holds the SHA-256 of it (only the hex digits).",
    )
    file = f"/app/{move.output}"
    test = f'[ -s {file} ] && [ -f {file}.sha256 ] && [ "$(cat {file}.sha256)" = "$(sha256sum < {file} | cut -c1-64)" ]'
    return _with(move, said, f"sha256sum < {move.output} | cut -c1-64 > {made}", Check(f"{made} is right", test))


def _compressed(s: Scene, move: Move) -> Move:
    """A gzipped copy beside it."""
    made, file = f"{move.output}.gz", f"/app/{move.output}"
    said = s.say(f"Keep a gzipped copy of it in {made}, too.", f"Beside it, {made} is the same, compressed with gzip.")
    test = f"[ -s {file} ] && [ -f {file}.gz ] && gzip -t {file}.gz && gzip -dc {file}.gz | cmp -s - {file}"
    return _with(move, said, f"gzip -nc {move.output} > {made}", Check(f"{made} unpacks to the same", test))


def _counted(s: Scene, move: Move) -> Move:
    """How many bytes it has."""
    made, file = f"{move.output}.size", f"/app/{move.output}"
    said = s.say(f"Write its size in bytes to {made}.", f"{made} says how many bytes it has.")
    test = f'[ -s {file} ] && [ -f {file}.size ] && [ "$(cat {file}.size)" = "$(stat -c %s {file})" ]'
    return _with(move, said, f"stat -c %s {move.output} > {made}", Check(f"{made} is right", test))


def _linked(s: Scene, move: Move) -> Move:
    """A symbolic link to it."""
    link, file = s.name(".link"), f"/app/{move.output}"
    said = s.say(f"Make {link} a symbolic link to it.", f"Let the symbolic link {link} lead to it.")
    test = f"[ -L /app/{link} ] && [ -s {file} ] && [ /app/{link} -ef {file} ]"
    return _with(move, said, f"ln -s {shlex.quote(move.output)} {link}", Check(f"{link} leads to {move.output}", test))


RIDERS: Mapping[str, Callable[[Scene, Move], Move]] = {
    "mode": _mode,
    "checksum": _checksum,
    "compressed": _compressed,
    "counted": _counted,
    "linked": _linked,
}
