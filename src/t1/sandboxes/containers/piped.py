"""One long-lived bash at the other end of a program's pipes: what `namespaces.shell` does over a socket.

Commands go in over stdin; output and status come back over stdout, told apart by a word that is drawn anew for every
command. Boundary: processes and bytes; this module never learns of containers or files.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from t1.errors import SandboxError, SandboxTimeout
from t1.sandboxes.endings import COME_BACK_S, FLOOD_BYTES, KILL_S, READ_BYTES, Ending
from t1.sandboxes.output import BoundedOutput

# As in `namespaces.shell`: fd 250 is the output, so that a command's own `exec >file` ends with it.
LOOP = r"""
cd -- "$1" 2>/dev/null || { mkdir -p -- "$2" 2>/dev/null; cd -- "$2" 2>/dev/null; } || cd /
echo 1000 2>/dev/null >/proc/self/oom_score_adj
exec 250>&1 >/dev/null 2>&1
printf '\0ready\0000\0%s\0' "$PWD" >&250
set --
while IFS= builtin read -r _t1; do
  _t1_word=${_t1#* }
  LC_ALL=C IFS= builtin read -r -N "${_t1%% *}" _t1
  builtin eval "$_t1" </dev/null >&250 2>&1 250>&-
  builtin printf '\0%s\0%d\0%s\0' "$_t1_word" "$?" "$PWD" >&250
done
"""


class PipedShell:
    """A running shell. `start` opens it; once it is not `alive`, only `close` is left."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._pending = b""
        self.alive = False
        self.directory = ""
        """Where the shell stood after its last command."""

    @classmethod
    async def start(cls, words: Sequence[str], *, folder: Path, timeout_s: float) -> PipedShell:
        """Run a program, in `folder`, that connects us to a bash which runs LOOP. Raises SandboxError."""
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            process_group=0,
            limit=READ_BYTES,
            cwd=folder,
        )
        shell = cls(process)
        try:
            async with asyncio.timeout(timeout_s):
                if not await shell._read_until(b"ready", BoundedOutput(READ_BYTES)):
                    raise SandboxError(f"a sandbox did not open: {await shell._complaint()}")
        except TimeoutError as error:
            await shell.close()
            raise SandboxTimeout(f"a sandbox did not open within {timeout_s:g} s") from error
        except BaseException:
            await shell.close()
            raise
        shell.alive = True
        return shell

    async def _complaint(self) -> str:
        assert self._process.stderr is not None
        text = (await self._process.stderr.read(READ_BYTES)).decode("utf-8", "replace")
        return text.strip()[-500:] or "it ended without a word"

    async def run(
        self, command: str, output: BoundedOutput, *, timeout_s: float, interrupt: Callable[[float], None]
    ) -> tuple[Ending, int | None]:
        """Evaluate a command: how it ended, and its status. `interrupt(since)` kills what started at `since` (seconds
        since boot) or later; a shell that then stays silent is not alive any more.
        """
        since = time.clock_gettime(time.CLOCK_BOOTTIME)
        word = secrets.token_hex(8).encode()
        text = command.replace("\0", "").encode("utf-8", "surrogateescape")
        ending: Ending | None = None
        try:
            reading = asyncio.ensure_future(self._exchange(b"%d %s\n%s" % (len(text), word, text), word, output))
            try:
                done, _ = await asyncio.wait([reading], timeout=timeout_s)
                if not done or reading.result() is Ending.FLOOD:
                    ending = Ending.FLOOD if done else Ending.TIME
                    await self._come_back(reading, word, output, lambda: interrupt(since))
                    return ending, None
                answer = reading.result()
            finally:
                if not reading.done():
                    reading.cancel()
                    await asyncio.wait([reading])
        except BaseException:
            self.alive = False
            raise
        if isinstance(answer, int):
            return Ending.STATUS, answer
        self.alive = False
        return Ending.SHELL, None

    async def _exchange(self, request: bytes, word: bytes, output: BoundedOutput) -> int | Ending:
        """Send, and read up to the status."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(request)
            await self._process.stdin.drain()
        return await self._answer(word, output, FLOOD_BYTES)

    async def _answer(self, word: bytes, output: BoundedOutput, flood_bytes: int | None) -> int | Ending:
        status = await self._read_until(word, output, flood_bytes)
        return Ending.SHELL if status == b"" else Ending.FLOOD if status is None else int(status)

    async def _come_back(
        self, reading: asyncio.Future[int | Ending], word: bytes, output: BoundedOutput, kill: Callable[[], None]
    ) -> None:
        """Kill what runs until the shell answers; give it up when it does not."""
        if reading.done():
            reading = asyncio.ensure_future(self._answer(word, output, None))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 2 * COME_BACK_S
        while not reading.done() and loop.time() < deadline:
            kill()
            await asyncio.wait([reading], timeout=0.03)
        if not reading.done():
            reading.cancel()
            await asyncio.wait([reading])
        self.alive = not reading.cancelled() and isinstance(reading.result(), int)

    async def _read_until(self, word: bytes, output: BoundedOutput, flood_bytes: int | None = None) -> bytes | None:
        """Move the stream into `output` up to `\\0word\\0status\\0directory\\0`; the status, b"" when the stream ends,
        None above `flood_bytes`.
        """
        assert self._process.stdout is not None
        mark, started = b"\0" + word + b"\0", output.total
        while True:
            before, found, after = self._pending.partition(mark)
            if found and after.count(b"\0") >= 2:
                output.add(before)
                status, directory, self._pending = after.split(b"\0", 2)
                self.directory = os.fsdecode(directory)
                return status
            if not found and (keep := len(mark) - 1) < len(self._pending):
                output.add(self._pending[:-keep])
                self._pending = self._pending[-keep:]
            if flood_bytes is not None and output.total - started > flood_bytes:
                return None
            chunk = await self._process.stdout.read(READ_BYTES)
            if not chunk:
                output.add(self._pending)
                self._pending = b""
                return b""
            self._pending += chunk

    async def ended(self) -> int | None:
        """Wait for the program's own end, and its exit code; None when it does not end within the bound."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_S):
                return await self._process.wait()
        return None

    async def close(self) -> None:
        """End the program; what it connected to ends with its own container."""
        self.alive = False
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()
