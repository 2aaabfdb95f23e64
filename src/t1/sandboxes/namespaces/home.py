"""Where the sandboxes of one provider live on the host: a leased directory, a shared /etc, copies of the tasks' tests.

Boundary: directories, uids and images; this module starts nothing but the probe of the host.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
from dataclasses import replace
from pathlib import Path

from t1.errors import SandboxError, SandboxUnavailable
from t1.sandboxes import cgroups
from t1.sandboxes.cgroups import Group, GroupLimits
from t1.sandboxes.dockerfile import Image, read_image
from t1.sandboxes.leases import default_root, lease, remove, sweep
from t1.sandboxes.namespaces import seccomp
from t1.sandboxes.namespaces.confinement import Confinement, make_etc, probe, uids
from t1.sandboxes.namespaces.nursery import Nursery
from t1.sandboxes.namespaces.oci import is_image, unpack_image
from t1.types import Task

TESTS_PLACE = "/tests"
"""Can be written in an agent's sandbox where the task is verified in place; never carried."""


class Home:
    """Made on first use. `path` and `way` are there once `prepare` was called."""

    def __init__(
        self,
        root: Path | None,
        way: Confinement | None,
        places: tuple[str, ...] = (),
        label: str = "",
        rootfs: Path | None = None,
    ) -> None:
        self._root = (root or default_root()).absolute()
        self._way = way
        self._places = places
        self._label = label
        self._image = rootfs
        self.rootfs: Path | None = None
        """The directory that stands in for the host's userland, once `prepare` was called."""
        self._groups: cgroups.Place | None = None
        self._nursery: Nursery | None = None
        self._uids = uids()
        self._numbers = itertools.count()
        self._path: Path | None = None
        self._images: dict[str, Image] = {}

    @property
    def path(self) -> Path:
        """The leased directory."""
        assert self._path is not None, "prepare() comes first"
        return self._path

    @property
    def way(self) -> Confinement:
        """How sandboxes are confined."""
        assert self._way is not None, "prepare() comes first"
        return self._way

    def prepare(self) -> None:
        """Probe the host and make the directory, once. Raises SandboxUnavailable with the fix."""
        if self._path is not None:
            return
        if self._way is None:
            found = probe()
            if found.confinement is None:
                raise SandboxUnavailable(f"{found.problem}. To fix it: {found.fix}")
            self._way = found.confinement
        sweep(self._root)
        self._groups = cgroups.find()
        parents = () if self._groups is None else tuple(self._groups.parents.values())
        path = lease(self._root, label=self._label, groups=map(str, parents))
        if self._groups is not None and not self._groups.works(f"{path.name}-probe"):
            self._groups = None
        try:
            if self.owned:
                check_passable(path)
            self.rootfs = self._unpacked(path)
            make_etc(path / "etc")
            reached = parents if self.owned else None
            self._nursery = Nursery(self._write_filter(path / "filter.bpf"), reached=reached)
        except BaseException:
            remove(path)
            raise
        self._path = path

    def _unpacked(self, path: Path) -> Path | None:
        """The root file system as a directory that sandboxes can enter."""
        if self._image is None:
            return None
        rootfs = self._image.absolute()
        if is_image(rootfs):
            rootfs = unpack_image(rootfs, path / "rootfs")
        if not (rootfs / "bin").exists():
            raise SandboxUnavailable(
                f"{rootfs} is no root file system: it has no bin. To fix it: name a directory or image"
            )
        if self.owned:
            check_passable(rootfs / "bin")
        return rootfs

    def _write_filter(self, path: Path) -> Path | None:
        """The seccomp program, where this machine's is known. Without cgroups nothing would count SysV memory."""
        filtering = seccomp.program(shared_memory=self._groups is not None)
        if filtering is None:
            return None
        path.write_bytes(filtering)
        return path

    def remove(self) -> None:
        """Take everything off the disk; `prepare` may make it anew."""
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None
        if self._path is not None:
            path, self._path = self._path, None
            remove(path)

    @property
    def nursery(self) -> Nursery:
        """What starts the sandboxes' processes."""
        assert self._nursery is not None, "prepare() comes first"
        return self._nursery

    def group(self, name: str, limits: GroupLimits) -> Group | None:
        """A control group for one sandbox; None where this host has no place for it. Raises SandboxError."""
        if self._groups is None:
            return None
        try:
            return self._groups.make(f"{self.path.name}-{name}", limits)
        except OSError as error:
            raise SandboxError(f"control group of a sandbox: {error}") from error

    @property
    def owned(self) -> bool:
        """True when each sandbox has a uid of its own."""
        return self._way is not Confinement.USER

    def uid(self) -> int:
        """The uid of a new sandbox."""
        return next(self._uids) if self.owned else os.geteuid()

    def next(self) -> tuple[str, Path]:
        """Name and directory of a new sandbox."""
        name = f"s{next(self._numbers)}"
        return f"{self.path.name.rpartition('-')[2]}-{name}", self.path / name

    def image(self, task: Task) -> Image:
        """The task's image, read once."""
        key = f"{task.digest} {task.environment.path}"
        if key not in self._images:
            image = read_image(task.environment)
            beside = (TESTS_PLACE,) if task.metadata.get("in_place") else ()
            self._images[key] = replace(image, places=tuple(dict.fromkeys([*image.places, *self._places, *beside])))
        return self._images[key]

    def tests(self, task: Task) -> Path:
        """A readable copy of the task's tests/, made once."""
        path = self.path / "tests" / hashlib.sha256(f"{task.digest} {task.verifier.path}".encode()).hexdigest()
        if not path.is_dir():
            shutil.copytree(task.verifier.path, path, symlinks=True)
            for entry in (path.parent, path, *path.rglob("*")):
                if not entry.is_symlink():
                    entry.chmod(0o755 if entry.is_dir() else 0o644 | entry.stat().st_mode & 0o111)
        return path


def check_passable(path: Path) -> None:
    """The sandboxes' uids must be able to come as far as `path`."""
    closed = [parent for parent in path.parents if not parent.stat().st_mode & 0o001]
    if closed:
        raise SandboxUnavailable(
            f"{closed[-1]} cannot be entered by other uids, so sandboxes cannot use {path}. "
            f"To fix it: choose another directory for them, or chmod o+x {closed[-1]}"
        )
