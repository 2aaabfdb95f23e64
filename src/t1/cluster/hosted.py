"""The program of a local post: `python -m t1.cluster.hosted SOCKET`, with the recipe on the standard input.

It listens on the Unix socket once its object is made, and ends when its standard input does: a driver that dies, in
whatever way, takes its posts with it, and each closes what it holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import BinaryIO

from t1.cluster.frames import FrameWriter, read_frame
from t1.cluster.hosting import Host, Reply, failed

CLOSE_S = 90.0
"""After this the process ends, closed or not."""


async def serve(path: Path) -> None:
    """Make the object, say so on the standard output, answer until the standard input ends."""
    loop, said = asyncio.get_running_loop(), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is not for the driver
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin.buffer)
    recipe = await read_frame(orders)
    try:
        host = Host(await recipe())
    except BaseException as error:
        _say(said, failed(error))
        return
    connections: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_answer(host, reader, FrameWriter(writer)))
        connections.add(task)
        task.add_done_callback(connections.discard)

    server = await asyncio.start_unix_server(connected, path)
    _say(said, Reply())
    await orders.read()
    server.close()
    loop.call_later(CLOSE_S, os._exit, 1)
    await host.close()
    for task in connections:
        task.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


def _say(to: BinaryIO, reply: Reply) -> None:
    """One frame, and the last: ready, or why not."""
    body = pickle.dumps(reply)
    with to:
        to.write(len(body).to_bytes(8, "big") + body)


async def _answer(host: Host, reader: asyncio.StreamReader, writer: FrameWriter) -> None:
    """One caller: its calls run side by side, and end with it."""
    running: set[asyncio.Task[None]] = set()

    async def one(call: str, method: str, arguments: tuple[object, ...]) -> None:
        reply = await host.invoke(call, method, arguments)
        with contextlib.suppress(ConnectionError):
            await writer.write((call, reply))

    try:
        while True:
            kind, call, *rest = await read_frame(reader)
            work = one(call, *rest) if kind == "call" else host.cancel(call)
            task = asyncio.create_task(work)
            running.add(task)
            task.add_done_callback(running.discard)
    except EOFError:
        pass
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await writer.close()


def main() -> None:
    """An interrupt at the keyboard is the driver's to handle: it closes its posts in order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(serve(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
