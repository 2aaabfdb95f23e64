"""What changed in a machine that only runs commands: by the times of changes, which no agent can set back.

Scripts out, listings in. A machine without GNU find cannot say what changed: then everything that may be carried is
carried, and `blind` says what is missed. Boundary: text; nothing is run and no file is touched.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from t1.sandboxes.carry import OF_THE_IMAGE, UNCARRIED
from t1.sandboxes.harbor.called_shell import PLACE

KEPT_LOGS = ("logs/agent", "logs/verifier")
MAX_LISTING_BYTES = 8 << 20
MAX_LISTED = 5000
NO_FIND = "no GNU find here: every directory was carried whole, and changes to the system were not looked for"
TOO_MANY = "too many changes to list: every directory was carried whole, and changes to the system were not looked for"

_TOPS = r"""for _t1 in /* /.[!.]*; do [ -d "$_t1" ] && [ ! -L "$_t1" ] && printf '= %s\0' "$_t1"; done"""
_SKIPPED = ("/proc", "/sys", "/dev", "/logs", "/run", "/tests")


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of the machine's life."""

    time: str
    """Seconds since the epoch as the machine's file system writes them; empty where it cannot say."""
    tops: frozenset[str]
    """Directories below / ."""


@dataclass(frozen=True, slots=True)
class Left:
    """What an agent left."""

    places: tuple[str, ...]
    """Top-level directories that changed and may be carried."""
    uncarried: tuple[str, ...]
    """Paths that changed and stay behind."""
    blind: str = ""
    """What could not be seen, and why."""


def mark() -> str:
    """Prints the moment, and the directories below / ."""
    return f": >{PLACE}/opened; printf '@ '; find {PLACE}/opened -printf '%C@' 2>/dev/null; printf '\\0'; {_TOPS}"


def read_mark(printed: str) -> Mark:
    """What `mark` printed."""
    time, *entries = printed.split("\0")
    found = re.fullmatch(r"@ (\d+\.\d+)", time)
    return Mark("" if found is None else found[1], frozenset(_tops(entries)))


def listing(since: Mark) -> str:
    """Prints the directories below / , then the kind and path of everything that changed since."""
    if not since.time:
        return _TOPS
    pruned = " -o ".join(f"-path {path}" for path in _SKIPPED)
    return (
        # What is mounted read-only has not changed, and may be the whole of a host's /usr.
        f'{_TOPS}; set --; for _t1 in /* /.[!.]*; do [ -w "$_t1" ] && set -- "$@" "$_t1"; done; '
        f"find \"$@\" \\( {pruned} \\) -prune -o -newerct @{since.time} -printf '%y %p\\0' 2>/dev/null "
        f"| head -c {MAX_LISTING_BYTES}"
    )


def read_listing(since: Mark, printed: str) -> Left:
    """What `listing` printed."""
    entries = printed.split("\0")
    tops = frozenset(_tops(entries))
    carriable = {top for top in tops | since.tops if top[1:] not in UNCARRIED}
    changed = [(entry[0], entry[2:]) for entry in entries if entry[1:3] == " /" and entry[0] != "="]
    full = len(printed.encode("utf-8", "surrogateescape")) >= MAX_LISTING_BYTES
    if not since.time or full:
        return Left(tuple(sorted(carriable)), (), TOO_MANY if full else NO_FIND)
    touched = {_top(path) for _, path in changed} | (since.tops - tops)
    holders = {path.rpartition("/")[0] for _, path in changed}
    outside = [path for kind, path in changed if _top(path)[1:] in OF_THE_IMAGE and path not in holders]
    special = [path for kind, path in changed if kind not in "fdl" and _top(path) in carriable]
    return Left(tuple(sorted(touched & carriable)), (*outside, *special)[:MAX_LISTED])


def _tops(entries: Sequence[str]) -> list[str]:
    return [entry[2:] for entry in entries if re.fullmatch(r"= /[^/]+", entry)]


def _top(path: str) -> str:
    return "/" + path.lstrip("/").partition("/")[0]


def pack(places: Sequence[str], archive: str) -> str:
    """Packs the places that are there, and the logs."""
    wanted = " ".join(shlex.quote(name) for name in (*(place[1:] for place in places), *KEPT_LOGS))
    return (
        f"exec 2>&1; cd /; mkdir -p {PLACE}; rm -rf {archive}; set --; "
        f'for _t1 in {wanted}; do [ -d "$_t1" ] && [ ! -L "$_t1" ] && set -- "$@" "$_t1"; done; '
        # Status 1 says that files changed while they were read.
        f'tar -cf {archive} -- "$@"; [ $? -le 1 ]'
    )


def unpack(places: Sequence[str], archive: str) -> str:
    """Replaces the content of the places by what the archive has."""
    named = " ".join(map(shlex.quote, places))
    return (
        f"exec 2>&1; for _t1 in {named}; do "
        '{ mkdir -p "$_t1" && find "$_t1" -mindepth 1 -maxdepth 1 -exec rm -rf -- {} +; } || exit 1; done; '
        f"tar -xpf {archive} -C / --same-owner && rm -f {archive}"
    )
