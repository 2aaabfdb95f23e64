"""One session: a client's calls, each answered by way of recorded ids.

A call is matched against the history, its prompt is assembled from recorded ids and newly encoded messages, a reply is
sampled and committed. Until it is committed nothing of the session has changed (case T9). Boundary: one session; keys
and other sessions are the Gateway's (`sessions.py`), files are `capture.py`'s.

One request, one decision. *The same request* is the same conversation (forgiven differences aside) with the same wishes
and idempotency key.
- While it is being sampled, whoever asks again waits for the same reply.
- A reply that no client got (the client went away; sampling goes on to its end) is given to whoever asks again.
- With an idempotency key the reply stays the reply.
- Without one, asking again after a delivered reply samples anew; `ledger.py` says which replies are trained.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from t1.errors import EngineTimeout, InfrastructureError, PromptMismatch
from t1.gateway.canonical import ChangeKind
from t1.gateway.config import GatewayConfig
from t1.gateway.conversation import ChatRenderer, Finish, GatewayError, Message, Request
from t1.gateway.history import History, Match
from t1.gateway.lanes import Lane, Lanes
from t1.gateway.ledger import Delivered, Entry, Exchange, Opening, Recorded, ids_of, record_of
from t1.gateway.requests import check_messages, identity_of
from t1.protocols import Sampler
from t1.types import FinishReason, IntArray, RoutingArray, Sample, SamplingParams, StopReason

OFF_LOOP_CHARS = 16_384
"""Texts longer than this are encoded in a thread, so that other sessions' calls go on."""
SEEDS_PER_SESSION = 4096
CLOSE_S = 10.0
MAX_COUNTS = 256


class _Prompt(NamedTuple):
    """What a call sends."""

    parent: Exchange | None
    added: IntArray
    """[A]"""
    changes: tuple[tuple[ChangeKind, str], ...]


@dataclass(slots=True, eq=False)
class _Call:
    """A request that is being sampled."""

    number: int
    task: asyncio.Task[Exchange]


