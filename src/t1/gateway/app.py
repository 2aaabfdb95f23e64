"""The gateway's HTTP server: routes, keys, bounds. It speaks for any `Completer`.

Each call is `/s/{session}/v1/…`, or `/v1/…` where the key names the session. Boundary: what a body means is the
protocols' business (`protocols/`), what is sampled and recorded is the completer's. Here every wait has a bound, a
body is never held beyond its limit, and a client that goes away cancels its call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from t1.gateway.conversation import Completer, GatewayError, Reply
from t1.gateway.protocols import CHAT, MESSAGES, RESPONSES, Call, Dialect
from t1.gateway.protocols.anthropic import write_count
from t1.gateway.protocols.models import find_model, write_models

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Bounds of the server."""

    max_body_bytes: int = 32 << 20
    read_timeout_s: float = 60.0
    """For the whole body of a call."""
    reply_timeout_s: float = 3600.0
    """For a reply to be sampled; 504 afterwards."""
    keep_alive_s: float = 5.0
    """A streaming client that waits longer is sent a sign of life, again and again."""
    idle_timeout_s: float = 120.0
    """How long a connection without a call stays open."""
    shutdown_s: float = 5.0


def app(completer: Completer, config: ServerConfig = ServerConfig()) -> ASGIApp:
    """The gateway as an ASGI application."""
    server = _Server(completer, config)
    calls: list[tuple[str, str, Dialect, Endpoint]] = [
        ("chat/completions", "POST", CHAT, partial(server.answer, dialect=CHAT)),
        ("responses", "POST", CHAT, partial(server.answer, dialect=RESPONSES)),
        ("messages", "POST", MESSAGES, partial(server.answer, dialect=MESSAGES)),
        ("messages/count_tokens", "POST", MESSAGES, server.count_tokens),
        ("models", "GET", CHAT, server.models),
        ("models/{model:path}", "GET", CHAT, server.model),
    ]
    routes = [
        Route(f"{prefix}/v1/{path}", guarded(endpoint, dialect), methods=[method])
        for prefix in ("/s/{session:path}", "")
        for path, method, dialect, endpoint in calls
    ]
    plain = [Route(path, _alive) for path in ("/", "/health", "/s/{session:path}")]
    return Starlette(routes=[*routes, *plain], exception_handlers={HTTPException: _no_such_route})


def guarded(endpoint: Endpoint, dialect: Dialect) -> Endpoint:
    """The endpoint, with every error told in the client's own protocol."""

    async def call(request: Request) -> Response:
        try:
            return await endpoint(request)
        except GatewayError as error:
            return _refusal(error, dialect)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except Exception:
            LOG.exception("the gateway failed on %s", request.url.path)
            return _refusal(_broken(), dialect)

    return call


def _refusal(error: GatewayError, dialect: Dialect) -> Response:
    """An error as a whole reply. Clients of these protocols retry by themselves where it can help: 5xx and 429."""
    return JSONResponse(dialect.error(error), status_code=error.status)


def _broken() -> GatewayError:
    return GatewayError(500, "server_error", "the gateway failed; its log says where")


async def _alive(request: Request) -> Response:
    """What probes of a root are told, HEAD included."""
    if "v1" in request.path_params.get("session", "").split("/"):
        raise HTTPException(404)  # a path below a session, not a session
    return JSONResponse({"status": "ok", "service": "t1 gateway"})


async def _no_such_route(request: Request, error: Exception) -> Response:
    """404 and 405 in the shape of the protocol that the path belongs to."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = (
        f"{request.method} {request.url.path} is not served here: there are POST /v1/chat/completions, /v1/responses, "
        "/v1/messages, /v1/messages/count_tokens and GET /v1/models, each also under /s/SESSION"
    )
    dialect = MESSAGES if "/messages" in request.url.path else CHAT
    return _refusal(GatewayError(status, "not_found_error", message), dialect)


class _Server:
    """The endpoints."""

    def __init__(self, completer: Completer, config: ServerConfig) -> None:
        self._completer = completer
        self._config = config

    async def answer(self, request: Request, *, dialect: Dialect) -> Response:
        """Sample a reply and tell it in the dialect."""
        session = self._session(request)
        call = dialect.read(await self._body(request))
        asked = replace(call.request, idempotency_key=request.headers.get("idempotency-key", ""))
        pending = _Pending(self._completer.complete(session, asked), request, self._config)
        if not call.stream:
            return JSONResponse(call.body(await pending.reply()))
        # The status line waits for the first sign of life: until then an error is a real 4xx.
        await pending.settle(self._config.keep_alive_s)
        if pending.done:
            return _stream(call.events(await pending.reply()))
        return StreamingResponse(pending.stream(call, dialect), headers=_NO_CACHE, media_type="text/event-stream")

    async def count_tokens(self, request: Request) -> Response:
        """How long a prompt would be."""
        session = self._session(request)
        call = MESSAGES.read(await self._body(request))
        async with asyncio.timeout(self._config.reply_timeout_s):
            return JSONResponse(write_count(await self._completer.count_tokens(session, call.request)))

    async def models(self, request: Request) -> Response:
        """The list of models."""
        self._session(request)
        return JSONResponse(write_models(self._completer.models))

    async def model(self, request: Request) -> Response:
        """One of them."""
        self._session(request)
        return JSONResponse(find_model(self._completer.models, request.path_params["model"]))

    def _session(self, request: Request) -> str:
        """The session that path and key name together. Checked before a byte of the body is read."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        key = token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
        return self._completer.check(request.path_params.get("session", ""), key)

    async def _body(self, request: Request) -> bytes:
        """The body, never held beyond its limit. What is too long is read to its end, unkept, so that the client
        sees the answer instead of a broken pipe; a client that never ends is cut off."""
        chunks: list[bytes] = []
        limit, size = self._config.max_body_bytes, 0
        try:
            async with asyncio.timeout(self._config.read_timeout_s):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > limit:
                        chunks.clear()
                    else:
                        chunks.append(chunk)
                    if size > 16 * limit:
                        break
        except TimeoutError:
            raise GatewayError(408, "timeout_error", f"no whole body in {self._config.read_timeout_s} s") from None
        if size > limit:
            raise GatewayError(413, "request_too_large", f"the body is longer than {limit} bytes")
        return b"".join(chunks)


