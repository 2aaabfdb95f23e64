"""Sandboxes from Linux namespaces through bubblewrap: the default provider, no daemon, no image, no root needed.

A sandbox is a directory on the host (its places) and a shell confined to it. Boundary: this module never learns of
policies, models or rewards; what it opens it closes, and what a killed owner left, the next one sweeps.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from t1.errors import SandboxError, SandboxUnavailable, SandboxVanished, TaskError
from t1.sandboxes.confinement import Confinement, Mounts, SandboxProbe, command_line, make_etc, probe, uids
from t1.sandboxes.dockerfile import Image, read_image
from t1.sandboxes.leases import default_root, lease, remove, sweep
from t1.sandboxes.output import BoundedOutput
from t1.sandboxes.places import make_places, read_file, used_bytes
from t1.sandboxes.shell import Ending, ProcessLimits, Shell
from t1.types import CommandResult, FileChanges, Task

VERIFIER_PLACE = "/logs"
"""Never handed from the agent to the verifier."""
MAX_COUNTED_ENTRIES = 20_000
RESERVE_BYTES = 512 << 20
"""Free space below which commands are stopped, whoever filled the disk."""


class NamespaceSandbox:
    """One sandbox. One command at a time; everything may be cancelled, and `close` cleans up after that too."""

    def __init__(
        self,
        name: str,
        directory: Path,
        places: Mapping[str, Path],
        workdir: str,
        *,
        confine: Callable[[Sequence[str]], list[str]],
        limits: ProcessLimits,
        storage_bytes: int,
        open_timeout_s: float,
        uncarried: frozenset[str],
        closed: Callable[[NamespaceSandbox], None],
    ) -> None:
        self.id = name
        self.directory = directory
        """Where its places lie on the host."""
        self._places = places
        self._workdir = workdir
        self._confine = confine
        self._limits = limits
        self._storage_bytes = storage_bytes
        self._open_timeout_s = open_timeout_s
        self._uncarried = uncarried
        self._closed = closed
        self._shell: Shell | None = None
        self._last_directory = workdir
        self._stopped = False
        self._busy = asyncio.Lock()

    async def start(self) -> Shell:
        """Start a shell over the places, in the last known directory."""
        self._shell = await Shell.start(
            self._confine,
            directories=(self._last_directory, self._workdir),
            limits=self._limits,
            timeout_s=self._open_timeout_s,
        )
        return self._shell

    async def run(self, command: str, *, timeout_s: float, max_output_bytes: int = 65536) -> CommandResult:
        """See `protocols.Sandbox.run`. A shell that a command took with it is started anew over the same files."""
        async with self._busy:
            started = time.monotonic()
            shell, fresh = await self._live_shell()
            output = BoundedOutput(max_output_bytes)
            ending, status = await shell.run(
                command, output, timeout_s=timeout_s, over_quota=lambda: over_quota(self._places, self._storage_bytes)
            )
            self._last_directory = shell.directory
            restarted = not shell.alive
            if restarted:
                await self._live_shell()
            text, cut = output.text()
            return CommandResult(
                output=text + _NOTES.get(ending, ""),
                exit_code=status,
                duration_s=time.monotonic() - started,
                timed_out=ending is Ending.TIME,
                cut_bytes=cut,
                shell_restarted=restarted or fresh,
            )

    async def _live_shell(self) -> tuple[Shell, bool]:
        """The shell, and whether it had to be started anew."""
        if self._stopped:
            raise SandboxVanished(f"sandbox {self.id} was stopped")
        if self._shell is not None and self._shell.alive:
            return self._shell, False
        try:
            if self._shell is not None:
                await self._shell.close()
            return await self.start(), True
        except SandboxError as error:
            raise SandboxVanished(f"sandbox {self.id}: its shell could not be started again: {error}") from error

    async def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """See `protocols.Sandbox.read`: files in the writable places; links are resolved inside the sandbox only."""
        return read_file(self._places, path, max_bytes)

    async def stop(self) -> FileChanges:
        """See `protocols.Sandbox.stop`. When this returns, every process of the sandbox is dead."""
        self._stopped = True
        if self._shell is not None:
            self._shell.kill_now()
        async with self._busy:  # a command under way ends at once now
            if self._shell is not None:
                await self._shell.close()
        carried = {place: place[1:] for place in self._places if place not in self._uncarried}
        return FileChanges(root=self.directory, places=carried)

    async def close(self) -> None:
        """See `protocols.Sandbox.close`."""
        await self.stop()
        await asyncio.to_thread(remove, self.directory)
        self._closed(self)


_NOTES = {
    Ending.FLOOD: "\n[killed: too much output]",
    Ending.QUOTA: "\n[killed: no space left on the device]",
}


def over_quota(places: Mapping[str, Path], storage_bytes: int) -> bool:
    """True when the places hold more than they may, or the host's disk runs out."""
    free = shutil.disk_usage(next(iter(places.values()))).free
    return free < RESERVE_BYTES or used_bytes(places.values(), MAX_COUNTED_ENTRIES) > storage_bytes