class Session:
    """The state of one session; lives in one event loop."""

    def __init__(
        self,
        opening: Opening,
        *,
        sampler: Sampler,
        renderer: ChatRenderer,
        config: GatewayConfig,
        log: Callable[[Entry], None],
    ) -> None:
        self.opening, self.name = opening, opening.session
        self.counts: Counter[str] = Counter()
        self.spent = asyncio.Event()
        """Set once a limit of this session refused a call."""
        self._limit_met: StopReason | None = None
        self._context_full = False
        self.failure: Exception | None = None
        """What the last call died of; None again once a reply came after it."""
        self.closed = False
        self._sampler, self._renderer, self._config, self._log = sampler, renderer, config, log
        self._history = History()
        self._lanes = Lanes(self.name, config.max_lanes)
        self._exchanges: dict[int, Exchange] = {}
        self._running: dict[bytes, _Call] = {}
        """By identity of the request."""
        self._answers: dict[bytes, Exchange] = {}
        """By identity: the latest reply."""
        self._keys: dict[str, bytes] = {}
        """Idempotency key → identity."""
        self._next = 0
        self._sampled = 0

    @property
    def idle(self) -> bool:
        """True when nothing is being sampled."""
        return not self._running

    @property
    def stop(self) -> StopReason | None:
        """The limit that refused a call. A client that comes back with a shorter prompt was not stopped by it."""
        return self._limit_met or (StopReason.TOKEN_LIMIT if self._context_full else None)

    def record(self) -> Recorded:
        """Everything so far."""
        exchanges = [self._exchanges[number] for number in sorted(self._exchanges)]
        return record_of(self.name, exchanges, stop=self.stop, failure=self.failure, counts=self.counts)

    def restore(self, entries: Iterable[Exchange | Delivered]) -> None:
        """Take in what a log holds. Sampler caches are gone, so lanes start anew."""
        for entry in entries:
            if isinstance(entry, Delivered):
                self._exchanges[entry.number].delivered = True
            else:
                self._take(entry)
                self._next = max(self._next, entry.number + 1)

    async def complete(self, request: Request) -> Exchange:
        """The reply to a request, sampled unless it is there already."""
        check_messages(request.messages)
        match = self._history.match(request.messages, request.tools)
        identity = identity_of(match, request)
        if self._keys.get(request.idempotency_key, identity) != identity:
            message = "this idempotency key was used for another request: use a new key for each request"
            raise GatewayError(409, "idempotency_error", message, "idempotency_key")
        call = self._running.get(identity)
        if call is None and (answer := self._answer_again(identity, request)) is not None:
            self.counts["redelivered"] += 1
            return self._deliver(answer)
        if call is None:
            self._check_limits()
            call = self._begin(match, request, identity)
        else:
            self.counts["joined"] += 1
        await asyncio.wait({call.task})  # cancelling this wait leaves the sampling alone
        if call.task.cancelled():
            raise closed_error(self.name)
        return self._deliver(call.task.result())

    async def count_tokens(self, request: Request) -> int:
        """[P] of the prompt that the request would have."""
        check_messages(request.messages)
        prompt = await self._encode(self._history.match(request.messages, request.tools))
        return (prompt.parent.length if prompt.parent else 0) + len(prompt.added)

    async def close(self) -> Recorded:
        """Cancel what is being sampled, free the sampler's caches, hand out the record."""
        self.closed = True
        tasks = [call.task for call in self._running.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        await asyncio.gather(*(self._free(lane) for lane in self._lanes.names))
        return self.record()

    async def _free(self, lane: str) -> None:
        """Have the sampler forget a cache. Where it cannot, that is its own loss: counted."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._sampler.close_session(lane)
        except (InfrastructureError, TimeoutError):
            self.counts["caches_not_closed"] += 1

    # ---- a call ---------------------------------------------------------------------------------------------------

    def _answer_again(self, identity: bytes, request: Request) -> Exchange | None:
        """The reply that a request has already: always with an idempotency key, else one that nobody got."""
        answer = self._answers.get(identity)
        if answer is None or request.idempotency_key or not (answer.delivered or answer.followed):
            return answer
        return None

    def _deliver(self, exchange: Exchange) -> Exchange:
        """A client gets the reply, unless the session was closed just now."""
        if self.closed:
            raise closed_error(self.name)
        if not exchange.delivered:
            exchange.delivered = True
            self._log(Delivered(exchange.number))
        return exchange

    def _check_limits(self) -> None:
        """Refuse a call that may not be sampled, with the limit's own kind."""
        config, opening = self._config, self.opening
        max_turns = opening.max_turns if opening.max_turns is not None else config.max_turns
        if max_turns is not None and len(self._exchanges) + len(self._running) >= max_turns:
            raise self._limit(StopReason.TURN_LIMIT, f"the session's {max_turns} turns are used up")
        if self._tokens_left() <= 0:
            raise self._limit(StopReason.TOKEN_LIMIT, f"the session's {self._sampled} sampled tokens are used up")
        if len(self._running) >= config.max_pending:
            message = f"{len(self._running)} calls of this session are being sampled: wait for one of them"
            raise GatewayError(429, "rate_limit_error", message)

    def _limit(self, reason: StopReason, message: str) -> GatewayError:
        self._limit_met = reason
        self.spent.set()
        self.counts["refused_by_limit"] += 1
        # Not 429: clients would try again by themselves until their own patience ends.
        return GatewayError(403, str(reason), f"{message}; the episode is over")

    def _tokens_left(self) -> int:
        """Tokens that the session may still sample. Calls at once may each use them."""
        own = self.opening.max_sampled_tokens
        limit = own if own is not None else self._config.max_sampled_tokens
        return self._sampler.max_context if limit is None else limit - self._sampled

    def _begin(self, match: Match, request: Request, identity: bytes) -> _Call:
        """Start sampling, in a task that outlives a client which goes away."""
        number, self._next = self._next, self._next + 1
        self.counts["calls"] += 1
        self._count(f"ignored.{name}" for name in request.ignored)
        if match.tip is not None:
            match.tip.followed = True
        working = self._answer(number, match, request, identity)
        call = _Call(number, asyncio.create_task(working, name=f"{self.name} call {number}"))
        self._running[identity] = call
        if request.idempotency_key:
            self._keys[request.idempotency_key] = identity
        call.task.add_done_callback(lambda task: self._ended(identity, request.idempotency_key, task))
        return call

    def _ended(self, identity: bytes, key: str, task: asyncio.Task[Exchange]) -> None:
        """A task is done. What failed may be tried again, under the same key too."""
        del self._running[identity]
        if task.cancelled() or task.exception() is not None:
            self.counts["failed"] += 1
            self._keys.pop(key, None)

    async def _answer(self, number: int, match: Match, request: Request, identity: bytes) -> Exchange:
        """Encode, sample, commit."""
        prompt = await self._encode(match)
        ids = ids_of(prompt.parent, prompt.added)
        if len(ids) >= self._sampler.max_context:
            self.counts["context_exceeded"] += 1
            self._context_full = True
            message = f"the prompt has {len(ids)} tokens, the context {self._sampler.max_context}: send a shorter one"
            raise GatewayError(400, "context_length_exceeded", message, "messages")
        self.counts["encoded_tokens"] += len(prompt.added)
        params = self._params(request, len(ids), number)
        first = self._answers.get(identity)
        lane, exchange = self._lanes.enter(prompt.parent, first.lane if first else None), None
        try:
            sample = await self._sample(ids, params, lane, self._routing_start(prompt.parent, number))
            exchange = self._exchange(number, prompt, sample, match, request, identity, lane)
            self._commit(match, exchange)
        finally:
            self._lanes.leave(lane, exchange)
        return exchange

    async def _encode(self, match: Match) -> _Prompt:
        """The ids that the recorded ones lack. Raises GatewayError where the messages cannot be rendered."""
        changes = match.changes
        if match.tip is not None:
            try:
                more = await self._render(
                    self._renderer.extend, match.new, match.tip.completion, match.new, match.tools
                )
                return _Prompt(match.tip, more, changes)
            except ValueError as error:
                changes = (*changes, (ChangeKind.NOT_CONTINUED, str(error)))
        try:
            opened = await self._render(self._renderer.open, match.messages, match.messages, match.tools)
        except ValueError as error:
            raise GatewayError(400, "invalid_request_error", f"messages: {error}", "messages") from error
        return _Prompt(None, opened, changes)

    async def _render(self, render: Callable[..., IntArray], messages: Iterable[Message], *given: object) -> IntArray:
        """[A] long texts in a thread."""
        size = sum(len(m.content) + sum(len(call.arguments) for call in m.tool_calls) for m in messages)
        return render(*given) if size <= OFF_LOOP_CHARS else await asyncio.to_thread(render, *given)

    def _params(self, request: Request, prompt_tokens: int, number: int) -> SamplingParams:
        """The session's distribution, or the client's where that is allowed."""
        own = self.opening.params
        seed = None if self.opening.seed is None else self.opening.seed * SEEDS_PER_SESSION + number
        params = replace(own, seed=seed, stop_ids=self._renderer.stop_ids)
        wishes = {name: getattr(request, name) for name in ("temperature", "top_p", "top_k", "seed")}
        wished = {name: value for name, value in wishes.items() if value is not None}
        if self._config.sampling == "client":
            params = replace(params, **wished)
        else:
            self._count(f"overridden.{name}" for name, value in wished.items() if value != getattr(params, name))
        bounds = (own.max_tokens, self._sampler.max_context - prompt_tokens, self._tokens_left())
        return replace(params, max_tokens=max(1, min(*bounds, request.max_tokens or own.max_tokens)))

    def _routing_start(self, parent: Exchange | None, number: int) -> int:
        """The first row that a call needs: those before it are its parent's, if the parent comes right before it.

        Otherwise the call opens a segment of its own when turns are assembled, and whether older rows may be lent to
        that depends on the weights: so all are asked for, and `_rows` keeps what is needed.
        """
        others = [n for n in self._exchanges if n < number] + [call.number for call in self._running.values()]
        latest = max((other for other in others if other != number), default=-1)
        return parent.length - 1 if parent is not None and latest == parent.number else 0

    async def _sample(self, ids: IntArray, params: SamplingParams, lane: Lane, routing_start: int) -> Sample:
        """Ask the sampler, with a bound. An engine that fails is a 503; the session stays as it was."""
        bound = asyncio.timeout(self._config.sample_timeout_s)
        try:
            async with bound:
                sample = await self._sampler.sample(ids, params, session=lane.name, routing_start=routing_start)
            if not np.array_equal(sample.prompt, ids):
                raise PromptMismatch(f"sent {len(ids)} prompt ids, the engine saw {len(sample.prompt)} others")
            return sample
        except TimeoutError as error:
            if not bound.expired():
                self.failure = error
                raise
            self.failure = EngineTimeout(f"no reply in {self._config.sample_timeout_s:g} s")
            self.failure.__cause__ = error
        except Exception as error:
            self.failure = error
            if not isinstance(error, InfrastructureError):
                raise
        self.counts["engine_failures"] += 1
        kind = type(self.failure).__name__
        raise GatewayError(503, "engine_error", f"{kind}: {self.failure}; the call may be tried again")

    def _exchange(
        self,
        number: int,
        prompt: _Prompt,
        sample: Sample,
        match: Match,
        request: Request,
        identity: bytes,
        lane: Lane,
    ) -> Exchange:
        """A sample as a reply on record."""
        reply, stop = self._reply(number, sample, request)
        start, routing = _rows(prompt.parent, sample)
        return Exchange(
            number=number,
            parent=prompt.parent,
            added=prompt.added,
            completion=sample.completion.copy(),
            logprobs=sample.logprobs.copy(),  # a view of more would keep all of it
            versions=sample.versions.copy(),
            finish=sample.finish,
            routing=routing,
            routing_start=start,
            timings=sample.timings,
            tools=match.tools,
            messages=match.new if prompt.parent is not None else match.messages,
            reply=reply,
            request=identity,
            ended=_ended(sample, reply, stop),
            stop_sequence=stop,
            idempotency_key=request.idempotency_key,
            lane=lane.name,
            changes=prompt.changes,
        )

    def _reply(self, number: int, sample: Sample, request: Request) -> tuple[Message, str]:
        """What the client is told, and the stop string that ended it. The sampled ids stay as they are."""
        message = self._renderer.parse(sample.completion, request.tools)
        # Ids that no other reply of the session has, whatever the parser calls them.
        calls = tuple(
            replace(call, id=f"call_{number}_{index}_{secrets.token_hex(4)}")
            for index, call in enumerate(message.tool_calls)
        )
        message = replace(message, tool_calls=calls)
        met = [(at, stop) for stop in request.stop if stop and (at := message.content.find(stop)) >= 0]
        if not met:
            return message, ""
        at, stop = min(met)
        return replace(message, content=message.content[:at], tool_calls=()), stop

    def _commit(self, match: Match, exchange: Exchange) -> None:
        """From here on the exchange is on record. No await in here."""
        for one in match.respelled:
            self._history.respell(*one)
        self._take(exchange)
        self.failure, self._context_full = None, False
        self._log(exchange)

    def _take(self, exchange: Exchange) -> None:
        self._history.add(exchange)
        self._exchanges[exchange.number] = exchange
        self._answers[exchange.request] = exchange
        self._sampled += len(exchange.completion)
        if exchange.parent is not None:
            exchange.parent.followed = True
        if exchange.idempotency_key:
            self._keys[exchange.idempotency_key] = exchange.request

    def _count(self, names: Iterable[str]) -> None:
        """Count names that a client chose: not without end."""
        for name in names:
            if name in self.counts or len(self.counts) < MAX_COUNTS:
                self.counts[name] += 1


def closed_error(session: str) -> GatewayError:
    """What calls of a closed session get."""
    return GatewayError(410, "session_closed", f"session {session} is closed; open another one")


def _rows(parent: Exchange | None, sample: Sample) -> tuple[int, RoutingArray | None]:
    """(first row, rows) to keep: rows that the parents have are not kept twice where theirs are of the same weights."""
    if sample.routing is None or parent is None:
        return sample.routing_start, sample.routing
    needed = parent.length - 1
    version = sample.versions[0]
    if sample.routing_start >= needed or not all((one.versions == version).all() for one in parent.lineage()):
        return sample.routing_start, sample.routing
    return needed, sample.routing[needed - sample.routing_start :].copy()


def _ended(sample: Sample, reply: Message, stop: str) -> Finish:
    """Why a reply ended, as the client is told."""
    if stop:
        return Finish.STOP_SEQUENCE
    if sample.finish is FinishReason.LENGTH:
        return Finish.LENGTH
    return Finish.TOOL_CALLS if reply.tool_calls else Finish.STOP