class _Pending:
    """A reply that is being sampled for a client that may go away: then the call is cancelled."""

    def __init__(self, completion: Awaitable[Reply], request: Request, config: ServerConfig) -> None:
        self._config = config
        self._work = asyncio.ensure_future(self._bounded(completion))
        self._gone = asyncio.ensure_future(_disconnected(request))
        self._gone.add_done_callback(lambda _: self._work.cancel())  # whoever is or is not listening just then

    async def _bounded(self, completion: Awaitable[Reply]) -> Reply:
        try:
            async with asyncio.timeout(self._config.reply_timeout_s) as bound:
                return await completion
        except TimeoutError:
            if not bound.expired():
                raise
            limit = self._config.reply_timeout_s
            raise GatewayError(504, "timeout_error", f"no reply was sampled in {limit} s") from None

    @property
    def done(self) -> bool:
        """True when the reply, or its error, is there."""
        return self._work.done()

    async def settle(self, timeout_s: float | None = None) -> None:
        """Wait for the reply, at most so long. Raises ClientDisconnect once nobody waits for it."""
        try:
            await asyncio.wait({self._work, self._gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await self.close()
            raise
        if self._gone.done() and (self._work.cancelled() or not self._work.done()):
            await self.close()
            raise ClientDisconnect

    async def reply(self) -> Reply:
        """The reply. Raises what `complete` raises."""
        await self.settle()
        self._gone.cancel()
        return self._work.result()

    async def stream(self, call: Call, dialect: Dialect) -> AsyncIterator[bytes]:
        """Signs of life while the reply is sampled, then its events, or an error as an event."""
        try:
            while not self.done:
                yield dialect.keep_alive
                await self.settle(self._config.keep_alive_s)
            for event in call.events(await self.reply()):
                yield event
        except GatewayError as error:
            for event in dialect.error_events(error):
                yield event
        except ClientDisconnect:
            return
        except Exception:
            LOG.exception("the gateway failed in the middle of a stream")
            for event in dialect.error_events(_broken()):
                yield event
        finally:
            await self.close()

    async def close(self) -> None:
        """Cancel what is still going on, and see it end."""
        for task in (self._work, self._gone):
            task.cancel()
        await asyncio.wait({self._work, self._gone}, timeout=self._config.shutdown_s)
        if self._work.done() and not self._work.cancelled():
            self._work.exception()  # told already, or nobody is left to tell


async def _disconnected(request: Request) -> None:
    """Returns when the client has gone. Its body was read: nothing else can arrive."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


_NO_CACHE = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def _stream(events: Iterator[bytes]) -> Response:
    """A stream whose events are all there: one write."""
    return Response(b"".join(events), headers=_NO_CACHE, media_type="text/event-stream")


class Served:
    """A running server. Close it, or use it as an async context."""

    def __init__(self, base_url: str, server: uvicorn.Server, task: asyncio.Task[None], shutdown_s: float) -> None:
        self.base_url = base_url
        """Such as http://127.0.0.1:4711; clients add /v1 or /s/SESSION/v1, each as it is used to."""
        self._server, self._task, self._shutdown_s = server, task, shutdown_s

    @property
    def port(self) -> int:
        """The port that was bound."""
        return int(self.base_url.rpartition(":")[2])

    async def aclose(self) -> None:
        """Stop: calls under way get a moment to end, then they are cancelled. Safe to call twice."""
        self._server.should_exit = True
        _, late = await asyncio.wait({self._task}, timeout=2 * self._shutdown_s)
        for task in late:
            task.cancel()
        await asyncio.wait(self._server.server_state.tasks | {self._task}, timeout=self._shutdown_s)

    async def __aenter__(self) -> Served:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _QuietServer(uvicorn.Server):
    """uvicorn inside somebody else's program: signals are that program's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


async def serve(
    completer: Completer, host: str = "127.0.0.1", port: int = 0, *, config: ServerConfig = ServerConfig()
) -> Served:
    """Serve in this event loop; it listens when this returns. Port 0 = any free one. Raises OSError when taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=1024)
    # Accepted connections inherit it. Without it a reply's body waits 40 ms for the acknowledgement of its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    settings = uvicorn.Config(
        app(completer, config),
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_keep_alive=int(config.idle_timeout_s),
        timeout_graceful_shutdown=max(1, int(config.shutdown_s)),
    )
    server = _QuietServer(settings)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="t1 gateway")
    bound = listener.getsockname()[1]
    return Served(f"http://{f'[{host}]' if ':' in host else host}:{bound}", server, task, config.shutdown_s)