class NamespaceProvider:
    """Opens namespace sandboxes under `root` (default: the temporary directory). There is never a network in them.

    Open them from a thread that lives as long as they do: the kernel kills them with the thread that started them.
    Raises SandboxUnavailable, with what to change, where this host cannot confine a shell.
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        confinement: Confinement | None = None,
        num_processes: int = 256,
        file_mb: int = 1024,
        open_timeout_s: float = 30.0,
        places: Sequence[str] = (),
    ) -> None:
        """`places`: further top-level directories that can be written and are never carried to the verifier."""
        self._root = (root or default_root()).absolute()
        self._way = confinement
        self._num_processes = num_processes
        self._file_mb = file_mb
        self._open_timeout_s = open_timeout_s
        self._extra_places = tuple(places)
        self._uids = uids()
        self._numbers = itertools.count()
        self._home: Path | None = None
        self._images: dict[str, Image] = {}
        self._open: set[NamespaceSandbox] = set()

    async def open(self, task: Task) -> NamespaceSandbox:
        """See `protocols.SandboxProvider.open`."""
        home, image = self._prepare(), self._image(task)
        name, directory = self._next(home)
        uid = self._uid()
        places = make_places(directory, image, uid if self._owned() else None)
        sandbox = await self._start(task, name, directory, places, image, uid, tests=None)
        try:
            for step in image.runs:
                command = f"cd {shlex.quote(step.workdir)} && bash -c {shlex.quote(step.command)}"
                ended = await sandbox.run(f"({command})", timeout_s=task.environment.build_timeout_s)
                if ended.exit_code != 0:
                    reason = "ran out of time" if ended.timed_out else f"exit code {ended.exit_code}"
                    raise TaskError(image.source, f"{reason}: {ended.output.strip()[-500:]}", step.where)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def open_pristine(self, task: Task, changes: FileChanges) -> NamespaceSandbox:
        """See `protocols.SandboxProvider.open_pristine`: the agent's places are mounted, its shell is not carried."""
        home, image = self._prepare(), self._image(task)
        name, directory = self._next(home)
        carried = {place: changes.root / subtree for place, subtree in changes.places.items()}
        # The agent is dead; its uid is the one that can read all of its files.
        uid = next(iter(carried.values())).stat(follow_symlinks=False).st_uid if carried else self._uid()
        fresh = Image(places=tuple(dict.fromkeys(p for p in (*image.places, VERIFIER_PLACE) if p not in carried)))
        places = {**make_places(directory, fresh, uid if self._owned() else None), **carried}
        return await self._start(task, name, directory, places, image, uid, tests=self._tests(home, task))

    async def close(self) -> None:
        """See `protocols.SandboxProvider.close`; removes everything of this provider from the disk."""
        await asyncio.gather(*(sandbox.close() for sandbox in list(self._open)))
        if self._home is not None:
            home, self._home = self._home, None
            await asyncio.to_thread(remove, home)

    def probe(self) -> SandboxProbe:
        """What this host can do."""
        return probe()

    def _prepare(self) -> Path:
        """The provider's own directory; made, and the host probed, when the first sandbox is opened."""
        if self._home is None:
            if self._way is None:
                found = probe()
                if found.confinement is None:
                    raise SandboxUnavailable(f"{found.problem}. To fix it: {found.fix}")
                self._way = found.confinement
            sweep(self._root)
            home = lease(self._root)
            try:
                self._check_passable(home)
                make_etc(home / "etc")
            except BaseException:
                remove(home)
                raise
            self._home = home
        return self._home

    def _check_passable(self, home: Path) -> None:
        """The sandboxes' uids must be able to reach their places."""
        closed = [path for path in home.parents if not path.stat().st_mode & 0o001]
        if self._owned() and closed:
            raise SandboxUnavailable(
                f"{closed[-1]} cannot be entered by other uids, so sandboxes cannot live in {self._root}. "
                f"To fix it: choose another directory for them, or chmod o+x {closed[-1]}"
            )

    def _owned(self) -> bool:
        """True when each sandbox has a uid of its own."""
        return self._way is not Confinement.USER

    def _uid(self) -> int:
        return next(self._uids) if self._owned() else os.geteuid()

    def _next(self, home: Path) -> tuple[str, Path]:
        name = f"s{next(self._numbers)}"
        return f"{home.name.rpartition('-')[2]}-{name}", home / name

    def _image(self, task: Task) -> Image:
        """The task's image, read once."""
        key = f"{task.digest} {task.environment.path}"
        if key not in self._images:
            image = read_image(task.environment)
            self._images[key] = replace(image, places=tuple(dict.fromkeys([*image.places, *self._extra_places])))
        return self._images[key]

    def _tests(self, home: Path, task: Task) -> Path:
        """A readable copy of the task's tests/, made once."""
        path = home / "tests" / hashlib.sha256(f"{task.digest} {task.verifier.path}".encode()).hexdigest()
        if not path.is_dir():
            shutil.copytree(task.verifier.path, path, symlinks=True)
            for entry in (path.parent, path, *path.rglob("*")):
                if not entry.is_symlink():
                    entry.chmod(0o755 if entry.is_dir() else 0o644 | entry.stat().st_mode & 0o111)
        return path

    async def _start(
        self,
        task: Task,
        name: str,
        directory: Path,
        places: Mapping[str, Path],
        image: Image,
        uid: int,
        *,
        tests: Path | None,
    ) -> NamespaceSandbox:
        """A started sandbox, known to this provider until it is closed."""
        assert self._way is not None
        assert self._home is not None
        mounts = Mounts(self._home / "etc", places, {} if tests is None else {"/tests": tests})
        sandbox = NamespaceSandbox(
            name,
            directory,
            places,
            image.workdir,
            confine=partial(command_line, self._way, uid, mounts, image.env),
            limits=ProcessLimits(task.environment.memory_mb, self._file_mb, self._num_processes),
            storage_bytes=task.environment.storage_mb << 20,
            open_timeout_s=self._open_timeout_s,
            uncarried=frozenset({VERIFIER_PLACE, *self._extra_places}),
            closed=self._open.discard,
        )
        self._open.add(sandbox)
        try:
            await sandbox.start()
        except BaseException:
            await sandbox.close()
            raise
        return sandbox
