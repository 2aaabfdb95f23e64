"""An allow-list in place of a network: an HTTP proxy on the host that connects to listed hosts only.

A sandbox reaches it through `reach` and has no other way out. It is a tunnel (CONNECT) or passes a plain request on;
names are resolved here, and an address that is not public is refused, whatever name leads to it. Boundary: hosts and
ports are judged, contents are not.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from t1.sandboxes.network.reach import BUFFER_BYTES, CONNECT_S, Address, relay
from t1.types import Environment

PORT = 3128
"""Where the proxy stands inside a sandbox."""
HEAD_S = 30.0
PORTS = (80, 443)
MAX_CONNECTIONS = 256


def variables(port: int = PORT) -> dict[str, str]:
    """The environment that makes programs use the proxy."""
    address = f"http://127.0.0.1:{port}"
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return {**dict.fromkeys(names, address), "no_proxy": "127.0.0.1,localhost", "NO_PROXY": "127.0.0.1,localhost"}


@dataclass(frozen=True, slots=True)
class Refused(Exception):
    """A request that is answered with a status and a line of text."""

    status: str
    reason: str


class AllowListProxy:
    """A proxy for the sandboxes of one task. A host may start with `*.` for every name below; `*` is every host.

    `private`: allow addresses that are not public too (for services on this machine's own network).
    """

    def __init__(self, hosts: Collection[str], *, ports: Collection[int] = PORTS, private: bool = False) -> None:
        self._hosts = frozenset(host.lower().rstrip(".") for host in hosts)
        self._ports = frozenset(ports)
        self._private = private
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self) -> tuple[str, int]:
        """Listen on a free port of the loopback; the address."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=BUFFER_BYTES)
        host, port = self._server.sockets[0].getsockname()
        return host, port

    def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._serving:
            task.cancel()

    def allows(self, host: str) -> bool:
        """True when the list names this host."""
        name = host.lower().rstrip(".")
        labels = name.split(".")
        return not self._hosts.isdisjoint({name, "*"}) or any(
            "*." + ".".join(labels[i:]) in self._hosts for i in range(1, len(labels))
        )

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._serving) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: judge its request, then pass bytes."""
        try:
            async with asyncio.timeout(HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
            host, port, request = _target(head)
            far_reader, far_writer = await self._connect(host, port)
        except Refused as refused:
            text = f"{refused.reason}\n".encode()
            writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n" % (refused.status.encode(), len(text)))
            writer.write(b"Content-Type: text/plain\r\nConnection: close\r\n\r\n" + text)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_S):
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
            return
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
            return
        except BaseException:
            writer.transport.abort()
            raise
        if request:
            far_writer.write(request)
        else:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await relay((reader, writer), (far_reader, far_writer))

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to an allowed host, at the very address that was judged. Raises Refused."""
        if not self.allows(host):
            raise Refused("403 Forbidden", f"{host} is not on this task's list of hosts")
        if port not in self._ports:
            raise Refused("403 Forbidden", f"port {port} is not open; ports {sorted(self._ports)} are")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                addresses = [str(entry[4][0]) for entry in found]
                public = [address for address in addresses if self._private or ipaddress.ip_address(address).is_global]
                if not public:
                    raise Refused("403 Forbidden", f"{host} has no public address")
                return await asyncio.open_connection(public[0], port, limit=BUFFER_BYTES)
        except TimeoutError as error:
            raise Refused("504 Gateway Timeout", f"{host}: no answer") from error
        except OSError as error:
            raise Refused("502 Bad Gateway", f"{host}: {error.strerror or error}") from error


class AllowLists:
    """The proxies of a provider: one for each list of hosts, opened when a task first asks for it.

    `internet`: give tasks that ask for all of the network a proxy to every public host. Default: they get none.
    """

    def __init__(self, *, internet: bool = False, ports: Collection[int] = PORTS, private: bool = False) -> None:
        self._internet = internet
        self._ports = ports
        self._private = private
        self._proxies: dict[frozenset[str], tuple[AllowListProxy, Address]] = {}
        self._opening = asyncio.Lock()

    async def address(self, environment: Environment) -> Address | None:
        """Where the environment's proxy listens on the host; None for an environment without a network."""
        hosts = frozenset(environment.allowed_hosts)
        if environment.allow_internet and self._internet:
            hosts = frozenset({"*"})
        if not hosts:
            return None
        async with self._opening:
            if hosts not in self._proxies:
                proxy = AllowListProxy(hosts, ports=self._ports, private=self._private)
                self._proxies[hosts] = proxy, await proxy.open()
        return self._proxies[hosts][1]

    def close(self) -> None:
        """Close every proxy."""
        for proxy, _ in self._proxies.values():
            proxy.close()
        self._proxies.clear()


def _target(head: bytes) -> tuple[str, int, bytes]:
    """Host, port, and the request to pass on (nothing for a tunnel). Raises Refused."""
    line, _, rest = head.partition(b"\r\n")
    try:
        method, address, protocol = line.decode("ascii").split(" ")
        if method == "CONNECT":
            url = urlsplit(f"//{address}")
            if url.hostname is None or url.port is None:
                raise ValueError(address)
            return url.hostname, url.port, b""
        url = urlsplit(address)
        if url.scheme != "http" or url.hostname is None:
            raise ValueError(address)
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    except ValueError as error:
        raise Refused("400 Bad Request", "expected CONNECT host:port, or a request for http://host/…") from error
    kept = [header for header in rest.split(b"\r\n") if header and not _of_the_hop(header)]
    # One request a connection: the next one may name another host.
    host = url.hostname if url.port is None else f"{url.hostname}:{url.port}"
    kept = [f"Host: {host}".encode("ascii"), *kept, b"Connection: close"]
    start = f"{method} {path} {protocol}".encode("ascii")
    return url.hostname, url.port or 80, b"\r\n".join([start, *kept, b"", b""])


def _of_the_hop(header: bytes) -> bool:
    """True for headers that end at the proxy."""
    return header.partition(b":")[0].strip().lower() in (b"connection", b"keep-alive", b"proxy-connection", b"host")
