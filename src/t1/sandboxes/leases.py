"""Directories that die with their owner: each carries who made it, and a sweeper removes what a killed owner left.

Processes need no sweeper: the kernel kills every sandbox with its parent. Boundary: files on the host; this module
never starts anything but `rm`.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

PREFIX = "t1-sandboxes-"
UNFINISHED_S = 3600.0
"""A directory without a readable owner is somebody's half-made one until it is this old."""


def default_root() -> Path:
    """The machine's temporary directory: unlike $XDG_RUNTIME_DIR, other uids can pass through it."""
    return Path(tempfile.gettempdir())


def lease(root: Path) -> Path:
    """A new directory under `root` that belongs to this process."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    path.mkdir(mode=0o711)
    path.chmod(0o711)  # sandbox uids pass through it to their places, whatever the umask
    owner = {"pid": os.getpid(), "started": started(os.getpid())}
    (path / "owner.json").write_text(json.dumps(owner), encoding="utf-8")
    return path


def started(pid: int) -> int | None:
    """When a process started (clock ticks since boot), or None if there is none: pids are used again."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def sweep(root: Path | None = None) -> list[Path]:
    """Remove what owners that are gone left under `root`; returns the removed directories."""
    removed = []
    for path in sorted((root or default_root()).glob(f"{PREFIX}*")):
        if not path.is_symlink() and path.is_dir() and _abandoned(path):
            remove(path)
            removed.append(path)
    return removed


def _abandoned(path: Path) -> bool:
    """True when the owner is not running any more."""
    try:
        if path.stat().st_uid != os.geteuid():
            return False
        owner = json.loads((path / "owner.json").read_text(encoding="utf-8"))
        return started(int(owner["pid"])) != int(owner["started"])
    except (OSError, ValueError, KeyError, TypeError):
        try:
            return time.time() - path.stat().st_mtime > UNFINISHED_S
        except OSError:
            return False


def remove(path: Path) -> None:
    """Remove a tree that an agent may have shaped: unreadable directories, any depth, symlinks never followed."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        subprocess.run(["chmod", "-R", "u+rwX", "--", str(path)], stderr=subprocess.DEVNULL, check=False, timeout=300)
        subprocess.run(["rm", "-rf", "--", str(path)], stderr=subprocess.DEVNULL, check=False, timeout=300)
