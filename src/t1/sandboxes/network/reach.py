"""Host addresses that a sandbox without a network can reach: 127.0.0.1:port inside → host:port outside.

The listening socket stands in the sandbox's network namespace and belongs to us, so nothing runs inside and nothing
there can take it away; our event loop relays, with bounded buffers. Boundary: bytes pass as they are; what an address
answers, and to whom, is its own affair.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from functools import partial

from t1.errors import SandboxError
from t1.sandboxes.network.netns import listen

Address = tuple[str, int]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
MAX_CONNECTIONS = 64
"""Of one sandbox at a time; further ones are refused."""
BUFFER_BYTES = 1 << 16
CONNECT_S = 10.0


class Reach:
    """The relays of one sandbox. They end with `close`, at the latest with the sandbox."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._relays: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, pid: int, addresses: Mapping[int, Address]) -> Reach:
        """Listen in the network namespace of `pid` on every port of `addresses`. Raises SandboxError."""
        try:
            listeners = listen(pid, list(addresses))
        except (OSError, OverflowError) as error:
            raise SandboxError(f"ports {', '.join(map(str, addresses))} inside a sandbox: {error}") from error
        reach = cls()
        try:
            for listener, address in zip(listeners, addresses.values(), strict=True):
                await reach._serve(listener, address)
        except BaseException:
            reach.close()
            for listener in listeners:
                listener.close()
            raise
        return reach

    async def _serve(self, listener: socket.socket, address: Address) -> None:
        server = await asyncio.start_server(partial(self._accept, address), sock=listener, limit=BUFFER_BYTES)
        self._servers.append(server)

    def _accept(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection from inside."""
        if len(self._relays) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(_connect(address, reader, writer))
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)

    def close(self) -> None:
        """Stop listening and cut every connection."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for task in self._relays:
            task.cancel()


async def _connect(address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Relay one connection to the address; cut it where nobody answers."""
    try:
        async with asyncio.timeout(CONNECT_S):
            far = await asyncio.open_connection(*address, limit=BUFFER_BYTES)
    except (OSError, TimeoutError):
        writer.transport.abort()
        return
    except BaseException:
        writer.transport.abort()
        raise
    await relay((reader, writer), far)


async def relay(near: Stream, far: Stream) -> None:
    """Copy both ways until both sides have said everything; one that breaks takes the other with it."""
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_copy(near[0], far[1]))
            both.create_task(_copy(far[0], near[1]))
    except* OSError:
        pass
    finally:
        for _, writer in (near, far):
            writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one way; a chunk has left before the next is read, so that none is lost at the end."""
    writer.transport.set_write_buffer_limits(high=0)
    while chunk := await reader.read(BUFFER_BYTES):
        writer.write(chunk)
        await writer.drain()
    await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
