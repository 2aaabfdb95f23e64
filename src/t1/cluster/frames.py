"""Python values over a stream between processes of one user: an eight-byte length, then a pickle.

Boundary: only for sockets in a directory that nobody else can enter; a pickle of somebody else's is never read.
"""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

MAX_BYTES = 1 << 38
"""A longer frame is noise on the line."""


async def read_frame(reader: asyncio.StreamReader) -> Any:
    """The next value; EOFError where the other side is gone."""
    try:
        size = int.from_bytes(await reader.readexactly(8), "big")
        if size > MAX_BYTES:
            raise EOFError(f"a frame of {size} bytes: the stream is broken")
        return pickle.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise EOFError("the other side hung up") from error


class FrameWriter:
    """Writes whole frames, also where several tasks write."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer, self._turn = writer, asyncio.Lock()

    async def write(self, value: Any) -> None:
        """Send a value; ConnectionError where the other side is gone."""
        body = pickle.dumps(value, protocol=5)
        async with self._turn:
            self._writer.write(len(body).to_bytes(8, "big"))
            self._writer.write(body)
            await self._writer.drain()

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return
