"""Engines on the other side of a wire, without the engines: vLLM's and SGLang's HTTP interfaces around any Sampler.

Put a ScriptedSampler inside and nothing is computed; put a TorchEngine inside and every number is a real model's. Both
keep what those servers keep: a pause, aborts that give back what was sampled, a label of the weights, a prefix cache
by salt that goes stale when weights change and nobody clears it. `Faults` makes them lie in the ways that users of the
real ones reported. Serve one over `EngineTransport` (no sockets), or its `app` with any ASGI server. The servers
themselves, FakeVllm and FakeSglang, are in `t1.testing.dialects`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from t1.inference.captures import ModelShape
from t1.protocols import Sampler
from t1.types import FinishReason, FloatArray, IntArray, SamplingParams

BLOCK = 16
"""Tokens of a block of the prefix cache."""
STALE_SHIFT = -0.87
"""What stale keys and values do to log-probabilities here: the mean gap that case L1 reports."""


class RoutesFault(StrEnum):
    """How a capture can be wrong."""

    NONE = "none"
    """Not sent at all (case R1)."""
    SHORT = "short"
    """A row too few (case R3)."""
    ZERO = "zero"
    """The last rows are zeros (case R8)."""
    REPEATED = "repeated"
    """The completion's rows repeat one row (case R4)."""
    HIT = "hit"
    """Rows of cached blocks are zeros (case R6)."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How an engine misbehaves."""

    routes: RoutesFault | None = None
    all_routes: bool = False
    """Sends every row, wherever it was told to begin."""
    raw_logprobs: bool = False
    """Of the distribution before temperature (case L2)."""
    truncated_logprobs: bool = False
    """Sends one log-probability too few."""
    echo: bool = False
    """Saw another prompt than was sent (case T7)."""
    keeps_cache: bool = False
    """Neither a salt nor a reset ends what is cached (case L1)."""
    bad_reload: bool = False
    """A reload answers that all is well, and log-probabilities are off by 2.2 from then on."""
    refuses_reload: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """One request, spoken by neither dialect."""

    id: str
    prompt: IntArray
    params: SamplingParams
    start: int
    salt: str


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """One answer, spoken by neither dialect. P prompt, C completion tokens."""

    prompt: IntArray
    completion: IntArray
    logprobs: FloatArray
    rows: Any
    """int64 [P + C − 1 − start, L, K] or None."""
    ended: str
    label: str
    cached: int


