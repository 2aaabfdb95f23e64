"""A client that is closed under its calls: they end at once, and no socket is left to the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from t1.errors import EngineUnavailable
from t1.inference.wire import Wire


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The address of a server that accepts everything and answers nothing."""
    writers = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for writer in writers:
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()


# Real seconds: what has to be met is a moment of the connecting, which belongs to the operating system.
@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.005, 0.02])
async def test_closing_ends_calls_at_whatever_point_they_are(silent: str, after_s: float) -> None:
    wire = Wire(silent)
    calls = [asyncio.create_task(wire.get("/version", timeout_s=30)) for _ in range(6)]
    await asyncio.sleep(after_s)
    async with asyncio.timeout(10):
        await wire.aclose()
        for ended in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(ended, EngineUnavailable)
    await wire.aclose()
    gc.collect()  # a socket that was left is a warning here, and warnings are errors


async def test_a_caller_that_is_cancelled_is_cancelled_and_not_told_of_a_dead_engine(silent: str) -> None:
    wire = Wire(silent)
    call = asyncio.create_task(wire.get("/version", timeout_s=30))
    await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await wire.aclose()
