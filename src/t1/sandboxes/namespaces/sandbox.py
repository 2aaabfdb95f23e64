"""One namespace sandbox: a directory on the host (its places), and a shell confined to it.

Boundary: commands and files of this one machine; who opens it, and what it begins with, is the provider's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from t1.errors import SandboxError, SandboxVanished
from t1.sandboxes.cgroups import Group
from t1.sandboxes.endings import FLOODED, Ending
from t1.sandboxes.leases import remove
from t1.sandboxes.namespaces.nursery import Confine, Nursery
from t1.sandboxes.namespaces.quota import Quota
from t1.sandboxes.namespaces.shell import ProcessLimits, Shell
from t1.sandboxes.network.reach import Address, Reach
from t1.sandboxes.output import BoundedOutput
from t1.sandboxes.places import read_file
from t1.sandboxes.processes import command_lines
from t1.sandboxes.snapshots import copy_places
from t1.types import CommandResult, FileChanges

_FULL = "\n[no space left on the device: nothing can be written until something was removed]"


class NamespaceSandbox:
    """One sandbox. One command at a time; everything may be cancelled, and `close` cleans up after that too."""

    def __init__(
        self,
        name: str,
        directory: Path,
        places: Mapping[str, Path],
        workdir: str,
        *,
        confine: Confine,
        nursery: Nursery,
        group: Group | None,
        limits: ProcessLimits,
        storage_bytes: int,
        open_timeout_s: float,
        uncarried: frozenset[str],
        reach: Mapping[int, Address],
        closed: Callable[[NamespaceSandbox], None],
    ) -> None:
        self.id = name
        self.directory = directory
        """Where its places lie on the host."""
        self._places = places
        self._workdir = workdir
        self._confine = confine
        self._nursery = nursery
        self._group = group
        self._limits = limits
        self._quota = Quota(tuple(places.values()), storage_bytes)
        self._open_timeout_s = open_timeout_s
        self._uncarried = uncarried
        self._addresses = reach
        self._reach: Reach | None = None
        self._closed = closed
        self._shell: Shell | None = None
        self._last_directory = workdir
        self._full = False
        self._stopped = False
        self._outlived: tuple[str, ...] = ()
        self._busy = asyncio.Lock()

    async def start(self) -> Shell:
        """Start a shell over the places, in the last known directory."""
        shell = await Shell.start(
            self._confine,
            self._nursery,
            self._group,
            directories=(self._last_directory, self._workdir),
            limits=replace(self._limits, file_mb=0) if self._full else self._limits,
            timeout_s=self._open_timeout_s,
        )
        self._shell = shell
        self._unreach()  # a shell that was started anew has a network namespace of its own
        if self._addresses:
            try:
                self._reach = await Reach.open(shell.init_pid, self._addresses)
            except BaseException:
                await shell.close()
                raise
        return shell

    @property
    def pid(self) -> int | None:
        """Its first process, as the host numbers it; None while there is none."""
        return self._shell.init_pid if self._shell is not None and self._shell.alive else None

    def _unreach(self) -> None:
        if self._reach is not None:
            self._reach.close()
            self._reach = None

    async def run(self, command: str, *, timeout_s: float, max_output_bytes: int = 65536) -> CommandResult:
        """See `protocols.Sandbox.run`. A shell that a command took with it is started anew over the same files."""
        async with self._busy:
            started = time.monotonic()
            shell, fresh = await self._live_shell()
            output = BoundedOutput(max_output_bytes)
            ending, status = await shell.run(command, output, timeout_s=timeout_s, quota=self._quota)
            self._last_directory = shell.directory
            full = await self._hold_to_quota(shell)
            restarted = not shell.alive
            if restarted:
                await self._live_shell()
            text, cut = output.text()
            return CommandResult(
                output=text + (_FULL if full else FLOODED if ending is Ending.FLOOD else ""),
                exit_code=status,
                duration_s=time.monotonic() - started,
                timed_out=ending is Ending.TIME,
                cut_bytes=cut,
                shell_restarted=restarted or fresh,
            )

    async def _hold_to_quota(self, shell: Shell) -> bool:
        """Above the quota nothing can be written until something was removed; True when it has just come to that."""
        was_full, self._full = self._full, await self._quota.look_if_due()
        if self._full and shell.alive:
            shell.kill_descendants()
        if self._full != was_full and shell.alive:
            max_bytes = 0 if self._full else self._limits.file_mb << 20
            if not shell.limit_files(max_bytes):
                shell.kill_now()
        return self._full and not was_full

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

    async def copy_to(self, target: Path) -> str:
        """Copy the files between two commands; the directory where the shell stands.

        Background processes are killed first: one could swap a directory for a link while the host walks the tree.
        """
        async with self._busy:
            await (await self._live_shell())[0].quiet()
            kept = {place: path for place, path in self._places.items() if place not in self._uncarried}
            await asyncio.to_thread(copy_places, kept, target)
            return self._last_directory

    async def stop(self) -> FileChanges:
        """See `protocols.Sandbox.stop`. When this returns, every process of the sandbox is dead."""
        if not self._stopped and self.pid is not None:
            self._outlived = command_lines(self.pid)
        self._stopped = True
        self._unreach()
        if self._shell is not None:
            self._shell.kill_now()
        async with self._busy:  # a command under way ends at once now
            if self._shell is not None:
                await self._shell.close()
        carried = {place: place[1:] for place in self._places if place not in self._uncarried}
        return FileChanges(root=self.directory, places=carried, outlived=self._outlived)

    async def close(self) -> None:
        """See `protocols.Sandbox.close`."""
        await self.stop()
        if self._group is not None:
            self._group.remove()
        await asyncio.to_thread(remove, self.directory)
        self._closed(self)
