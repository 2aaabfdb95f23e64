"""The files of a sandbox, kept to begin other sandboxes from.

A provider that can do this has `snapshot`, `restore` and `discard` beside the protocol's verbs. Processes, variables
and /logs are not part of it. Boundary: copies of places on the host; of a container an image, which its engine keeps.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from t1.errors import SandboxError

COPY_S = 600.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was kept, until it is discarded or its provider is closed."""

    name: str
    """A directory of the provider, or an image of the engine."""
    directory: str
    """Where the shell stood."""
    places: tuple[str, ...] = ()
    """Of a container: the top-level directories that differ from the task's image."""


def copy_places(places: Mapping[str, Path], target: Path) -> None:
    """Copy trees that an agent shaped: no link is followed, extents are shared where the file system can."""
    target.mkdir(parents=True, exist_ok=True)
    for place, source in places.items():
        words = ["cp", "--archive", "--reflink=auto", "--", str(source), str(target / place[1:])]
        try:
            ended = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=COPY_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise SandboxError(f"snapshot of {place}: not done after {COPY_S:g} s") from error
        if ended.returncode != 0:
            raise SandboxError(f"snapshot of {place}: {ended.stderr.strip()[-300:]}")
