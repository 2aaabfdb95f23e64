"""What every engine on the other side of a wire has in common: a Sampler that believes nothing it was not shown.

A request goes through one gate, is bounded, can be cancelled, and its answer is checked: the ids that the engine saw,
one finite log-probability a token, one routing row a fed token, the weights version. While weights are published the
gate is shut: what runs is aborted, keeps the tokens that it has, and goes on from them under the new weights; so each
token has one version, and each row is the one of its first feeding (cases R5, R7, L1).

Boundary: no path, field or encoding of any engine; those are in `vllm.py` and `sglang.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from t1.errors import ConfigError, EngineError, EngineTimeout, EngineUnavailable
from t1.inference.captures import ModelShape
from t1.inference.checkpoints import CheckpointWriter
from t1.inference.replies import Ask, Ended, EngineMeter, Gathered, Reply, RowsCheck, refuse
from t1.inference.wire import Wire
from t1.types import FinishReason, IntArray, Sample, SampleTimings, SamplingParams

MAX_INTERRUPTIONS = 64
"""How many publishes one request may live through."""


@dataclass(frozen=True, slots=True)
class EngineBounds:
    """How long a client waits for what, in seconds."""

    request_s: float = 600.0
    """One completion."""
    publish_s: float = 600.0
    """Loading weights, and as long a request waits for the gate to open."""
    control_s: float = 10.0
    """Abort, pause, resume, a look at the version."""
    drain_s: float = 30.0
    """Until everything that runs was aborted before a publish."""
    quiet_s: float = 2.0
    """After so much silence the version is asked for again: no engine is started anew in less."""


class RemoteSampler(ABC):
    """A Sampler over one engine. Use it from one event loop."""

    def __init__(
        self,
        url: str,
        *,
        model: ModelShape,
        max_context: int,
        version: int = 0,
        checkpoints: CheckpointWriter | None = None,
        check_rows: RowsCheck | None = None,
        bounds: EngineBounds | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`checkpoints`: where weights are published; None = this client never publishes. See `connect`."""
        self.url = url
        self.meter = EngineMeter()
        self._wire = Wire(url, transport=transport)
        self._model, self._max_context, self._version = model, max_context, version
        self._checkpoints, self._check_rows = checkpoints, check_rows
        self._bounds = bounds or EngineBounds()
        self._name, self._ids = f"t1-{secrets.token_hex(6)}", itertools.count()
        self._running: dict[str, asyncio.Task[Reply]] = {}
        self._publishing = asyncio.Lock()
        self._open = asyncio.Event()
        """The gate: clear while weights change."""
        self._open.set()
        self._paused = False
        """`pause` holds the gate too."""
        self._heard = -float("inf")
        """When the engine last answered with the version that we expect."""
        self._closed = ""
        """Why nothing is sampled any more."""
        self._unknown = ""
        """Why the engine's weights are not known: a publish failed half way."""

    @property
    def version(self) -> int:
        """The weights version that new tokens are sampled with."""
        return self._version

    @property
    def max_context(self) -> int:
        """Longest prompt + completion, in tokens."""
        return self._max_context

    @property
    def model(self) -> ModelShape:
        """What is known of the model behind the engine."""
        return self._model

    async def connect(self) -> None:
        """Look the engine over and label its weights with our version. Raises EngineError or ConfigError."""
        longest = await self._longest_context()
        if longest < self._max_context:
            raise ConfigError(
                f"{self.url}: the engine takes {longest} tokens, {self._max_context} are asked for: start it with a "
                f"longer --max-model-len (vLLM) or --context-length (SGLang), or lower model.max_context"
            )
        if await self._engine_version() != str(self._version):
            await self._label(self._version)
        self._heard = time.monotonic()

    async def sample(self, prompt: IntArray, params: SamplingParams, *, session: str, routing_start: int = 0) -> Sample:
        """Complete `prompt` [P]. Cancelling aborts the request in the engine, and waits until that is confirmed.

        Raises ValueError for what can never be sampled, EngineUnavailable, EngineTimeout, PromptMismatch, RoutingError.
        """
        refuse(prompt, params, routing_start, max_context=self._max_context, vocab_size=self._model.vocab_size)
        began = time.monotonic()
        gathered = Gathered(
            self.url, np.array(prompt, dtype=np.int32), routing_start, self._model, self.meter, self._check_rows
        )
        most = min(params.max_tokens, self._max_context - len(prompt))
        waited = 0.0
        for turn in range(MAX_INTERRUPTIONS):
            waited += await self._enter()
            held = gathered.tokens()
            left = replace(params, max_tokens=most - (len(held) - len(prompt)), seed=_next_seed(params.seed, turn))
            ask = Ask(self._next_id(), held, left, session, gathered.next_row(), self._version)
            reply = await self._run(ask)
            gathered.take(ask, reply)
            if reply.ended is not Ended.ABORT or len(reply.completion) == left.max_tokens:
                finish = FinishReason.STOP if reply.ended is Ended.STOP else FinishReason.LENGTH
                spent = time.monotonic() - began - waited
                return gathered.sample(finish, SampleTimings(waited, 0.0, spent, gathered.cached_tokens))
            self.meter.num_interrupted += 1
        raise EngineUnavailable(f"{self.url}: aborted {MAX_INTERRUPTIONS} times over; is something else pausing it?")

    async def close_session(self, session: str) -> None:
        """Nothing to do: engines keep prefixes, not sessions, and forget the oldest by themselves."""
        return

    async def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """Write the weights where the engine reads them, and load them there. See `load`."""
        if self._checkpoints is None:
            raise ConfigError(f"{self.url}: no directory to publish weights in; set engine.weights_dir")
        path = await asyncio.to_thread(self._checkpoints.write, weights, version)
        await self.load(path, version)

    async def load(self, path: Path, version: int) -> None:
        """Have the engine load the checkpoint at `path`; returns when nothing of the old weights can be met any more.

        Running requests are aborted, and go on from their tokens under the new weights. When it fails the engine's
        weights are unknown, and it samples nothing until a later load succeeds.
        """
        await self._replace(lambda: self._load(path), version)

    async def receive(self, send: Callable[[], None], version: int) -> None:
        """The same for weights that `send` brings into the engine by itself, in a thread: see `t1.inference.nccl`."""
        await self._replace(lambda: asyncio.to_thread(send), version)

    async def _replace(self, bring: Callable[[], Awaitable[None]], version: int) -> None:
        """Let `bring` change the engine's weights while nothing samples; only afterwards do they count."""
        async with self._held():
            self._unknown = f"{self.url}: loading version {version} failed; publish again, or start the engine anew"
            await self._swap(bring, version)
            self._version, self._unknown, self._heard = version, "", time.monotonic()

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[None]:
        """Shut the gate, empty the engine of our requests, and open it again at the end."""
        async with self._publishing:
            self._refuse_closed()
            self._open.clear()
            try:
                await self._drain()
                yield
            finally:
                if not self._paused:
                    self._open.set()

    async def pause(self) -> None:
        """Interrupt what runs and hold what comes, until `resume`; a publish meanwhile changes nothing about it."""
        self._paused = True
        async with self._held():
            pass

    async def resume(self) -> None:
        """Go on after `pause`; what was interrupted continues."""
        self._paused = False
        if not self._publishing.locked():
            self._open.set()

    async def check_alive(self) -> None:
        """Raise EngineError unless the engine answers and has the weights that we believe it has."""
        self._refuse_closed()
        if self._unknown:
            raise EngineUnavailable(self._unknown)
        await self._verify()

    async def aclose(self) -> None:
        """Stop; pending requests end with EngineUnavailable. The engine itself goes on. Safe to call twice."""
        self._closed = self._closed or f"{self.url}: this client is closed"
        self._open.set()
        running = dict(self._running)
        if running:
            for task in running.values():
                task.cancel()
            await asyncio.wait(running.values(), timeout=self._bounds.control_s)  # they hold connections
            await self._abort_quietly(list(running))
        await self._wire.aclose()

    # One request ----------------------------------------------------------------------------------------------------

    def _next_id(self) -> str:
        """A request id that no other client of this engine uses."""
        return f"{self._name}-{next(self._ids)}"

    def _refuse_closed(self) -> None:
        if self._closed:
            raise EngineUnavailable(self._closed)

    async def _enter(self) -> float:
        """Wait for the gate, and for proof of the engine's weights where it was quiet for long; seconds waited."""
        began = time.monotonic()
        while True:
            try:
                async with asyncio.timeout(self._bounds.publish_s):
                    await self._open.wait()
            except TimeoutError:
                raise EngineTimeout(f"{self.url}: paused for longer than {self._bounds.publish_s:g} s") from None
            self._refuse_closed()
            if self._unknown:
                raise EngineUnavailable(self._unknown)
            if time.monotonic() - self._heard <= self._bounds.quiet_s:
                return time.monotonic() - began
            await self._verify()
            if self._open.is_set():
                return time.monotonic() - began

    async def _verify(self) -> None:
        """An engine that was started anew has its first weights again, and would not say so."""
        expected = self._version
        found = await self._engine_version()
        if found is not None and found != str(expected) and expected == self._version:
            raise EngineUnavailable(
                f"{self.url}: has weights {found!r} and not version {expected}: it was started anew, or somebody else "
                "publishes to it. Publish again"
            )
        self._heard = time.monotonic()

    async def _run(self, ask: Ask) -> Reply:
        """One request from sending to answer, known to `aclose` and `_drain` meanwhile."""
        task = asyncio.create_task(self._generate(ask))
        self._running[ask.id] = task
        self.meter.num_requests += 1
        try:
            await asyncio.wait({task}, timeout=self._bounds.request_s)
            if not task.done():
                raise EngineTimeout(f"{self.url}: no completion within {self._bounds.request_s:g} s")
            if task.cancelled():
                raise EngineUnavailable(self._closed or f"{self.url}: the request was dropped")
            reply = task.result()
            self._heard = time.monotonic()
            return reply
        except EngineUnavailable:
            self._heard = -float("inf")
            raise
        finally:
            if not task.done():  # cancelled or too late: nobody wants the rest
                task.cancel()
                await self._abort_quietly([ask.id])
            del self._running[ask.id]

    async def _abort_quietly(self, ids: list[str]) -> None:
        """Abort, bounded; an engine that does not answer is found out by the next request."""
        with contextlib.suppress(EngineError):
            await self._abort(ids)

    async def _drain(self) -> None:
        """Abort until nothing of ours runs: a request may still be on its way when it is aborted first."""
        deadline = time.monotonic() + self._bounds.drain_s
        while self._running:
            if time.monotonic() > deadline:
                raise EngineTimeout(f"{self.url}: {len(self._running)} requests could not be aborted")
            waiting = dict(self._running)
            await self._abort(list(waiting))
            await asyncio.wait(waiting.values(), timeout=0.2)
            await asyncio.sleep(0)

    # What a dialect says --------------------------------------------------------------------------------------------

    @abstractmethod
    async def _generate(self, ask: Ask) -> Reply:
        """Put one request, parse its answer."""

    @abstractmethod
    async def _abort(self, ids: list[str]) -> None:
        """Have the engine give up these requests; unknown ones are fine."""

    @abstractmethod
    async def _load(self, path: Path) -> None:
        """Load weights from disk."""

    @abstractmethod
    async def _swap(self, bring: Callable[[], Awaitable[None]], version: int) -> None:
        """Pause, let `bring` change the weights, drop every cache of the old ones, label them, go on."""

    @abstractmethod
    async def _engine_version(self) -> str | None:
        """The engine's label of its weights; None where it has no such thing."""

    @abstractmethod
    async def _label(self, version: int) -> None:
        """Label the weights that the engine has."""

    @abstractmethod
    async def _longest_context(self) -> int:
        """Tokens that a prompt and its completion may have together."""


def _next_seed(seed: int | None, turn: int) -> int | None:
    """The request's seed; another one after an interruption, or the same draws would be made twice."""
    if seed is None or turn == 0:
        return seed
    return int(np.random.SeedSequence((seed % 2**64, turn)).generate_state(1)[0])


async def longest_context(wire: Wire, timeout_s: float) -> tuple[int, str]:
    """(tokens, name of the model) by `/v1/models`, which both engines have."""
    answer = await wire.get("/v1/models", timeout_s=timeout_s)
    try:
        model = answer["data"][0]
        return int(model["max_model_len"]), str(model["id"])
    except (KeyError, IndexError, TypeError, ValueError):
        raise EngineError(f"{wire.url}/v1/models: says nothing of max_model_len; is this a vLLM or SGLang?") from None
