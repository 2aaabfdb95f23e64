"""The part of a Dockerfile that a namespace sandbox can honour, read once per task.

FROM is ignored: the userland is the host's. WORKDIR, ENV, COPY and RUN are honoured; CMD, ENTRYPOINT, LABEL, EXPOSE
and USER root change nothing here; anything else is refused with its path and line, never skipped. Files are copied
before the first RUN. Boundary: text in, an Image out; nothing is executed here.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from string import Template

from t1.errors import TaskError
from t1.types import Environment

DEFAULT_WORKDIR = "/app"
DEFAULT_PLACES = ("/app", "/root", "/tmp", "/logs")
DEFAULT_ENV: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LC_CTYPE": "C.UTF-8",
    "TERM": "dumb",
    "SHELL": "/bin/bash",
}
"""LC_CTYPE, not LANG: text is UTF-8 with either, but with LANG every program reads twelve locale files at its start."""
SYSTEM = ("bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "tests", "usr")
"""Top-level directories that are the host's, the kernel's or the verifier's: read-only, never a place."""
ROOT = ("root", "0", "root:root", "0:0")
IGNORED = ("FROM", "CMD", "ENTRYPOINT", "LABEL", "EXPOSE")


@dataclass(frozen=True, slots=True)
class Copy:
    """One COPY: host paths, and where they go in the sandbox."""

    sources: tuple[Path, ...]
    dest: str
    into: bool
    """True when `dest` is a directory that takes the sources under their own names."""


@dataclass(frozen=True, slots=True)
class Run:
    """One RUN: a command line, its directory, and where it stands for the error message."""

    command: str
    workdir: str
    where: str


@dataclass(frozen=True, slots=True)
class Image:
    """What a sandbox of a task starts from."""

    workdir: str = DEFAULT_WORKDIR
    env: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_ENV))
    places: tuple[str, ...] = DEFAULT_PLACES
    """Writable top-level directories, private to each sandbox."""
    directories: tuple[str, ...] = ()
    """Directories to make in the places, parents first."""
    copies: tuple[Copy, ...] = ()
    runs: tuple[Run, ...] = ()
    source: Path = Path()
    """The Dockerfile, for error messages."""


def read_image(environment: Environment) -> Image:
    """The image of a task's environment; without a Dockerfile, the defaults."""
    path = environment.path / "Dockerfile"
    if environment.user not in (None, *ROOT):
        raise TaskError(path, f"namespace sandboxes have no user {environment.user!r}; use containers", "agent.user")
    reader = _Reader(path, environment)
    if path.is_file():
        for line, keyword, rest in _instructions(path):
            reader.take(line, keyword, rest)
    return reader.image()


