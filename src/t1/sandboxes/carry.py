"""Trees that leave a container as a tar stream, laid out on the host. The container is dead, its files are hostile.

Boundary: nothing is written outside the target and no link is followed; devices and pipes stay behind.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import IO

from t1.sandboxes.dockerfile import SYSTEM
from t1.sandboxes.untar import lay_out

OF_THE_IMAGE = frozenset({*SYSTEM, "boot"})
"""Top-level directories that are the image's in every sandbox."""
UNCARRIED = OF_THE_IMAGE | {"logs", "run"}
"""Top-level directories that always come from the image (or the verifier), whatever the agent did there."""


def without(diff: str, mounted: Iterable[str]) -> str:
    """The diff without what the engine itself made so that something could be mounted there."""
    made = {f"/{path.lstrip('/')}" for path in mounted}
    made |= {str(parent) for path in made for parent in PurePosixPath(path).parents}
    return "".join(f"{line}\n" for line in diff.splitlines() if line.partition(" ")[2] not in made)


def changed_places(diff: str) -> list[str]:
    """The top-level directories in which `podman diff` (lines of kind and path) found a change that may be carried."""
    tops: dict[str, None] = {}
    for line in diff.splitlines():
        kind, _, path = line.partition(" ")
        top = path.lstrip("/").partition("/")[0]
        if kind in ("A", "C", "D") and top and top not in UNCARRIED:
            tops["/" + top] = None
    return sorted(tops)


def changed_outside(diff: str, *, most: int = 5000) -> tuple[str, ...]:
    """The paths that changed where nothing is carried from, directories that only hold them left out."""
    changed = [line.partition(" ")[2] for line in diff.splitlines()[: 4 * most]]
    holders = {path.rpartition("/")[0] for path in changed}
    outside = (path for path in changed if path.lstrip("/").partition("/")[0] in OF_THE_IMAGE)
    return tuple(itertools.islice((path for path in outside if path not in holders), most))


def left_behind(diff: str, root: Path, places: Iterable[str], *, most: int = 1000) -> tuple[str, ...]:
    """The paths that the agent added in carried places and that were no files, so that they stayed behind."""
    tops = {place.lstrip("/") for place in places}
    added = (line.partition(" ")[2] for line in diff.splitlines() if line.startswith("A "))
    inside = (path for path in added if path.lstrip("/").partition("/")[0] in tops)
    return tuple(itertools.islice((path for path in inside if not os.path.lexists(root / path.lstrip("/"))), most))


def unpack(stream: IO[bytes], target: Path) -> None:
    """Lay out a tar stream that begins with the tree's own name. Raises tarfile.TarError, OSError, ValueError."""
    lay_out(stream, target, owners=os.geteuid() == 0)
