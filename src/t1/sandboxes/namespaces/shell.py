"""One long-lived bash in its own namespaces: commands in, endings out.

The shell is process 1 of its pid namespace, so nothing that it started outlives it. Its standard input is a socket:
commands come in over it, exit status and directory go back over it; commands themselves see /dev/null there. Their
stdout and stderr share one pipe. Boundary: processes and descriptors; this module never learns of tasks or files.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import resource
import signal
import socket
import struct
import subprocess
import termios
import time
from dataclasses import dataclass

from t1.errors import SandboxError, SandboxTimeout
from t1.sandboxes.cgroups import Group
from t1.sandboxes.endings import COME_BACK_S, FLOOD_BYTES, KILL_S, READ_BYTES, Ending
from t1.sandboxes.namespaces.nursery import Confine, Nursery
from t1.sandboxes.namespaces.quota import Quota, Watch
from t1.sandboxes.output import BoundedOutput
from t1.sandboxes.processes import descendants, kill_descendants, pid_namespace

_CREDENTIALS = struct.Struct("3i")
"""struct ucred: pid, uid, gid."""

# The loop that bash runs. The command is evaluated with fd 250 (the output pipe) as stdout and stderr, so that a
# command's own `exec >file` ends with it; bash keeps what a redirection hides in close-on-exec descriptors.
_LOOP = r"""
cd -- "$1" 2>/dev/null || cd "$2" 2>/dev/null || cd /
echo 1000 >/proc/self/oom_score_adj
exec 250>&1 >/dev/null 2>&1
printf 'ready\0%s\0' "$PWD" >&0
set --
while IFS= builtin read -r _t1; do
  LC_ALL=C IFS= builtin read -r -N "$_t1" _t1
  builtin eval "$_t1" </dev/null >&250 2>&1 250>&-
  builtin printf '%d\0%s\0' "$?" "$PWD" >&0
done
"""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What bounds every process of a sandbox; memory counts what a process may write to, not what it reserves."""

    memory_mb: int = 2048
    file_mb: int = 1024
    num_processes: int = 256
    open_files: int = 1024

    def script(self) -> str:
        """Shell lines that set the limits; without privileges they cannot be raised again."""
        memory, file = self.memory_mb * 1024, self.file_mb * 1024
        limits = f"-c 0 -n {self.open_files} -u {self.num_processes} -f {file} -d {memory} -v {8 * memory}"
        return f"ulimit {limits} || exit 125\n"