def _instructions(path: Path) -> Iterator[tuple[int, str, str]]:
    """(line number, keyword, arguments) of every instruction; continuation lines are joined."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise TaskError(path, f"not UTF-8: {error}") from error
    pending, start = "", 0
    for number, raw in enumerate(lines, 1):
        stripped = raw.strip()
        if stripped.startswith("#") or (not pending and not stripped):
            continue
        start = start if pending else number
        pending += raw.rstrip()
        if pending.endswith("\\"):
            pending = pending[:-1] + " "
            continue
        keyword, _, rest = pending.strip().partition(" ")
        yield start, keyword.upper(), rest.strip()
        pending = ""
    if pending.strip():
        raise TaskError(path, "the last line ends with a backslash", f"line {start}")


class _Reader:
    """Folds instructions into an Image."""

    def __init__(self, path: Path, environment: Environment) -> None:
        self._path, self._environment = path, environment
        self._workdir = DEFAULT_WORKDIR
        self._env = dict(DEFAULT_ENV)
        self._directories: list[str] = []
        self._copies: list[Copy] = []
        self._runs: list[Run] = []

    def take(self, line: int, keyword: str, rest: str) -> None:
        """Honour one instruction, or refuse it."""
        where = f"line {line}: {keyword}"
        if keyword in IGNORED or (keyword == "USER" and rest in ROOT):
            return
        if keyword == "WORKDIR":
            self._workdir = self._absolute(self._expand(rest), where)
            self._directories.append(self._workdir)
        elif keyword == "ENV":
            self._env.update(self._assignments(rest, where))
        elif keyword == "COPY":
            self._copies.append(self._copy(rest, where))
        elif keyword == "RUN":
            self._runs.append(Run(self._command(rest, where), self._workdir, where))
        else:
            raise TaskError(self._path, "namespace sandboxes cannot honour this; use containers", where)

    def image(self) -> Image:
        """What was read, with the task's own workdir and variables on top."""
        if self._environment.workdir:
            self._workdir = self._absolute(self._environment.workdir, "environment.workdir")
        targets = [*self._directories, self._workdir, *(copy.dest for copy in self._copies)]
        tops = dict.fromkeys([*DEFAULT_PLACES, *("/" + PurePosixPath(target).parts[1] for target in targets)])
        return Image(
            workdir=self._workdir,
            env={**self._env, **self._environment.env},
            places=tuple(tops),
            directories=tuple(dict.fromkeys([*self._directories, self._workdir])),
            copies=tuple(self._copies),
            runs=tuple(self._runs),
            source=self._path,
        )

    def _expand(self, text: str) -> str:
        return Template(text).safe_substitute(self._env)

    def _absolute(self, path: str, where: str) -> str:
        """`path` from the workdir, normalised; refused where the sandbox cannot write."""
        parts: list[str] = []
        for part in (PurePosixPath(self._workdir) / path.strip("'\"")).parts[1:]:
            if part == "..":
                parts = parts[:-1]
            else:
                parts.append(part)
        if not parts:
            raise TaskError(self._path, "the root directory is read-only; use a directory such as /app", where)
        if parts[0] in SYSTEM:
            raise TaskError(self._path, f"/{parts[0]} is read-only in a namespace sandbox; use containers", where)
        return "/" + "/".join(parts)

    def _assignments(self, rest: str, where: str) -> dict[str, str]:
        """`K=V K2="V 2"`, or the old `K V`."""
        words = self._split(rest, where)
        if words and "=" not in words[0]:
            words = [f"{words[0]}={rest.partition(' ')[2].strip()}"]
        pairs = [word.partition("=") for word in words]
        for name, equals, _ in pairs:
            if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise TaskError(self._path, f"expected NAME=value, got {name!r}", where)
        return {name: self._expand(value) for name, _, value in pairs}

    def _copy(self, rest: str, where: str) -> Copy:
        """Sources are found in `environment/` and nowhere else."""
        words = self._words(rest, where)
        flags = [word for word in words if word.startswith("--")]
        if any(not flag.startswith(("--chown=", "--chmod=", "--link")) for flag in flags):
            raise TaskError(self._path, f"{flags[0]}: namespace sandboxes cannot honour this flag", where)
        names = [self._expand(word) for word in words if not word.startswith("--")]
        if len(names) < 2:
            raise TaskError(self._path, "expected sources and a destination", where)
        *patterns, dest = names
        sources = [source for pattern in patterns for source in self._sources(pattern, where)]
        into = dest.endswith("/") or dest in (".", "..") or len(sources) > 1
        return Copy(tuple(sources), self._absolute(dest, where), into)

    def _sources(self, pattern: str, where: str) -> list[Path]:
        base = self._environment.path.resolve()
        relative = pattern.lstrip("/")
        found = sorted(base.glob(relative)) if re.search(r"[*?\[]", relative) else [base / relative]
        for path in found:
            if not path.resolve().is_relative_to(base):
                raise TaskError(self._path, f"{pattern!r} lies outside environment/", where)
        if not found or not all(path.exists() for path in found):
            raise TaskError(self._path, f"{pattern!r} is not in environment/", where)
        return found

    def _command(self, rest: str, where: str) -> str:
        if not rest or rest.startswith("--") or "<<" in rest.split(" ", 1)[0]:
            raise TaskError(self._path, "namespace sandboxes cannot honour this form of RUN", where)
        return shlex.join(self._words(rest, where)) if rest.startswith("[") else rest

    def _words(self, rest: str, where: str) -> list[str]:
        """Words of the shell form, or the strings of the JSON form."""
        if not rest.startswith("["):
            return self._split(rest, where)
        try:
            words = json.loads(rest)
        except ValueError as error:
            raise TaskError(self._path, f"not a JSON list: {error}", where) from error
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise TaskError(self._path, "expected a JSON list of strings", where)
        return words

    def _split(self, rest: str, where: str) -> list[str]:
        try:
            return shlex.split(rest)
        except ValueError as error:
            raise TaskError(self._path, f"{error}", where) from error
