"""One machine that a keeper holds, as a sandbox: a long-lived shell over `exec`, and the agent's files by archive.

Boundary: everything goes through the keeper's calls. What a machine says about itself is believed only where an agent
that lies would harm itself: its verdict comes from a machine that it never touched.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import stat
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from t1.errors import SandboxError, SandboxTimeout, SandboxUnavailable, SandboxVanished
from t1.sandboxes.endings import FLOODED
from t1.sandboxes.harbor import called_shell
from t1.sandboxes.harbor.called_shell import Frame
from t1.sandboxes.harbor.keeper import Keeper
from t1.sandboxes.harbor.keeping import STOP_S
from t1.sandboxes.harbor.leaving import Mark, listing, mark, pack, read_listing, read_mark, unpack
from t1.sandboxes.leases import remove
from t1.sandboxes.output import BoundedOutput
from t1.sandboxes.places import read_file
from t1.sandboxes.processes import pid_namespace
from t1.sandboxes.untar import lay_out
from t1.types import CommandResult, FileChanges, Task

EXEC_S = 60.0
"""Bound of the provider's own part of a call."""
TRAVEL_S = 600.0
"""Bound of one archive's way."""
INLINE_BYTES = 128 << 10
"""A larger file travels as a file, not in what a command prints."""


class KeptSandbox:
    """One command at a time; everything may be cancelled, and `close` cleans up after that too."""

    def __init__(
        self,
        keeper: Keeper,
        session: str,
        task: Task,
        *,
        user: str | None = None,
        closed: Callable[[KeptSandbox], None],
    ) -> None:
        """`user`: whom its commands run as; None = whom the image says."""
        self.id = session
        self._keeper = keeper
        self._user = user
        self._workdir = task.environment.workdir or ""
        self._max_carried_bytes = task.environment.storage_mb << 20
        self._home = keeper.home / session
        """The sandbox's directory on this host."""
        self._closed = closed
        self._since = 0
        self._mark: Mark | None = None
        self._directory = ""
        self._shell_lives = False
        self._changes: FileChanges | None = None
        self._stopped = False
        self._gone = False
        self._busy = asyncio.Lock()

    async def prepare(self) -> None:
        """The first words to a new machine. Raises SandboxUnavailable for one that shares this host's processes."""
        frame = await self._framed(f"{called_shell.prepare(self._workdir or None)}; {mark()}", EXEC_S)
        process, _, moment = frame.output.decode("utf-8", "surrogateescape").partition("\n")
        words = process.split()
        if len(words) != 3 or not words[0].isdigit():
            raise SandboxError(f"sandbox {self.id}: bash, coreutils or /proc are missing: {process[-300:]}")
        boot = await asyncio.to_thread(Path("/proc/sys/kernel/random/boot_id").read_text)
        if words[1] == boot.strip() and words[2] == f"pid:[{pid_namespace(os.getpid())}]":
            raise SandboxUnavailable("this environment shares the processes of this host: stopping it would kill them")
        self._since, self._mark = int(words[0]), read_mark(moment)

    async def begin(self) -> None:
        """Start the shell; what changes from here on is the agent's doing."""
        await self._start_shell()

    async def carry(self, changes: FileChanges) -> None:
        """Put an agent's files in place of the image's."""
        archive, target = self._home / "carried.tar", f"{called_shell.PLACE}/carried.tar"
        await asyncio.to_thread(_pack, changes, archive)
        try:
            await self.upload(archive, target)
        finally:
            await asyncio.to_thread(archive.unlink)
        unpacked = await self._framed(unpack(tuple(changes.places), target), TRAVEL_S)
        if unpacked.status != 0:
            raise SandboxError(f"sandbox {self.id}: files cannot be carried over: {unpacked.output.decode()[-300:]}")

    async def run(self, command: str, *, timeout_s: float, max_output_bytes: int = 65536) -> CommandResult:
        """See `protocols.Sandbox.run`. A shell that a command took with it is started anew over the same files."""
        output = BoundedOutput(max_output_bytes)
        async with self._busy:
            started = time.monotonic()
            self._check_open()
            fresh = not self._shell_lives
            if fresh:
                await self._start_shell()
            self._shell_lives = False  # until we know better: this may be cancelled
            frame = await self._command(command, timeout_s, max_output_bytes)
            if frame.ending == "lost":
                fresh = True
                await self._start_shell()
                frame = await self._command(command, timeout_s, max_output_bytes)
            if frame.shell_lives:
                self._shell_lives, self._directory = True, frame.directory
            else:
                await self._start_shell()
        output.add(frame.output)
        output.total = max(frame.total, output.total)
        text, cut = output.text()
        return CommandResult(
            output=text + (FLOODED if frame.ending == "flood" else ""),
            exit_code=frame.status if frame.ending in ("status", "gone") and frame.status >= 0 else None,
            duration_s=time.monotonic() - started,
            timed_out=frame.ending == "time",
            cut_bytes=cut,
            shell_restarted=fresh or not frame.shell_lives,
        )

    def _check_open(self) -> None:
        if self._stopped:
            raise SandboxVanished(f"sandbox {self.id} was stopped")

    async def _start_shell(self) -> None:
        word = secrets.token_hex(8)
        script = called_shell.start(
            word, since=self._since, directory=self._directory or self._workdir, timeout_s=EXEC_S / 2
        )
        try:
            printed = await self._exec(script, EXEC_S, user=self._user)
        except SandboxError as error:
            raise SandboxVanished(f"sandbox {self.id}: its shell cannot be started: {error}") from error
        if (frame := called_shell.parse(printed, word)) is None:
            said = printed.strip()[-300:] or "it said nothing"
            raise SandboxVanished(f"sandbox {self.id}: its shell cannot be started: {said}")
        self._shell_lives, self._directory = True, frame.directory

    async def _command(self, command: str, timeout_s: float, max_bytes: int) -> Frame:
        """Hand it over and wait. A call that ends without an answer is followed by one that only waits."""
        word, text = secrets.token_hex(8), command.replace("\0", "")
        given: str | None = text
        if len(text) > called_shell.MAX_INLINE_CHARS:
            await self._send(text.encode("utf-8", "surrogateescape"), called_shell.big(word))
            given = None
        problem = ""
        for script in (
            called_shell.submit(word, given, timeout_s=timeout_s, max_bytes=max_bytes),
            called_shell.collect(word, timeout_s=timeout_s, max_bytes=max_bytes),
        ):
            try:
                printed = await self._exec(script, timeout_s + EXEC_S, user=self._user)
            except SandboxVanished:
                raise
            except SandboxError as error:
                problem = str(error)
                continue
            if (frame := called_shell.parse(printed, word)) is not None:
                return frame
            problem = printed.strip()[-300:]
        raise SandboxVanished(f"sandbox {self.id} does not answer as a shell any more: {problem or 'no output'}")

    async def _exec(self, script: str, timeout_s: float, *, user: str | None, cwd: str | None = None) -> str:
        """What a script printed, whatever its status. Without a `cwd`, it stands where the image says."""
        ended = await self._keeper.call(
            "exec", session=self.id, command=script, cwd=cwd, user=user, timeout_s=timeout_s, bound_s=timeout_s
        )
        return str(ended["output"]) or str(ended["complaint"])

    async def _framed(self, script: str, timeout_s: float) -> Frame:
        """Run a script as root, beside the shell; its bytes come back whole. Raises SandboxError."""
        word = secrets.token_hex(8)
        printed = await self._exec(called_shell.framed(word, script), timeout_s, user="root", cwd="/")
        frame = called_shell.parse(printed, word)
        if frame is None:
            raise SandboxError(f"sandbox {self.id}: a command ended without an answer: {printed.strip()[-300:]}")
        return frame

    async def _send(self, content: bytes, target: str) -> None:
        """Put a file into the machine that its user can read."""
        source = self._home / f"to-{secrets.token_hex(4)}"
        await asyncio.to_thread(source.write_bytes, content)
        try:
            await self.upload(source, target)
            await self._framed(f"chmod 644 {target}", EXEC_S)
        finally:
            await asyncio.to_thread(source.unlink)

    async def upload(self, source: Path, target: str) -> None:
        """A file, or a directory's content."""
        await self._keeper.call(
            "upload", session=self.id, source=str(source), target=target, timeout_s=TRAVEL_S, bound_s=TRAVEL_S
        )

    async def _fetch(self, source: str, name: str, max_bytes: int) -> Path:
        """A file of the machine, on this host: a regular one, not larger than that."""
        target = self._home / name
        await self._keeper.call(
            "download", session=self.id, source=source, target=str(target), max_bytes=max_bytes,
            timeout_s=TRAVEL_S, bound_s=TRAVEL_S,
        )  # fmt: skip
        found = target.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > max_bytes:
            raise SandboxError(f"{source}: what came is no file of at most {max_bytes} bytes")
        return target

    async def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """See `protocols.Sandbox.read`: links are resolved in the machine. After `stop`, of /logs only."""
        if self._changes is not None:
            return await asyncio.to_thread(read_file, {"/logs": self._changes.root / "logs"}, path, max_bytes)
        word = secrets.token_hex(8)
        script = called_shell.read(word, path, min(max_bytes, INLINE_BYTES))
        frame = called_shell.parse(await self._exec(script, EXEC_S, user="root", cwd="/"), word)
        if frame is None:
            raise SandboxError(f"sandbox {self.id}: {path} cannot be read")
        if frame.ending == "none":
            return None
        if frame.total > max_bytes:
            raise SandboxError(f"{path}: larger than {max_bytes} bytes")
        return frame.output if frame.total <= INLINE_BYTES else await self._read_large(path, max_bytes)

    async def _read_large(self, path: str, max_bytes: int) -> bytes:
        name = f"from-{secrets.token_hex(4)}"
        copy = f"{called_shell.PLACE}/{name}"
        await self._framed(f"cat {shlex.quote(path)} >{copy}", EXEC_S)
        fetched = await self._fetch(copy, name, max_bytes)
        await self._framed(f"rm -f {copy}", EXEC_S)
        content = await asyncio.to_thread(fetched.read_bytes)
        await asyncio.to_thread(fetched.unlink)
        return content

    async def stop(self) -> FileChanges:
        """See `protocols.Sandbox.stop`: the machine is gone when this returns, its files lie on the host."""
        self._stopped = True
        async with self._busy:
            if self._changes is None:
                changes = await self._leave()
                await self._end()
                self._changes = changes
        return self._changes

    async def _leave(self) -> FileChanges:
        """Kill, list, pack, fetch, lay out."""
        word = secrets.token_hex(8)
        killed = called_shell.parse(
            await self._exec(called_shell.quiet(word, self._since), EXEC_S, user="root", cwd="/"), word
        )
        if killed is None or killed.status != 0:
            raise SandboxTimeout(f"sandbox {self.id}: its processes cannot be killed")
        lines = killed.output.decode("utf-8", "replace").splitlines()
        outlived = tuple(words for line in lines if (words := line.partition(" ")[2].strip()))[:32]
        assert self._mark is not None
        listed = (await self._framed(listing(self._mark), TRAVEL_S)).output
        left = read_listing(self._mark, listed.decode("utf-8", "surrogateescape"))
        archive = f"{called_shell.PLACE}/left.tar"
        packed = await self._framed(pack(left.places, archive), TRAVEL_S)
        if packed.status != 0:
            raise SandboxError(f"sandbox {self.id}: its files cannot be packed: {packed.output.decode()[-300:]}")
        fetched = await self._fetch(archive, "left.tar", self._max_carried_bytes)
        root = self._home / "changes"
        await asyncio.to_thread(_unpack, fetched, root, left.places)
        places = {place: place[1:] for place in left.places}
        return FileChanges(root, places, left.uncarried, outlived, left.blind)

    async def _end(self) -> None:
        """The provider stops the machine; its own files stay until `close`."""
        if not self._gone:
            await self._keeper.call("close", session=self.id, bound_s=STOP_S)
            self._gone = True

    async def close(self) -> None:
        """See `protocols.Sandbox.close`."""
        self._stopped = True
        try:
            await self._end()
        except SandboxVanished:
            self._gone = True  # a keeper that is gone has stopped it, or its record tells the sweeper
        await asyncio.to_thread(remove, self._home)
        self._closed(self)


def _pack(changes: FileChanges, archive: Path) -> None:
    """A tar of the places. Who is not root here has lost the owners, and says root."""

    def as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
        return member.replace(uid=0, gid=0, uname="", gname="", deep=False)

    with tarfile.open(archive, "w") as packed:
        for place, subtree in changes.places.items():
            packed.add(changes.root / subtree, place[1:], filter=None if os.geteuid() == 0 else as_root)


def _unpack(archive: Path, root: Path, places: Sequence[str]) -> None:
    """Lay out what a hostile machine packed; a place that is no directory any more becomes an empty one."""
    root.mkdir(mode=0o700)
    try:
        with archive.open("rb") as file:
            lay_out(file, root, owners=os.geteuid() == 0)
    except (tarfile.TarError, OSError, ValueError) as error:
        raise SandboxError(f"what the agent left cannot be carried: {error}") from error
    finally:
        archive.unlink()
    for place in places:
        target = root / place[1:]
        if target.is_symlink() or not target.is_dir():
            target.unlink(missing_ok=True)
            target.mkdir()
