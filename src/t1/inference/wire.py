"""HTTP to a serving engine: every wait has a bound, every failure a type, and only what is harmless is sent twice.

Boundary: bytes and JSON. What a path or a field means is known to `vllm.py` and `sglang.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx

from t1.errors import EngineError, EngineTimeout, EngineUnavailable

ATTEMPTS = 3
"""How often a repeatable request is sent before its failure is final."""
BACKOFF_S = 0.1
"""Pause before the second attempt; doubles with each one after it."""
CONNECT_S = 5.0
"""Longest wait for a connection."""
CLOSE_S = 5.0
"""Longest wait for calls that are being ended."""
QUOTED = 300
"""Characters of an engine's complaint that are passed on."""


class Wire:
    """One engine's address and connections."""

    def __init__(self, url: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """`transport` None = sockets. Proxies of the environment are not used: ids and weights go straight there."""
        self.url = url.rstrip("/")
        self._client = httpx.AsyncClient(
            base_url=self.url,
            transport=transport,
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
        )
        self._sending: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def get(self, path: str, *, timeout_s: float) -> Any:
        """JSON of a GET, tried again where the engine cannot be reached."""
        return await self._repeat("GET", path, None, {}, timeout_s, ATTEMPTS)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float,
        params: Mapping[str, str] | None = None,
        repeatable: bool = False,
    ) -> Any:
        """JSON of a POST; `repeatable`: doing it twice does no harm, so that it may be tried again."""
        return await self._repeat("POST", path, body, params or {}, timeout_s, ATTEMPTS if repeatable else 1)

    async def aclose(self) -> None:
        """Close the connections; calls that are under way end with EngineUnavailable. Safe to call twice.

        They are ended first: a connection that is closed under a call is never given back.
        """
        self._closed = True
        for task in self._sending:
            task.cancel()
        if self._sending:
            await asyncio.wait(set(self._sending), timeout=CLOSE_S)
        await self._client.aclose()

    async def _repeat(
        self, method: str, path: str, body: Any, params: Mapping[str, str], timeout_s: float, attempts: int
    ) -> Any:
        """Send until answered, `attempts` times at most, all of it within `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                for attempt in range(1, attempts):
                    try:
                        return await self._attempt(method, path, body, params)
                    except EngineUnavailable:
                        await asyncio.sleep(BACKOFF_S * 2 ** (attempt - 1))
                return await self._attempt(method, path, body, params)
        except TimeoutError:
            raise EngineTimeout(f"{self.url}{path}: no answer within {timeout_s:g} s") from None

    async def _attempt(self, method: str, path: str, body: Any, params: Mapping[str, str]) -> Any:
        """One attempt, known to `aclose` meanwhile."""
        task = asyncio.ensure_future(self._send(method, path, body, params))
        self._sending.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self._closed and caller is not None and not caller.cancelling():
                raise EngineUnavailable(f"{self.url}{path}: this client was closed meanwhile") from None
            raise
        finally:
            self._sending.discard(task)

    async def _send(self, method: str, path: str, body: Any, params: Mapping[str, str]) -> Any:
        """Send, and read the answer."""
        content = None if body is None else json.dumps(body, separators=(",", ":"))
        headers = None if body is None else {"content-type": "application/json"}
        timeout = httpx.Timeout(None, connect=CONNECT_S)  # the caller bounds the whole
        try:
            answer = await self._client.request(
                method, path, content=content, params=dict(params), headers=headers, timeout=timeout
            )
        except httpx.ConnectError as error:
            raise EngineUnavailable(f"{self.url}: cannot be reached ({error}); is the server running?") from error
        except (httpx.TransportError, RuntimeError) as error:  # RuntimeError: our own client was closed meanwhile
            raise EngineUnavailable(f"{self.url}{path}: the connection broke: {error!r}") from error
        if answer.status_code >= 500:
            raise EngineUnavailable(f"{self.url}{path}: {answer.status_code} {_complaint(answer)}")
        if answer.status_code >= 400:
            raise EngineError(f"{self.url}{path}: refused with {answer.status_code} {_complaint(answer)}")
        if not answer.content:
            return None
        try:
            return json.loads(answer.content)
        except (ValueError, RecursionError):
            if answer.headers.get("content-type", "").startswith("text/"):
                return answer.text
            raise EngineError(f"{self.url}{path}: the answer is no JSON: {_complaint(answer)}") from None


def _complaint(answer: httpx.Response) -> str:
    """What an engine says about an error, on one line."""
    return " ".join(answer.text.split())[:QUOTED]
