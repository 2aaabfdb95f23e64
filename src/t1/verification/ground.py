"""The ground under a verifier: what an agent left is looked through, and what is not its to decide is taken back.

The agent is dead when this begins, its files lie on the host. Protected files that it changed come from the image
again, those that it planted are removed, and so is what is no file at all: pipes, sockets, devices, links into the
verifier's or the kernel's places. Everything is evidence. Boundary: works below `FileChanges.root` only, follows no
link there, runs nothing.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
import shutil
import stat
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from t1.errors import VerifierError
from t1.types import FileChanges, TamperEvidence, TamperLevel
from t1.verification.declared import Declared
from t1.verification.rules import (
    HARMLESS,
    KERNELS,
    RULES,
    SHARED_SETTING,
    VERIFIERS,
    Entry,
    Rule,
    is_same_command,
    rule_for,
)
from t1.verification.shared_settings import concerns_pytest, sections, with_sections_of
from t1.verification.ways import Ways

MAX_FILE_BYTES = 64 << 20
MAX_SEARCHED_BYTES = 256 << 10
MAX_EVIDENCE = 200
MAX_SEARCHED = 2000
"""Files that are read in search of the verifier's place."""
MAX_LINKS = 40
NOWHERE = Path("/nonexistent")

_SCRIPT = re.compile(r".*\.(py|sh|bash|js|mjs|ts|rb|pl|lua|awk|service)")
_AIMED = re.compile(rb"/logs/verifier|\breward\.(txt|json)\b|\bctrf\.json\b")

Original = Callable[[str], Awaitable[bytes | None]]
"""What the image has at a path: the bytes of a regular file, or None."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A protected path, or one that cannot be carried, with the host's path to it."""

    entry: Entry
    host: Path
    content: Path
    """Where its bytes lie: another file for a link within the places."""
    rule: Rule


_NO_FILE = Rule("special-file", "no file: reading it may never end", lambda entry: False)
_LINK_OUT = Rule("link-out", "leads to the kernel's files: reading it may never end", lambda entry: False)
_LINK_IN = Rule("link-to-verifier", "shows the verifier's own files", lambda entry: False, TamperLevel.TAMPERING)
_AIMS = Rule(
    "aims-at-verifier",
    "a program that names the place of the results",
    lambda entry: False,
    TamperLevel.TAMPERING,
    taken_back=False,
)
_NAMES = Rule("names-verifier", "a text that names the place of the results", lambda entry: False, taken_back=False)
_HIDDEN = Rule("unreadable", "cannot be looked through", lambda entry: False, taken_back=False)


async def clear_ground(
    changes: FileChanges, declared: Declared, ways: Ways, original: Original
) -> tuple[TamperEvidence, ...]:
    """Take back what is protected and not declared; returns the evidence.

    `original` is asked only about protected paths. Raises VerifierError where something cannot be taken back.
    """
    evidence = []
    for suspect in await asyncio.to_thread(lambda: list(_suspects(changes, declared, ways))):
        if not _is_asked_for(suspect, declared):
            found = await _settle(suspect, original)
            if found is not None:
                evidence.append(found)
    return tuple(sorted(evidence, key=lambda found: found.level is TamperLevel.NOTED)[:MAX_EVIDENCE])


def _is_asked_for(suspect: Suspect, declared: Declared) -> bool:
    """True where the author wants something at this path: a protected name may be asked for in words, what is no file
    must be declared, and nobody can ask for a link into the verifier's places.
    """
    if suspect.rule in RULES:
        return declared.covers(suspect.entry.path)
    return suspect.rule is _NO_FILE and declared.lists(suspect.entry.path)


async def _settle(suspect: Suspect, original: Original) -> TamperEvidence | None:
    """Put the image's version there, or nothing; None where it is the image's own already."""
    rule, left = suspect.rule, _read(suspect.content, MAX_FILE_BYTES)
    if rule.holds not in (left or b""):
        return None
    wanted = await original(_probe(suspect.entry)) if rule in RULES else None
    if wanted is not None and (suspect.entry.is_directory or left == wanted):
        return None  # of a package of the image, the files are looked at one by one
    if rule is SHARED_SETTING and left is not None:
        if sections(left) == sections(wanted or b"") or not concerns_pytest(suspect.entry.name, left):
            return None
        wanted = with_sections_of(suspect.entry.name, left, wanted) or wanted
    if rule.taken_back:
        _remove(suspect.host)
        if wanted is not None:
            _write(suspect.host, wanted)
    aimed = rule in RULES and left is not None and _AIMED.search(left) is not None
    level = TamperLevel.TAMPERING if aimed else rule.level
    message = rule.message + ("" if wanted is None else "; the image's own is back" if rule.taken_back else "; changed")
    return TamperEvidence(rule.name, suspect.entry.path, message, level)


def _probe(entry: Entry) -> str:
    """The file that shows whether the image has this entry."""
    return f"{entry.path}/__init__.py" if entry.is_directory else entry.path


