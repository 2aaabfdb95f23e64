"""Lends an open sandbox to another process of this host, over a Unix socket in a private directory.

Harbor's agents need a newer Python than the trainer may run under, so they live in a process of their own. `lend`
serves one sandbox, `BorrowedSandbox` is its other end: a line of JSON each way. Boundary: run and read only; opening,
stopping and verifying stay with the owner. No `harbor` here: both processes import it.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from t1.errors import SandboxError, SandboxVanished
from t1.types import CommandResult

MAX_LINE_BYTES = 1 << 30
ANSWER_MARGIN_S = 60.0
"""How much longer than a command's own bound its answer may take: its output travels too."""


class RunsAndReads(Protocol):
    """The part of `protocols.Sandbox` that is lent."""

    async def run(self, command: str, *, timeout_s: float, max_output_bytes: int = 65536) -> CommandResult: ...

    async def read(self, path: str, *, max_bytes: int) -> bytes | None: ...


@asynccontextmanager
async def lend(sandbox: RunsAndReads, socket: Path) -> AsyncIterator[None]:
    """Serve `sandbox` at `socket`, whose directory must be the owner's alone, until the block ends."""
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await _answer(sandbox, json.loads(line))).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass  # the borrower, or the lender, is done
        finally:
            serving.discard(task)
            writer.close()

    server = await asyncio.start_unix_server(serve, path=socket, limit=MAX_LINE_BYTES)
    try:
        yield
    finally:
        server.close()
        for task in list(serving):
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await asyncio.to_thread(socket.unlink, missing_ok=True)


async def _answer(sandbox: RunsAndReads, request: dict[str, Any]) -> dict[str, Any]:
    """The result of one call, or which error it was."""
    try:
        if request["call"] == "run":
            ended = await sandbox.run(
                request["command"], timeout_s=request["timeout_s"], max_output_bytes=request["max_bytes"]
            )
            return {"result": asdict(ended)}
        content = await sandbox.read(request["path"], max_bytes=request["max_bytes"])
    except SandboxError as error:
        return {"error": str(error), "vanished": isinstance(error, SandboxVanished)}
    return {"content": None if content is None else base64.b64encode(content).decode()}


class BorrowedSandbox:
    """The far end of `lend`. Closing it closes the connection; the sandbox is its owner's."""

    def __init__(self, socket: Path) -> None:
        self.id = socket.name
        self._socket = socket
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._busy = asyncio.Lock()

    async def run(self, command: str, *, timeout_s: float, max_output_bytes: int = 65536) -> CommandResult:
        """See `protocols.Sandbox.run`."""
        request = {"call": "run", "command": command, "timeout_s": timeout_s, "max_bytes": max_output_bytes}
        return CommandResult(**(await self._ask(request, timeout_s + ANSWER_MARGIN_S))["result"])

    async def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """See `protocols.Sandbox.read`."""
        answer = await self._ask({"call": "read", "path": path, "max_bytes": max_bytes}, ANSWER_MARGIN_S)
        return None if answer["content"] is None else base64.b64decode(answer["content"])

    async def aclose(self) -> None:
        """Close the connection. Safe to call twice."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()
            with suppress(ConnectionError):
                await streams[1].wait_closed()

    async def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """One call and its answer. One that was cut short leaves a connection that nobody can trust: it is closed."""
        async with self._busy:
            try:
                async with asyncio.timeout(timeout_s):
                    if self._streams is None:
                        self._streams = await asyncio.open_unix_connection(self._socket, limit=MAX_LINE_BYTES)
                    reader, writer = self._streams
                    writer.write(json.dumps(request).encode() + b"\n")
                    await writer.drain()
                    line = await reader.readline()
            except BaseException as error:
                await self.aclose()
                if isinstance(error, (OSError, TimeoutError)):
                    raise SandboxVanished(f"the owner of sandbox {self.id} does not answer: {error!r}") from error
                raise
        if not line:
            raise SandboxVanished(f"the owner of sandbox {self.id} closed the connection")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise (SandboxVanished if answer["vanished"] else SandboxError)(answer["error"])
        return answer
