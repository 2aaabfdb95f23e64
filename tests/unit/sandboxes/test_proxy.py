"""The allow-list: what is listed is reached, and nothing else, through a sandbox that has no network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from t1.sandboxes import Confinement, NamespaceProvider
from t1.sandboxes.network.proxy import AllowListProxy, AllowLists, variables
from t1.types import Task


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A web server that repeats its request's head."""
    head = b""
    while (line := await reader.readline()).strip():
        head += line
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + head + b"\r\n")
    await writer.drain()
    writer.close()


@pytest.fixture
async def site() -> AsyncIterator[int]:
    """The port of a web server on the loopback."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.fixture
async def address(site: int) -> AsyncIterator[tuple[str, int]]:
    """A proxy that may reach `localhost` at the site's port."""
    proxy = AllowListProxy(["localhost", "*.example.org"], ports=[site, 80], private=True)
    yield await proxy.open()
    proxy.close()


async def answer(address: tuple[str, int], request: str) -> str:
    """What the proxy says to a request."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request.encode())
    async with asyncio.timeout(10):
        told = (await reader.read()).decode()
    writer.close()
    return told


async def test_a_tunnel_to_a_listed_host_passes_bytes(address: tuple[str, int], site: int) -> None:
    told = await answer(address, f"CONNECT localhost:{site} HTTP/1.1\r\n\r\nGET /inner HTTP/1.1\r\n\r\n")
    assert told.startswith("HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK")
    assert "GET /inner" in told


async def test_a_plain_request_is_passed_on_for_one_host_only(address: tuple[str, int], site: int) -> None:
    told = await answer(
        address,
        f"GET http://localhost:{site}/a?b=c HTTP/1.1\r\nHost: elsewhere\r\nProxy-Connection: keep-alive\r\n\r\n",
    )
    assert told.endswith(f"GET /a?b=c HTTP/1.1\r\nHost: localhost:{site}\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("CONNECT 127.0.0.1:80 HTTP/1.1", "403"),
        ("CONNECT example.org:80 HTTP/1.1", "403"),
        ("CONNECT localhost:22 HTTP/1.1", "403"),
        ("CONNECT localhost HTTP/1.1", "400"),
        ("GET /relative HTTP/1.1", "400"),
        ("GET https://localhost/ HTTP/1.1", "400"),
        ("nonsense", "400"),
    ],
)
async def test_anything_else_is_refused_with_the_reason(
    address: tuple[str, int], request_line: str, status: str
) -> None:
    told = await answer(address, f"{request_line}\r\n\r\n")
    assert told.startswith(f"HTTP/1.1 {status} ")
    assert told.rstrip().splitlines()[-1]


async def test_a_listed_name_that_leads_to_a_private_address_is_refused(site: int) -> None:
    proxy = AllowListProxy(["localhost"], ports=[site])
    told = await answer(await proxy.open(), f"CONNECT localhost:{site} HTTP/1.1\r\n\r\n")
    proxy.close()
    assert told.startswith("HTTP/1.1 403 ")
    assert "no public address" in told


@pytest.mark.parametrize(
    ("host", "allowed"),
    [("example.org", False), ("a.example.org", True), ("a.b.Example.org.", True), ("badexample.org", False),
     ("localhost", True), ("localhost.evil.com", False)],
)  # fmt: skip
def test_a_star_stands_for_every_name_below(host: str, allowed: bool) -> None:
    assert AllowListProxy(["localhost", "*.example.org"]).allows(host) is allowed


async def test_a_sandbox_whose_task_lists_hosts_reaches_them_and_no_other(
    confined: Confinement, make_task: Callable[..., Task], site: int
) -> None:
    provider = NamespaceProvider(confinement=confined, allow_lists=AllowLists(ports=[site], private=True))
    try:
        task = make_task(allowed_hosts=("localhost",))
        sandbox = await provider.open(task)
        told = await sandbox.run("echo $http_proxy", timeout_s=10)
        assert told.output.strip() == variables()["http_proxy"]
        ask = (
            "exec 9<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT %s HTTP/1.1\\r\\n\\r\\n' {} >&9; head -n 1 <&9; exec 9>&-"
        )
        assert "200" in (await sandbox.run(ask.format(f"localhost:{site}"), timeout_s=10)).output
        assert "403" in (await sandbox.run(ask.format(f"other:{site}"), timeout_s=10)).output
        pristine = await provider.open_pristine(task, await sandbox.stop())
        assert "refused" in (await pristine.run(ask.format(f"localhost:{site}"), timeout_s=10)).output
        closed = replace(task, digest="f" * 64, environment=replace(task.environment, allowed_hosts=()))
        other = await provider.open(closed)
        assert "refused" in (await other.run(ask.format(f"localhost:{site}"), timeout_s=10)).output
    finally:
        await provider.close()
