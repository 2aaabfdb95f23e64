"""The routes of the page, and the guard before them.

Every answer is read-only. A request must name a loopback host (a page elsewhere that rebinds its name to 127.0.0.1
still sends its own name), must be GET or HEAD, and must not come from another site. Pages carry a policy under which
no inline code or style runs and no text becomes markup. Boundary: HTTP only; the other modules read what is shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, fields
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from t1.errors import RunError, T1Error
from t1.viewer.index import SORTS, Query, facets
from t1.viewer.runs import Run, is_written
from t1.viewer.shown import Shown

Answer: TypeAlias = dict[str, Any] | list[Any]
PAGE = resources.files("t1.viewer") / "page"
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".woff2": "font/woff2",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
PAGE_SIZE, MAX_PAGE = 200, 1000


class _Refused(Exception):
    """A question that has no answer: (status, what to do instead)."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        super().__init__(message)


def app(runs: Mapping[str, Run]) -> ASGIApp:
    """The viewer of these runs as an ASGI application."""
    viewer = _Viewer({name: Shown(run) for name, run in runs.items()})
    answers: dict[str, Callable[[Request], Answer]] = {
        "runs": viewer.runs,
        "run": viewer.run,
        "metrics": viewer.metrics,
        "steps": viewer.steps,
        "rollouts": viewer.rollouts,
        "rollout": viewer.rollout,
        "tokens": viewer.tokens,
        "text": viewer.text,
    }
    routes = [Route(f"/api/{name}", partial(_answered, answer)) for name, answer in answers.items()]
    routes += [Route("/page/{file:path}", _static), Route("/{view:path}", _index)]
    return _Guard(
        GZipMiddleware(Starlette(routes=routes, lifespan=viewer.lifespan), minimum_size=1024, compresslevel=4)
    )


async def _answered(answer: Callable[[Request], Answer], request: Request) -> Response:
    """An answer as JSON, made in a thread; every refusal says what to do."""
    try:
        return _json(await asyncio.to_thread(answer, request))
    except _Refused as refused:
        return _json({"error": refused.message}, refused.status)
    except T1Error as error:
        return _json({"error": str(error)}, 422)


def _json(value: Answer, status: int = 200) -> Response:
    # ASCII: a text of a rollout may hold lone surrogates, which UTF-8 has no bytes for.
    body = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return Response(body, status, media_type="application/json")


class _Viewer:
    """The answers."""

    def __init__(self, runs: Mapping[str, Shown]) -> None:
        self._runs = runs

    @contextlib.asynccontextmanager
    async def lifespan(self, application: Starlette) -> AsyncIterator[None]:
        """Audits end with the server."""
        try:
            yield
        finally:
            for shown in self._runs.values():
                await asyncio.to_thread(shown.findings.stop)

    def runs(self, request: Request) -> Answer:
        """Every run, the one that changed last first."""
        found = [shown.run.summary() for shown in self._runs.values()]
        return sorted(found, key=lambda run: -(run["changed"] or 0))

    def run(self, request: Request) -> Answer:
        """What a run says of itself."""
        return self._run(request).run.facts()

    def metrics(self, request: Request) -> Answer:
        """New records, and whether more will come."""
        shown = self._run(request)
        return {**shown.run.metrics(_number(request, "since", 0)), "live": is_written(shown.run.path)}

    def steps(self, request: Request) -> Answer:
        """One line a file, and whether more will come."""
        shown = self._run(request)
        return {**shown.steps(), "live": is_written(shown.run.path)}

    def rollouts(self, request: Request) -> Answer:
        """A page of the rows that the query selects, and how many there are of each kind in all."""
        shown, query = self._run(request), _query(request)
        rules = shown.findings.rules()
        rows = shown.run.index.select(query, rules)
        everything = shown.run.index.select(Query(step=query.step), rules)
        offset, limit = _number(request, "offset", 0), min(_number(request, "limit", PAGE_SIZE), MAX_PAGE)
        page = [
            {**asdict(row), "key": row.key, "findings": rules.get(row.key, [])} for row in rows[offset : offset + limit]
        ]
        return {
            "total": len(rows),
            "all": len(everything),
            "offset": offset,
            "rows": page,
            "facets": facets(everything, rules),
            "steps": [file.step for file in shown.run.index.steps()],
            "damaged": [file.error for file in shown.run.index.steps() if file.error],
            "audit": shown.findings.progress(),
            "live": is_written(shown.run.path),
        }

    def rollout(self, request: Request) -> Answer:
        """One rollout without its tokens."""
        return self._run(request).rollout(_word(request, "key"))

    def tokens(self, request: Request) -> Answer:
        """Tokens of one of its segments."""
        segment, start = _number(request, "segment", 0), _number(request, "start", 0)
        return self._run(request).tokens(_word(request, "key"), segment, start)

    def text(self, request: Request) -> Answer:
        """More of an action or observation than the rollout itself came with."""
        name = _word(request, "name")
        if name not in ("action", "observation"):
            raise _Refused(400, "name: expected action or observation")
        raw, start = request.query_params.get("raw") == "1", _number(request, "start", 0)
        return self._run(request).text(_word(request, "key"), _number(request, "turn", 0), name, raw=raw, start=start)

    def _run(self, request: Request) -> Shown:
        name = _word(request, "run")
        if name not in self._runs:
            raise _Refused(404, f"no run {name!r} is shown here; the list of runs is at /")
        return self._runs[name]


