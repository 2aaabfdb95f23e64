"""The ways of a task's verifier: in which directories its programs start, and where its shell looks for commands.

Read from what the author wrote (task.toml, Dockerfile, test.sh), so that an agent has no say in it. Boundary: text in,
directories out; a directory too many costs nothing, one too few leaves an everyday place unguarded.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

from t1.types import Task

_WORKDIR = re.compile(r"^\s*WORKDIR\s+(\S+)", re.MULTILINE | re.IGNORECASE)
_CD = re.compile(r"(?:^|[\s;&|(])(?:cd|pushd)\s+(?:--\s+)?[\"']?([\w./~-]+)")
_PATH = re.compile(r"\bPATH[=\s]\s*[\"']?([^\s\"';]+)")
_ALWAYS = ("/root/.local/bin", "/root/bin", "/usr/local/bin", "/usr/local/sbin")
"""Where installers put commands, and shells look first."""
MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Ways:
    """Absolute directories."""

    starts: frozenset[str] = frozenset()
    """Where the verifier's programs start: Python imports from there first."""
    path: frozenset[str] = frozenset()
    """Where commands are looked for."""


def read_ways(task: Task) -> Ways:
    """What the task's own files say about its verifier."""
    dockerfile, script = _text(task.environment.path / "Dockerfile"), _text(task.verifier.path / "test.sh")
    workdir = task.environment.workdir
    workdirs = [workdir] if workdir else [_absolute(path, "/") for path in _WORKDIR.findall(dockerfile)] or ["/app"]
    starts = {*workdirs, *(_absolute(path, workdirs[-1]) for path in _CD.findall(script))}
    paths = [*_PATH.findall(dockerfile), *_PATH.findall(script), task.environment.env.get("PATH", "")]
    listed = [_absolute(path, workdirs[-1]) for paths_ in paths for path in paths_.split(":") if path]
    return Ways(frozenset(starts), frozenset({*_ALWAYS, *listed}))


def _absolute(path: str, base: str) -> str:
    """Normalised; `~` and `$HOME` are root's."""
    path = re.sub(r"^(~|\$\{?HOME\}?)(?=/|$)", "/root", path)
    return posixpath.normpath(posixpath.join(base, path))


def _text(path: Path) -> str:
    """The beginning of a file, or nothing."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