class Shell:
    """A running shell. `start` opens it; once it is not `alive`, only `close` is left."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, pipe: int) -> None:
        self._process = process
        self._control = control
        self._pipe = pipe
        self._exited = os.pidfd_open(process.pid)
        self._init: int | None = None
        self.init_pid = 0
        """The shell itself, process 1 of its namespaces, as the host numbers it."""
        self._namespace = 0
        self._answer = bytearray()
        self._unsent = memoryview(b"")
        self._output = BoundedOutput(2)
        self._ending: asyncio.Future[Ending] | None = None
        self._gone = asyncio.Event()
        self._closed = False
        self.alive = False
        """The shell can take a command."""
        self.directory = ""
        """Where the shell stood after its last command."""

    @classmethod
    async def start(
        cls,
        confine: Confine,
        nursery: Nursery,
        group: Group | None,
        *,
        directories: tuple[str, str],
        limits: ProcessLimits,
        timeout_s: float,
    ) -> Shell:
        """Start bash, confined, in `group`; it stands in the first of `directories` that it can enter."""
        program = ["/bin/bash", "--norc", "--noprofile", "-c", limits.script() + _LOOP, "bash", *directories]
        ours, theirs, read_end, write_end = _channels()
        try:
            process = nursery.start(confine, program, group, stdin=theirs.fileno(), stdout=write_end)
        except BaseException as error:
            ours.close()
            os.close(read_end)
            if isinstance(error, OSError):
                raise SandboxError(f"a sandbox could not be started: {error}") from error
            raise
        finally:
            theirs.close()
            os.close(write_end)
        shell = cls(process, ours, read_end)
        try:
            await shell._ready(timeout_s)
            if group is not None:
                group.adopt(shell.init_pid)
        except BaseException as error:
            shell.kill_now()
            await shell.close()
            if isinstance(error, OSError):
                raise SandboxError(f"a sandbox could not be put into its control group: {error}") from error
            raise
        return shell

    async def _ready(self, timeout_s: float) -> None:
        """Wait for the shell's first word; the kernel says who sent it, in our own pid namespace."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._control.fileno(), _settle, arrived)
        try:
            async with asyncio.timeout(timeout_s):
                await arrived
        except TimeoutError as error:
            raise SandboxTimeout(f"a sandbox did not open within {timeout_s:g} s") from error
        finally:
            loop.remove_reader(self._control.fileno())
        answer, ancillary = b"", list[tuple[int, int, bytes]]()
        with contextlib.suppress(ConnectionError):
            answer, ancillary, _, _ = self._control.recvmsg(READ_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
        if not answer.startswith(b"ready\0"):
            raise SandboxError(f"a sandbox did not open: {self._complaint()}")
        self.directory = os.fsdecode(answer.split(b"\0")[1])
        self.init_pid = _CREDENTIALS.unpack(ancillary[0][2])[0]
        self._init = os.pidfd_open(self.init_pid)
        self._namespace = pid_namespace(self.init_pid)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        self.alive = True
        loop.add_reader(self._control.fileno(), self._on_control)

    def _complaint(self) -> str:
        """What bubblewrap printed before it gave up."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self._pipe, READ_BYTES).decode("utf-8", "replace").strip() or "it ended without a word"
        return "it closed its control channel"

    async def run(
        self, command: str, output: BoundedOutput, *, timeout_s: float, quota: Quota
    ) -> tuple[Ending, int | None]:
        """Evaluate a command; how it ended, and its status. NUL bytes are dropped, as bash drops them from a script."""
        loop = asyncio.get_running_loop()
        since = time.clock_gettime(time.CLOCK_BOOTTIME)
        future = self._ending = loop.create_future()
        self._output = output
        loop.add_reader(self._pipe, self._on_output)
        timer = loop.call_later(timeout_s, self._end, Ending.TIME)
        watch = Watch(quota, lambda: self._end(Ending.QUOTA))
        try:
            self._send(command)
            ending = await future
            timer.cancel()
            watch.cancel()
            if ending is Ending.STATUS:
                return ending, self._take_answer()
            if ending is Ending.SHELL:
                return ending, self._last_status()
            await self._interrupt(since if ending is Ending.TIME else 0.0)
            return ending, None
        except BaseException:
            self.kill_now()
            raise
        finally:
            timer.cancel()
            watch.cancel()
            self._ending = None
            loop.remove_reader(self._pipe)
            self._drain()

    def _send(self, command: str) -> None:
        """Hand the command to the shell; what does not fit into the socket follows as it empties."""
        text = command.replace("\0", "").encode("utf-8", "surrogateescape")
        self._unsent = memoryview(b"%d\n%s" % (len(text), text))
        self._on_writable()
        if self._unsent:
            asyncio.get_running_loop().add_writer(self._control.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        try:
            self._unsent = self._unsent[self._control.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            return
        except ConnectionError:  # the reader sees the end
            self._unsent = memoryview(b"")
        if not self._unsent:
            asyncio.get_running_loop().remove_writer(self._control.fileno())

    def _end(self, ending: Ending) -> None:
        """The first ending counts."""
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(ending)

    def _on_control(self) -> None:
        """A status, or the end of the shell: then its program may still run (`exec`), until the namespace dies."""
        try:
            chunk = self._control.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except ConnectionError:
            chunk = b""
        if not chunk:
            self.alive = False
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._control.fileno())
            if not self._gone.is_set():
                loop.add_reader(self._exited, self._on_exit)
            return
        self._answer += chunk
        if self._answered():
            self._end(Ending.STATUS)

    def _on_exit(self) -> None:
        """Bubblewrap has ended, so the namespace is empty."""
        asyncio.get_running_loop().remove_reader(self._exited)
        self._gone.set()
        self._end(Ending.SHELL)

    def _answered(self) -> bool:
        return self._answer.count(b"\0") >= 2

    def _take_answer(self) -> int:
        """The status that has arrived; the directory is kept."""
        status, directory, _ = self._answer.split(b"\0", 2)
        self._answer.clear()
        self.directory = os.fsdecode(bytes(directory))
        return int(status)

    def _last_status(self) -> int:
        """The status that the shell itself ended with, in the shell's own terms."""
        status = self._process.wait()
        return status if status >= 0 else 128 - status

    def _on_output(self) -> None:
        """Take what the command printed."""
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(self._pipe, READ_BYTES)
            if not chunk:
                asyncio.get_running_loop().remove_reader(self._pipe)
            before = self._output.total
            self._output.add(chunk)
            if before <= FLOOD_BYTES < self._output.total:
                self._end(Ending.FLOOD)

    def _drain(self) -> None:
        """Take what is in the pipe by now, and no more: a background process may go on writing."""
        waiting = array.array("i", [0])
        fcntl.ioctl(self._pipe, termios.FIONREAD, waiting)
        left = waiting[0]
        while left > 0 and (chunk := os.read(self._pipe, left)):
            self._output.add(chunk)
            left -= len(chunk)

    async def _interrupt(self, since: float) -> None:
        """Kill what was started after `since`; a shell that then stays silent is killed with everything else."""
        loop = asyncio.get_running_loop()
        future = self._ending = loop.create_future()
        if self._answered():
            future.set_result(Ending.STATUS)
        deadline = loop.time() + COME_BACK_S
        while not future.done() and loop.time() < deadline:
            self.kill_descendants(since)
            await asyncio.wait([future], timeout=0.02)
        if future.done() and future.result() is Ending.STATUS:
            self._take_answer()
        else:
            self.kill_now()

    def kill_descendants(self, since_s: float = 0.0) -> None:
        """Kill what the shell started at `since_s` (seconds since boot) or later."""
        kill_descendants(self.init_pid, self._namespace, since_s)

    async def quiet(self) -> None:
        """Kill everything but the shell itself, and confirm. Raises SandboxTimeout."""
        until = time.monotonic() + KILL_S
        while any(True for _ in descendants(self.init_pid)):
            self.kill_descendants()
            if time.monotonic() > until:
                raise SandboxTimeout(f"processes of a sandbox were not dead after {KILL_S:g} s")
            await asyncio.sleep(0.002)

    def limit_files(self, max_bytes: int) -> bool:
        """How large a file may grow that the shell's later commands write; False where only a new shell can have it.

        At 0 nothing can be written any more, and everything can still be read and removed.
        """
        try:
            resource.prlimit(self.init_pid, resource.RLIMIT_FSIZE, (max_bytes, max_bytes))
        except (OSError, ValueError):
            return False
        return True

    def kill_now(self) -> None:
        """Send the kill that ends the whole namespace; `close` confirms it."""
        self.alive = False
        if self._closed:
            return
        with contextlib.suppress(ProcessLookupError):
            if self._init is None:
                # Between its birth and its prctl the namespace's init does not yet die with bubblewrap, and would wait
                # for it for ever; until then it is in bubblewrap's process group.
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(self._init, signal.SIGKILL)

    async def close(self) -> None:
        """Kill, wait until bubblewrap has reaped the namespace's init (every process is dead then), let go."""
        if self._closed:
            return
        self.kill_now()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._control.fileno())
        loop.add_reader(self._exited, self._on_exit)
        try:
            async with asyncio.timeout(KILL_S):
                await self._gone.wait()
        except TimeoutError as error:
            self._process.kill()
            raise SandboxTimeout(f"a sandbox was not dead after {KILL_S:g} s") from error
        if self._closed:
            return
        self._closed = True
        self._process.wait()
        loop.remove_reader(self._exited)
        loop.remove_writer(self._control.fileno())
        self._control.close()
        for descriptor in (self._pipe, self._exited, self._init):
            if descriptor is not None:
                os.close(descriptor)


def _channels() -> tuple[socket.socket, socket.socket, int, int]:
    """Both ends of the socket that is a shell's stdin (ours first), and of its output pipe (the read end first)."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read_end, False)
    return ours, theirs, read_end, write_end


def _settle(future: asyncio.Future[None]) -> None:
    """A reader's callback: what was waited for is there."""
    if not future.done():
        future.set_result(None)
