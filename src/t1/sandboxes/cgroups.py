"""Limits of a whole sandbox (memory, processes, processors) through control groups, where this process may make them.

Both versions are used as they are found: below our own group where that is allowed, else below the nearest parent that
hands its controllers on. Nothing of the host's own groups is changed, and looking writes nothing. Where there is no
place for groups, limits of each process and uid remain (`shell.ProcessLimits`). Boundary: files under /sys/fs/cgroup.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PERIOD_US = 100_000
REMOVE_S = 2.0
"""How long the kernel may take to see that a group is empty after its last process was reaped."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What a whole sandbox may use."""

    memory_mb: int
    num_processes: int
    cpus: float

    def files(self) -> Mapping[str, Mapping[str, str]]:
        """Controller → file → value; the first file of a controller is the one that counts."""
        memory = str(self.memory_mb << 20)
        return {
            "memory": {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": memory},
            "pids": {"pids.max": str(self.num_processes)},
            "cpu": {"cpu.cfs_quota_us": str(round(self.cpus * PERIOD_US))},
        }

    def unified_files(self) -> Mapping[str, Mapping[str, str]]:
        """The same in version 2."""
        return {
            "memory": {"memory.max": str(self.memory_mb << 20), "memory.swap.max": "0"},
            "pids": {"pids.max": str(self.num_processes)},
            "cpu": {"cpu.max": f"{round(self.cpus * PERIOD_US)} {PERIOD_US}"},
        }


@dataclass(frozen=True, slots=True)
class Place:
    """Where groups can be made: one directory per controller (version 1), or one for all (version 2)."""

    version: int
    parents: Mapping[str, Path]

    def __str__(self) -> str:
        return f"cgroups v{self.version}: {', '.join(self.parents)}"

    def make(self, name: str, limits: GroupLimits) -> Group:
        """A group with its limits set and nothing in it. Raises OSError."""
        directories = {controller: parent / name for controller, parent in self.parents.items()}
        group = Group(
            self.version, tuple(dict.fromkeys(directories.values())), tuple(dict.fromkeys(self.parents.values()))
        )
        try:
            for directory in group.directories:
                directory.mkdir()
            wanted = limits.files() if self.version == 1 else limits.unified_files()
            for controller, directory in directories.items():
                _set(directory, wanted[controller])
        except BaseException:
            group.remove()
            raise
        return group

    def works(self, name: str) -> bool:
        """Try with a process that does nothing: what may be written need not be allowed (a container's cgroups)."""
        try:
            group = self.make(name, GroupLimits(memory_mb=64, num_processes=16, cpus=1))
        except OSError:
            return False
        try:
            with subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, env={"PATH": os.defpath}) as sleeper:
                try:
                    for directory in group.directories:
                        _write(directory / "cgroup.procs", str(sleeper.pid))
                except OSError:
                    return False
                finally:
                    sleeper.kill()
        finally:
            group.remove()
        return True


@dataclass(frozen=True, slots=True)
class Group:
    """The group of one sandbox.

    In version 1 a thread enters, has a child, and leaves: to move itself it needs no lock. To move another process
    takes a lock that every fork of the machine respects, 5 to 20 ms after a quiet while. Version 2 has only that way.
    """

    version: int
    directories: tuple[Path, ...]
    parents: tuple[Path, ...]

    def enter(self) -> None:
        """Move the calling thread in. Raises OSError."""
        if self.version == 1:
            for directory in self.directories:
                _write(directory / "tasks", "0")

    def leave(self) -> None:
        """Move the calling thread back to where it was."""
        if self.version == 1:
            with contextlib.ExitStack() as all_of_them:
                for parent in self.parents:
                    all_of_them.callback(_write, parent / "tasks", "0")

    def adopt(self, pid: int) -> None:
        """Move a process in that has no children yet, unless it was born inside. Raises OSError."""
        if self.version == 2:
            for directory in self.directories:
                _write(directory / "cgroup.procs", str(pid))

    def remove(self) -> None:
        """Take the group away; its processes are dead by now."""
        for directory in self.directories:
            _remove(directory)


def find() -> Place | None:
    """Where this process may make groups that bound memory and processes, or None. Only looks."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    return _find_unified(mounts) or _find_v1(mounts)


def _own_groups() -> list[str]:
    return Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()


def _find_unified(mounts: Sequence[Sequence[str]]) -> Place | None:
    """Version 2: our own group, or the nearest one above it, that hands memory and pids to its children."""
    relative = next((line[3:] for line in _own_groups() if line.startswith("0::")), None)
    root = next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)
    if relative is None or root is None:
        return None
    own = root / relative.lstrip("/")
    for parent in (own, *own.parents):
        if not parent.is_relative_to(root):
            break
        with contextlib.suppress(OSError):
            handed = (parent / "cgroup.subtree_control").read_text(encoding="ascii").split()
            if {"memory", "pids"} <= set(handed) and _may_make(parent):
                return Place(2, {name: parent for name in ("memory", "pids", "cpu") if name in handed})
    return None


def _find_v1(mounts: Sequence[Sequence[str]]) -> Place | None:
    """Version 1: our own group of each controller."""
    fields = [line.split(":", 2) for line in _own_groups()]
    own = {controller: path for _, names, path in fields for controller in names.split(",")}
    parents = {}
    for words in mounts:
        for controller in {"memory", "pids", "cpu"} & set(words[3].split(",")) if words[2] == "cgroup" else ():
            parent = Path(words[1]) / own.get(controller, "/").lstrip("/")
            if _may_make(parent):
                parents[controller] = parent
    return Place(1, dict(sorted(parents.items()))) if {"memory", "pids"} <= set(parents) else None


def _may_make(parent: Path) -> bool:
    """True when we may make groups here and move processes into them."""
    return os.access(parent, os.W_OK) and os.access(parent / "cgroup.procs", os.W_OK)


def _set(directory: Path, files: Mapping[str, str]) -> None:
    """Write the limits of one controller; kernels without accounting of swap lack the second file."""
    for number, (name, value) in enumerate(files.items()):
        try:
            _write(directory / name, value)
        except OSError:
            if number == 0:
                raise


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)


def _remove(directory: Path) -> None:
    """rmdir, with a short patience for a last process that was reaped but is still being taken down."""
    until = time.monotonic() + REMOVE_S
    while True:
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > until:
                return
            time.sleep(0.001)


def sweep(parents: Sequence[str], prefix: str) -> None:
    """Take away the empty groups that a killed owner left: those below `parents` whose name starts with `prefix`."""
    for parent in map(Path, parents):
        for directory in parent.glob(f"{prefix}*") if parent.is_relative_to("/sys/fs/cgroup") else ():
            with contextlib.suppress(OSError):
                directory.rmdir()
