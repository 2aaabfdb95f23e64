"""One container as a sandbox: its first process is the shell, and what the agent left is copied out once it is dead.

Boundary: everything goes through the engine's command line; how a container is made is the provider's affair.
"""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import subprocess
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from t1.errors import SandboxError, SandboxTimeout, SandboxVanished
from t1.sandboxes.carry import changed_outside, changed_places, left_behind, unpack, without
from t1.sandboxes.containers.engine import CALL_S, ContainerEngine
from t1.sandboxes.containers.piped import PipedShell
from t1.sandboxes.endings import FLOODED, Ending
from t1.sandboxes.leases import remove
from t1.sandboxes.network.reach import Address, Reach
from t1.sandboxes.output import BoundedOutput
from t1.sandboxes.places import MAX_LINKS, read_file
from t1.sandboxes.processes import command_lines, kill_descendants, pid_namespace
from t1.types import CommandResult, FileChanges

COPY_S = 300.0


class ContainerSandbox:
    """One container. One command at a time; everything may be cancelled, and `close` cleans up after that too."""

    def __init__(
        self,
        name: str,
        engine: ContainerEngine,
        creation: Sequence[str],
        directory: Path,
        mounted: Mapping[str, Path],
        *,
        changed: Sequence[str],
        readable: Sequence[str],
        reach: Mapping[int, Address],
        open_timeout_s: float,
        closed: Callable[[ContainerSandbox], None],
    ) -> None:
        self.id = name
        self.directory = directory
        """What it has on the host."""
        self._engine = engine
        self._creation = creation
        self._mounted = mounted
        self._changed = changed
        self._readable = readable
        self._addresses = reach
        self._reach: Reach | None = None
        self._open_timeout_s = open_timeout_s
        self._closed = closed
        self._shell: PipedShell | None = None
        self._pid = 0
        self._changes: FileChanges | None = None
        self._stopped = False
        self._outlived: tuple[str, ...] = ()
        self._removed = False
        self._busy = asyncio.Lock()

    async def start(self) -> PipedShell:
        """Create the container, or start it again, with our pipes at its shell."""
        first = self._shell is None
        words = self._creation if first else ("start", "--attach", "--interactive", self.id)
        # In a directory of its own: the engine's monitor drops a file named oom where it was started.
        self._shell = await PipedShell.start(
            self._engine.words(*words), folder=self.directory, timeout_s=self._open_timeout_s
        )
        inspected = await self._engine.must("container", "inspect", "--format", "{{.State.Pid}}", self.id)
        self._pid = int(inspected.text)
        self._unreach()
        if self._addresses:
            self._reach = await Reach.open(self._pid, self._addresses)
        return self._shell

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
            ending, status = await shell.run(command, output, timeout_s=timeout_s, interrupt=self._interrupt)
            if not shell.alive and ending is Ending.SHELL:
                status = await self._exit_code(shell)
            restarted = not shell.alive
            if restarted:
                await self._live_shell()
            text, cut = output.text()
            return CommandResult(
                output=text + (FLOODED if ending is Ending.FLOOD else ""),
                exit_code=status,
                duration_s=time.monotonic() - started,
                timed_out=ending is Ending.TIME,
                cut_bytes=cut,
                shell_restarted=restarted or fresh,
            )

    async def _exit_code(self, shell: PipedShell) -> int | None:
        """What the shell ended with."""
        await shell.ended()
        ended = await self._engine.call("container", "inspect", "--format", "{{.State.ExitCode}}", self.id)
        return int(ended.text) if ended.code == 0 else None

    def _interrupt(self, since_s: float) -> None:
        """Kill what a command started. Where /proc does not let us, the whole container is started anew."""
        with contextlib.suppress(OSError):
            kill_descendants(self._pid, pid_namespace(self._pid), since_s)

    async def _live_shell(self) -> tuple[PipedShell, bool]:
        """The shell, and whether it had to be started anew."""
        if self._stopped:
            raise SandboxVanished(f"sandbox {self.id} was stopped")
        if self._shell is not None and self._shell.alive:
            return self._shell, False
        try:
            await self._kill()
            return await self.start(), True
        except SandboxError as error:
            raise SandboxVanished(f"sandbox {self.id}: its container cannot be started again: {error}") from error

    async def _kill(self) -> None:
        """Kill every process, and confirm. Raises SandboxError."""
        if self._shell is None:
            return
        await self._engine.call("kill", self.id)
        await self._shell.close()
        until = time.monotonic() + CALL_S
        while True:
            ended = await self._engine.call("container", "inspect", "--format", "{{.State.Running}}", self.id)
            if ended.code != 0:
                raise SandboxVanished(f"sandbox {self.id}: its container is gone: {ended.complaint}")
            if ended.text == "false":
                return
            if time.monotonic() > until:
                raise SandboxTimeout(f"sandbox {self.id}: not dead after {CALL_S:g} s")
            await asyncio.sleep(0.05)

    async def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """See `protocols.Sandbox.read`: links are resolved inside the container only."""
        top = "/" + path.lstrip("/").partition("/")[0]
        if top in self._mounted:
            return read_file(self._mounted, path, max_bytes)
        for _ in range(MAX_LINKS):
            words = self._engine.words("cp", f"{self.id}:{path}", "-")
            found = await asyncio.to_thread(_copy_out, words, path, max_bytes)
            if not isinstance(found, str):
                return found
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), found))
        return None

    async def stop(self) -> FileChanges:
        """See `protocols.Sandbox.stop`: the container is dead, the places that changed lie on the host."""
        if not self._stopped and self._shell is not None and self._shell.alive:
            self._outlived = command_lines(self._pid)
        self._stopped = True
        self._unreach()
        if self._shell is not None and self._changes is None:
            self._shell.alive = False
            await self._engine.call("kill", self.id)
        async with self._busy:
            if self._changes is None:
                self._changes = await self._export()
        return self._changes

    async def changed(self) -> list[str]:
        """The top-level directories that differ from the task's image, of those that may be carried."""
        return sorted({*changed_places(await self._diff()), *self._changed})

    async def _diff(self) -> str:
        """What differs from the task's image, as the engine prints it: lines of kind and path."""
        found = await self._engine.must("diff", self.id, timeout_s=COPY_S)
        return without(found.text, self._readable)

    async def _export(self) -> FileChanges:
        await self._kill()
        root = self.directory / "changes"
        root.mkdir(mode=0o700)
        places: dict[str, str] = {}
        uncarried: tuple[str, ...] = ()
        if self._shell is not None:
            diff = await self._diff()
            uncarried = changed_outside(diff)
            for place in sorted({*changed_places(diff), *self._changed}):
                words = self._engine.words("cp", f"{self.id}:{place}", "-")
                if await asyncio.to_thread(_copy_tree, words, root / place[1:]):
                    places[place] = place[1:]
            uncarried += left_behind(diff, root, places)
        return FileChanges(root, places, uncarried, self._outlived)

    async def close(self) -> None:
        """See `protocols.Sandbox.close`."""
        self._stopped = True
        self._unreach()
        if self._removed:
            return
        if self._shell is not None:
            self._shell.alive = False
        removing = await self._engine.remove(self.id)
        async with self._busy:
            if self._shell is not None:
                await self._shell.close()
        if removing.code != 0 and "no such container" not in removing.complaint.lower():
            raise SandboxError(f"sandbox {self.id}: cannot be removed: {removing.complaint}")
        self._removed = True
        await asyncio.to_thread(remove, self.directory)
        self._closed(self)