def _suspects(changes: FileChanges, declared: Declared, ways: Ways) -> Iterator[Suspect]:
    """Every protected, special or aiming thing in the carried places; directories before what they hold."""
    links = _Links(changes)
    searches_left = 0 if declared.names("/logs/verifier") else MAX_SEARCHED
    todo = [(place, changes.root / subtree, False, False) for place, subtree in changes.places.items()]
    while todo:
        directory, host, in_venv, in_packages = todo.pop()
        entries = _scan(host)
        if entries is None:
            here = Entry(directory, posixpath.dirname(directory), posixpath.basename(directory))
            yield Suspect(here, host, host, _HIDDEN)
            continue
        is_venv = any(found.name == "pyvenv.cfg" for found in entries)
        for found in entries:
            mode = found.stat(follow_symlinks=False).st_mode
            entry = Entry(
                posixpath.join(directory, found.name),
                directory,
                found.name,
                is_directory=stat.S_ISDIR(mode),
                is_executable=bool(mode & 0o111),
                in_venv=in_venv,
                in_packages=in_packages,
                in_verifiers_way=directory in ways.starts,
                on_path=directory in ways.path,
            )
            content = Path(found.path)
            rule = rule_for(entry)
            if entry.is_directory and rule is not None and not _is_package(content):
                rule = None  # nothing that an import would prefer
            if stat.S_ISLNK(mode):
                rule, content = links.judge(entry, rule)
            elif not entry.is_directory and not stat.S_ISREG(mode):
                rule = _NO_FILE
            elif rule is None and searches_left and not entry.is_directory:
                searches_left -= 1
                if b"/logs/verifier" in (_read(content, MAX_SEARCHED_BYTES) or b""):
                    rule = _AIMS if _is_program(entry) else _NAMES
            if rule is not None:
                yield Suspect(entry, Path(found.path), content, rule)
            if entry.is_directory:
                venv = in_venv or (is_venv and found.name in ("bin", "lib", "lib64", "include"))
                packages = in_packages or found.name in ("site-packages", "dist-packages", "node_modules")
                todo.append((entry.path, Path(found.path), venv, packages))


def _scan(host: Path) -> list[os.DirEntry[str]] | None:
    """What a directory holds; nothing where it is gone, None where it cannot be read."""
    try:
        with os.scandir(host) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
    except OSError:
        return None


def _is_package(host: Path) -> bool:
    """True for a directory with an `__init__`."""
    return any(found.name.startswith("__init__.") for found in _scan(host) or ())


def _is_program(entry: Entry) -> bool:
    """True for a file that something may run."""
    return entry.is_executable or _SCRIPT.fullmatch(entry.name) is not None


class _Links:
    """Where links lead, as a process in the sandbox would find it."""

    def __init__(self, changes: FileChanges) -> None:
        self._changes = changes

    def judge(self, entry: Entry, rule: Rule | None) -> tuple[Rule | None, Path]:
        """What stands against a link that `rule` is about, and where the host has what it leads to."""
        target = self._resolve(entry.path)
        content = self._host(target)
        if _is_below(target, VERIFIERS):
            rule = _LINK_IN
        elif target not in HARMLESS and _is_below(target, KERNELS):
            rule = _LINK_OUT
        elif content is None and rule is not None and is_same_command(entry.name, target):
            rule = None  # the image's own command
        return rule, content or NOWHERE

    def _resolve(self, path: str) -> str:
        """The path behind all links that lie in the places; what lies elsewhere is the image's, and taken as it is."""
        todo, done, num_links = path.strip("/").split("/")[::-1], list[str](), 0
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                done = done[:-1]
                continue
            target = self._target([*done, part]) if num_links < MAX_LINKS else None
            if target is None:
                done.append(part)
                continue
            num_links += 1
            todo += target.split("/")[::-1]
            done = [] if target.startswith("/") else done
        return "/" + "/".join(done)

    def _target(self, parts: list[str]) -> str | None:
        """What a link says, None for anything else. `parts` holds no link but, perhaps, the last."""
        host = self._host("/" + "/".join(parts))
        try:
            return None if host is None else os.fspath(host.readlink())
        except OSError:
            return None

    def _host(self, path: str) -> Path | None:
        """The host's path to something in the places."""
        for place, subtree in self._changes.places.items():
            if path.startswith(place + "/"):
                return self._changes.root / subtree / path[len(place) + 1 :]
        return None


def _is_below(path: str, tops: tuple[str, ...]) -> bool:
    return any(path == top or path.startswith(top + "/") for top in tops)


def _read(path: Path, max_bytes: int) -> bytes | None:
    """The bytes of a regular file, up to a bound; None where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(max_bytes)


def _remove(path: Path) -> None:
    """Take a file, link or tree away; a directory that its owner shut is opened first."""
    try:
        _delete(path)
    except OSError:
        try:
            _open_up(path)
            _delete(path)
        except OSError as error:
            raise VerifierError(f"{path.name}: what the agent left cannot be taken back: {error}") from error


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _open_up(path: Path) -> None:
    """Let the owner write to the directories around and below a path."""
    folders = [path.parent]
    if path.is_dir() and not path.is_symlink():
        folders += [Path(folder) for folder, _, _ in os.walk(path)]
    for folder in folders:
        folder.chmod(stat.S_IMODE(folder.lstat().st_mode) | 0o700)


def _write(path: Path, content: bytes) -> None:
    """A fresh file, owned as its directory is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = path.parent.lstat()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o755)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if os.geteuid() == 0:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
