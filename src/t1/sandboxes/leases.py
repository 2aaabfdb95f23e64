"""Directories that die with their owner: each carries who made it, and a sweeper removes what a killed owner left.

Processes need no sweeper: the kernel kills every namespace sandbox with its parent. Boundary: files on the host; this
module never starts anything but `rm`.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from t1.sandboxes import cgroups
from t1.sandboxes.processes import started

PREFIX = "t1-sandboxes-"
OWNER_FILE = "owner.json"
UNFINISHED_S = 3600.0
"""A directory without a readable owner is somebody's half-made one until it is this old."""


def default_root() -> Path:
    """The machine's temporary directory: unlike $XDG_RUNTIME_DIR, other uids can pass through it."""
    return Path(tempfile.gettempdir())


@dataclass(frozen=True, slots=True)
class Lease:
    """A directory with its owner: a process, and what that process called itself."""

    path: Path
    pid: int
    started: int
    """Clock ticks since boot: pids are used again."""
    label: str = ""
    cgroups: tuple[str, ...] = ()
    """Directories of the host in which the owner made control groups that carry the lease's name."""

    @property
    def alive(self) -> bool:
        """True while the owner runs."""
        return started(self.pid) == self.started


def lease(root: Path, *, label: str = "", groups: Iterable[str] = (), prefix: str = PREFIX) -> Path:
    """A new directory under `root` that belongs to this process."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}"
    path.mkdir(mode=0o711)
    path.chmod(0o711)  # sandbox uids pass through it to their places, whatever the umask
    owner = {"pid": os.getpid(), "started": started(os.getpid()), "label": label, "cgroups": list(groups)}
    (path / OWNER_FILE).write_text(json.dumps(owner), encoding="utf-8")
    return path


def leases(root: Path | None = None, *, prefix: str = PREFIX) -> Iterator[Lease]:
    """Our leases under `root`, those of owners that are gone too. Half-made ones count once they are an hour old."""
    for path in sorted((root or default_root()).glob(f"{prefix}*")):
        try:
            if path.is_symlink() or not path.is_dir() or path.stat().st_uid != os.geteuid():
                continue
            owner = _read(path)
            if owner is not None or time.time() - path.stat().st_mtime > UNFINISHED_S:
                yield owner or Lease(path, 0, 0)
        except OSError:
            continue  # it goes away while we look


def _read(path: Path) -> Lease | None:
    """What its owner wrote, or None where it is not (yet) readable."""
    try:
        owner = json.loads((path / OWNER_FILE).read_text(encoding="utf-8"))
        groups = tuple(map(str, owner.get("cgroups", ())))
        return Lease(path, int(owner["pid"]), int(owner["started"]), str(owner.get("label", "")), groups)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def sweep(root: Path | None = None) -> list[Path]:
    """Remove what owners that are gone left under `root`; returns the removed directories."""
    removed = []
    for left in leases(root):
        if not left.alive:
            remove(left.path)
            cgroups.sweep(left.cgroups, left.path.name)
            removed.append(left.path)
    return removed


def remove(path: Path) -> None:
    """Remove a tree that an agent may have shaped: unreadable directories, any depth, symlinks never followed."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        subprocess.run(["chmod", "-R", "u+rwX", "--", str(path)], stderr=subprocess.DEVNULL, check=False, timeout=300)
        subprocess.run(["rm", "-rf", "--", str(path)], stderr=subprocess.DEVNULL, check=False, timeout=300)
