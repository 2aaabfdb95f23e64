"""Our half of the link to a keeper: a process under another Python that owns machines and answers for them.

Boundary: starts and ends that process, matches answers to calls, turns its complaints into our errors. What the calls
mean, `keeping` says, and `sandbox` makes sandboxes of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from t1.errors import SandboxError, SandboxTimeout, SandboxUnavailable, SandboxVanished
from t1.sandboxes.harbor.keeping import LEFT_BEHIND, MAX_LINE_BYTES, STOP_S

MARGIN_S = 30.0
"""How much longer than its own bound the answer to a call may take."""
MAX_COMPLAINT_BYTES = 4000


class BuildError(SandboxError):
    """The image does not build. The provider makes a TaskError of it, which names the path."""


class Keeper:
    """A running keeper. `start` opens it; once it is not `alive`, only `close` is left."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.home = Path()
        """The keeper's directory: files that travel lie there."""
        self.alive = False

    @classmethod
    async def start(cls, words: Sequence[str], *, timeout_s: float) -> Keeper:
        """Run a keeper; the link's descriptor becomes its last argument. Raises SandboxUnavailable, why in words."""
        ours, theirs = socket.socketpair()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the keeper)
        try:
            process = await asyncio.create_subprocess_exec(
                *words, str(theirs.fileno()), pass_fds=(theirs.fileno(),), start_new_session=True,
                stdin=asyncio.subprocess.DEVNULL, stdout=errors, stderr=errors, env=_environment(words[0]),
            )  # fmt: skip
        except BaseException as error:
            ours.close()
            errors.close()
            if isinstance(error, OSError):
                raise SandboxUnavailable(f"{words[0]}: a keeper cannot be started: {error}") from error
            raise
        finally:
            theirs.close()
        keeper = cls(process, errors)
        try:
            await keeper._greet(ours, timeout_s)
        except BaseException:
            await keeper.close()
            raise
        return keeper

    async def _greet(self, link: socket.socket, timeout_s: float) -> None:
        reader, self._writer = await asyncio.open_connection(sock=link, limit=MAX_LINE_BYTES)
        try:
            async with asyncio.timeout(timeout_s):
                line = await reader.readline()
                if not line:
                    await self._process.wait()
        except TimeoutError as error:
            raise SandboxUnavailable(f"the keeper of sandboxes was not ready within {timeout_s:g} s") from error
        if not line:
            raise SandboxUnavailable(f"the keeper of sandboxes did not start: {self._complaint()}")
        self.home = Path(json.loads(line)["ready"])
        self.alive = True
        self._reading = asyncio.create_task(self._read(reader))

    def _complaint(self) -> str:
        """The last lines that the keeper printed."""
        end = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, end - MAX_COMPLAINT_BYTES))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return " | ".join(lines[-3:]) or "it said nothing"

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Hand every answer to its call. At the end of the link, whatever was asked has vanished."""
        with contextlib.suppress(ConnectionError, ValueError):
            while line := await reader.readline():
                answer = json.loads(line)
                waiting = self._waiting.pop(answer["id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        self.alive = False
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def call(self, verb: str, *, bound_s: float, **arguments: Any) -> Any:
        """One call. A wait that ends early tells the keeper to give it up.

        Raises SandboxVanished where the keeper is gone, SandboxTimeout, SandboxUnavailable for what the provider never
        does, BuildError, and SandboxError with the provider's own words.
        """
        if not self.alive or self._writer is None:
            raise SandboxVanished("the keeper of this sandbox is gone")
        number, waiting = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        try:
            async with asyncio.timeout(bound_s + MARGIN_S):
                self._writer.write(json.dumps({"id": number, "call": verb, **arguments}).encode() + b"\n")
                await self._writer.drain()
                answer = await waiting
        except (ConnectionError, TimeoutError) as error:
            self._cancel(number)
            if isinstance(error, TimeoutError):
                raise SandboxTimeout(f"{verb}: the keeper did not answer within {bound_s + MARGIN_S:g} s") from error
            raise SandboxVanished(f"the keeper of this sandbox is gone: {error}") from error
        except asyncio.CancelledError:
            self._cancel(number)
            raise
        if answer is None:
            raise SandboxVanished(f"the keeper of this sandbox is gone: {self._complaint()}")
        if "error" in answer:
            raise _error(answer["kind"], verb, answer["error"])
        return answer["result"]

    def _cancel(self, number: int) -> None:
        self._waiting.pop(number, None)
        if self.alive and self._writer is not None:
            self._writer.write(json.dumps({"cancel": number}).encode() + b"\n")

    async def close(self) -> None:
        """End the link, and wait until the keeper has stopped everything. Raises SandboxError where it has not."""
        self.alive = False
        if self._writer is not None:
            self._writer.close()
        try:
            async with asyncio.timeout(STOP_S + MARGIN_S):
                status = await self._process.wait()
        except TimeoutError as error:
            raise SandboxTimeout(f"the keeper of sandboxes did not end within {STOP_S + MARGIN_S:g} s") from error
        finally:
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                await self._process.wait()
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.wait([self._reading])
            complaint = "" if self._errors.closed else self._complaint()
            self._errors.close()
        if status == LEFT_BEHIND:
            raise SandboxError(f"sandboxes may be left at the provider: {complaint}. Try t1 sandboxes sweep")


def _environment(python: str) -> dict[str, str]:
    """Ours, for providers' credentials; programs that were installed beside that Python are found."""
    return os.environ | {"PATH": f"{Path(python).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def _error(kind: str, verb: str, message: str) -> SandboxError:
    plain = {"build": BuildError, "refused": SandboxUnavailable}
    if kind in plain:
        return plain[kind](message)
    return (SandboxTimeout if kind == "timeout" else SandboxError)(f"{verb}: {message}")