class FakeEngine:
    """What both servers have in common. `down` = nothing answers; `restart` = its first label again."""

    def __init__(
        self,
        sampler: Sampler,
        *,
        model: ModelShape,
        faults: Faults | None = None,
        chunk: int = 4,
        step_s: float = 0.0,
        read: Callable[[Path], Mapping[str, Any]] | None = None,
    ) -> None:
        """Samples `chunk` tokens at a time, and can be aborted or paused in between; `step_s` = its wait for each.

        `read`: how weights are read from a directory; None = as a transformers model.
        """
        self._read = read or read_weights
        self.sampler, self.model, self.faults = sampler, model, faults or Faults()
        self.label, self.down, self.paused = "default", False, False
        self.served = "fake"
        """What it calls its model; a real one names the directory."""
        self.asked: list[Mapping[str, Any]] = []
        """Bodies of all requests for completions."""
        self.calls: list[str] = []
        """Paths of all other requests."""
        self._chunk, self._step_s = chunk, step_s
        self._aborts: dict[str, asyncio.Event] = {}
        self._going = asyncio.Event()
        self._going.set()
        self._cache: dict[tuple[str, bytes], int] = {}
        """(salt, tokens of whole blocks) → which load of weights computed them."""
        self._loads = 0
        self._spoiled = False
        self.app = Starlette(routes=self.routes())

    @property
    def running(self) -> int:
        """Requests in the engine."""
        return len(self._aborts)

    def routes(self) -> list[Route]:
        """The dialect's paths."""
        raise TypeError("use FakeVllm or FakeSglang")

    def restart(self) -> None:
        """The process is another one: its label is the first one, its cache is empty."""
        self.label = "default"
        self._cache.clear()

    def route(self, path: str, answer: Callable[[Any], Awaitable[Any]], *, get: bool = False) -> Route:
        """A path whose handler takes the JSON body (or the query of a GET) and returns JSON."""

        async def handle(request: Request) -> Response:
            raw = await request.body()
            body = json.loads(raw) if raw else dict(request.query_params)
            if "token_ids" not in body and "prompt" not in body and "input_ids" not in body:
                self.calls.append(path)
            found = await answer(body)
            return found if isinstance(found, Response) else JSONResponse(found)

        return Route(path, handle, methods=["GET"] if get else ["POST"])

    # Sampling -------------------------------------------------------------------------------------------------------

    async def complete(self, wanted: Wanted) -> Done:
        """Sample until done or aborted."""
        aborted = self._aborts[wanted.id] = asyncio.Event()
        try:
            cached, stale = self._look_up(wanted)
            tokens, logprobs, rows, ended = await self._sample(wanted, aborted)
            done = tokens[len(wanted.prompt) :]
            if self._spoiled:
                logprobs = logprobs - np.float32(2.2)
            if stale:
                logprobs = logprobs + np.float32(STALE_SHIFT)
            self._remember(wanted.salt, tokens)
            return self._spoil(Done(wanted.prompt, done, logprobs, rows, ended, self.label, cached), wanted)
        finally:
            del self._aborts[wanted.id]

    async def _sample(self, wanted: Wanted, aborted: asyncio.Event) -> tuple[IntArray, FloatArray, Any, str]:
        """(tokens [P + C], logprobs [C], rows [P + C − 1 − start, L, K] or None, why it ended)"""
        tokens, start, left = wanted.prompt, wanted.start, wanted.params.max_tokens
        logprobs: list[FloatArray] = []
        rows: list[Any] = []
        ended = "abort"
        while left and not aborted.is_set():
            params = replace(wanted.params, max_tokens=min(left, self._chunk))
            step = asyncio.create_task(self._step(tokens, params, wanted.id, start))
            stop = asyncio.create_task(aborted.wait())
            try:
                await asyncio.wait({step, stop}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stop.cancel()
                if not step.done():
                    step.cancel()
            if not step.done() or step.cancelled():
                break
            sample = step.result()
            tokens = np.concatenate([tokens, sample.completion])
            logprobs.append(sample.logprobs)
            if sample.routing is not None:
                rows.append(sample.routing.astype(np.int64))
                start = len(tokens) - 1
            left -= len(sample.completion)
            if sample.finish is FinishReason.STOP:
                ended = "stop"
                break
            ended = "length" if not left else "abort"
        await self.sampler.close_session(wanted.id)
        empty: FloatArray = np.zeros(0, dtype=np.float32)
        return tokens, np.concatenate([empty, *logprobs]), np.concatenate(rows) if rows else None, ended

    async def _step(self, tokens: IntArray, params: SamplingParams, session: str, start: int) -> Any:
        """A few tokens, when the engine is not paused."""
        await self._going.wait()
        await asyncio.sleep(self._step_s)
        return await self.sampler.sample(tokens, params, session=session, routing_start=start)

    def _look_up(self, wanted: Wanted) -> tuple[int, bool]:
        """(cached tokens, whether any of them is of other weights)"""
        salt = "" if self.faults.keeps_cache else wanted.salt
        cached, stale = 0, False
        for stop in range(BLOCK, len(wanted.prompt), BLOCK):
            load = self._cache.get((salt, wanted.prompt[:stop].tobytes()))
            if load is None:
                break
            cached, stale = stop, stale or load != self._loads
        return cached, stale

    def _remember(self, salt: str, tokens: IntArray) -> None:
        """Cache the whole blocks of a request."""
        salt = "" if self.faults.keeps_cache else salt
        for stop in range(BLOCK, len(tokens), BLOCK):
            self._cache.setdefault((salt, tokens[:stop].tobytes()), self._loads)

    def _spoil(self, done: Done, wanted: Wanted) -> Done:
        """The answer as a misbehaving engine gives it."""
        faults, rows, logprobs, prompt = self.faults, done.rows, done.logprobs, done.prompt
        if faults.raw_logprobs:
            logprobs = logprobs * np.float32(wanted.params.temperature or 1.0)
        if faults.truncated_logprobs:
            logprobs = logprobs[:-1]
        if faults.echo:
            prompt = np.concatenate([prompt[:-1], prompt[-1:] ^ 1])
        if rows is not None:
            rows = _spoil_rows(rows, faults.routes, done.cached - wanted.start, len(done.completion))
        return replace(done, rows=rows, logprobs=logprobs, prompt=prompt)

    def start_of(self, wanted: int) -> int:
        """Where rows begin."""
        return 0 if self.faults.all_routes else wanted

    # Control --------------------------------------------------------------------------------------------------------

    async def pause(self, body: Any) -> Any:
        """Abort everything, hold what comes."""
        self.paused = True
        self._going.clear()
        self.abort_all()
        return {"status": "paused"}

    async def go_on(self, body: Any) -> Any:
        self.paused = False
        self._going.set()
        return {"status": "resumed"}

    def abort_all(self) -> None:
        """End every request that runs."""
        for event in list(self._aborts.values()):
            event.set()

    def abort(self, ids: list[str]) -> None:
        """End these requests; unknown ones are fine."""
        for name in ids:
            if (event := self._aborts.get(name)) is not None:
                event.set()

    async def reload(self, path: str) -> str:
        """Load a checkpoint; why it did not work, or nothing."""
        if self.faults.refuses_reload:
            return "out of memory"
        if not list(Path(path).glob("*.safetensors")):  # noqa: ASYNC240 — a test's own disk
            return f"{path}: no *.safetensors"
        await self.sampler.publish(self._read(Path(path)), self.sampler.version + 1)
        self._spoiled, self._loads = self.faults.bad_reload, self._loads + 1
        return ""

    def reset_cache(self) -> None:
        """Forget all prefixes."""
        if not self.faults.keeps_cache:
            self._cache.clear()

    async def models(self, body: Any) -> Any:
        """Both dialects' list of models."""
        return {
            "object": "list",
            "data": [{"id": self.served, "object": "model", "max_model_len": self.sampler.max_context}],
        }


def _spoil_rows(rows: Any, fault: RoutesFault | None, cached: int, count: int) -> Any:
    """[N, L, K] rows as a misbehaving engine captures them."""
    if fault is RoutesFault.NONE:
        return None
    rows = rows.copy()
    if fault is RoutesFault.SHORT:
        return rows[:-1]
    if fault is RoutesFault.ZERO:
        rows[-max(1, count // 2) :] = 0
    if fault is RoutesFault.REPEATED:
        rows[-count:] = rows[-count]
    if fault is RoutesFault.HIT:
        rows[: max(0, cached)] = 0
    return rows


def read_weights(path: Path) -> Mapping[str, Any]:
    """All tensors of a checkpoint, by the names that a loaded model gives them."""
    from t1.inference.models import load_model

    return load_model(path).state_dict()


class EngineTransport(httpx.AsyncBaseTransport):
    """Brings requests to a fake engine without a socket; a cancelled request is a client that hung up."""

    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine
        self._inside = httpx.ASGITransport(app=engine.app, raise_app_exceptions=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer, or fail to connect when the engine is down."""
        if self._engine.down:
            raise httpx.ConnectError("nobody listens", request=request)
        return await self._inside.handle_async_request(request)