def _word(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if not value:
        raise _Refused(400, f"{name}: missing")
    return value


def _number(request: Request, name: str, default: int) -> int:
    value = request.query_params.get(name, str(default))
    if not value.isdecimal() or len(value) > 15:
        raise _Refused(400, f"{name}: expected a number, got {value[:40]!r}")
    return int(value)


def _query(request: Request) -> Query:
    asked = {
        f.name: request.query_params.get(f.name, "") for f in fields(Query) if f.name not in ("sort", "descending")
    }
    sort = request.query_params.get("sort", "step")
    if sort not in SORTS:
        raise _Refused(400, f"sort: expected one of {', '.join(SORTS)}")
    return Query(**asked, sort=sort, descending=request.query_params.get("descending") == "1")


async def _index(request: Request) -> Response:
    """The page; which view it shows is its own business (deep links)."""
    if request.path_params["view"].startswith("api/"):
        return JSONResponse({"error": "no such answer"}, 404)
    return Response((PAGE / "index.html").read_bytes(), media_type=KINDS[".html"])


async def _static(request: Request) -> Response:
    """A file of the package's own page, by a name that was there when it was packed."""
    name = request.path_params["file"]
    if name not in _files():
        return JSONResponse({"error": "no such file"}, 404)
    return Response(PAGE.joinpath(name).read_bytes(), media_type=KINDS[Path(name).suffix])


def _files() -> set[str]:
    return {
        f"{prefix}{file.name}"
        for folder, prefix in ((PAGE, ""), (PAGE / "fonts", "fonts/"))
        for file in folder.iterdir()
        if file.is_file() and Path(file.name).suffix in KINDS
    }


class _Guard:
    """Lets in what a person's own browser asks on this machine, and writes the headers of every answer."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        refusal = refuse(scope)
        await (_json({"error": refusal[1]}, refusal[0]) if refusal else self._inner)(scope, receive, guarded)


def refuse(scope: Scope) -> tuple[int, str] | None:
    """Why a request is not answered, if it is not."""
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    hosts = headers.get("host", [])
    if len(hosts) != 1 or not _is_loopback(hosts[0]):
        return 421, "this page answers to localhost and 127.0.0.1 only"
    if scope["method"] not in ("GET", "HEAD"):
        return 405, "this page is read-only"
    api = scope["path"].startswith("/api/")
    if api and headers.get("sec-fetch-site", ["none"])[0] not in ("none", "same-origin"):
        return 403, "another site may not read a run"
    return None


def _is_loopback(host: str) -> bool:
    name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "")
    try:
        return name in LOOPBACK and (not port or 0 < int(port) < 65536) and urlsplit(f"//{host}").username is None
    except ValueError:
        return False


async def serve(runs: Mapping[str, Run], port: int, ready: Callable[[str], None]) -> None:
    """Serve on loopback until cancelled. Port 0 = any free one; `ready` is told the address."""
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise RunError(f"port {port}: {error.strerror}; choose another --port, or 0 for any free one") from error
    with listener:
        config = uvicorn.Config(
            app(runs), log_config=None, access_log=False, ws="none", server_header=False, timeout_graceful_shutdown=2
        )
        ready(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        server = uvicorn.Server(config)
        try:
            await server.serve(sockets=[listener])
        except asyncio.CancelledError:
            await server.shutdown(sockets=[listener])  # connections that browsers keep open, and the audits
            raise