def _copy_out(words: list[str], path: str, max_bytes: int) -> bytes | str | None:
    """The bytes of a container's file, the target of a link, or None; nothing beyond the bound is read."""
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as copy:
        assert copy.stdout is not None
        try:
            with tarfile.open(fileobj=copy.stdout, mode="r|") as archive:
                member = archive.next()
                if member is not None and member.issym():
                    return member.linkname
                if member is None or not member.isreg():
                    return None
                if member.size > max_bytes:
                    raise SandboxError(f"{path}: larger than {max_bytes} bytes")
                file = archive.extractfile(member)
                return None if file is None else file.read()
        except tarfile.ReadError:
            return None  # no such file: the engine wrote nothing
        finally:
            copy.kill()


def _copy_tree(words: list[str], target: Path) -> bool:
    """A directory of a container to `target`; False where it is no directory (any more)."""
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as copy:
        assert copy.stdout is not None
        try:
            unpack(copy.stdout, target.parent)
        except tarfile.ReadError:
            pass  # nothing came: it was removed
        except (tarfile.TarError, OSError, ValueError) as error:
            raise SandboxError(f"{target.name}: what the agent left cannot be carried: {error}") from error
        finally:
            copy.kill()
    if not target.exists():
        target.mkdir()
    return target.is_dir() and not target.is_symlink()
