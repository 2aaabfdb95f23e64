"""The gateway: many sessions over one sampler, each reachable with its own key only.

`Gateway` is the `Completer` that the front ends speak to and what a harness opens and closes sessions with. Boundary:
who may do what, and the life of sessions; what a call does is in `core.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from t1.gateway.capture import Capture, Restored
from t1.gateway.config import GatewayConfig
from t1.gateway.conversation import ChatRenderer, GatewayError, Reply, Request
from t1.gateway.core import Session, closed_error
from t1.gateway.ledger import Closing, Exchange, Opening, Recorded
from t1.protocols import Sampler
from t1.types import SamplingParams, Turn

DEFAULTS = GatewayConfig()
MAX_TOMBS = 65_536
"""So many closed sessions are remembered, so that their calls get a 410 and not a 401."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A session and the only key that reaches it."""

    session: str
    key: str


class Gateway:
    """Token-in, token-out for clients that speak text. Lives in one event loop; close it, or use it as a context."""

    def __init__(
        self,
        sampler: Sampler,
        renderer: ChatRenderer,
        config: GatewayConfig = DEFAULTS,
        *,
        record: Path | None = None,
    ) -> None:
        """`record`: a directory in which sessions are kept as they grow; those that are open in it are restored.

        Raises RunError where the directory is in use by another gateway, or cannot be written.
        """
        self.config = config
        self.counts: Counter[str] = Counter()
        """Over closed sessions."""
        self._sampler, self._renderer = sampler, renderer
        self._sessions: dict[str, Session] = {}
        self._used: OrderedDict[str, float] = OrderedDict()
        """Open sessions, that used longest ago first."""
        self._keys: dict[bytes, str] = {}
        self._tombs: OrderedDict[bytes, str] = OrderedDict()
        self._closing: set[asyncio.Task[Recorded]] = set()
        self._capture = None if record is None else Capture(record, fsync_s=config.fsync_s)
        self.restored: tuple[Restored, ...] = self._restore()
        """What was found in `record`."""

    @property
    def models(self) -> tuple[str, ...]:
        """Names that clients may ask for."""
        return self.config.models

    @property
    def sessions(self) -> tuple[str, ...]:
        """Open sessions."""
        return tuple(self._sessions)

    @property
    def capture_error(self) -> str:
        """Why replies are not being recorded just now; "" when they are, or need not be."""
        return self._capture.error if self._capture is not None else ""

    def open(
        self,
        session: str | None = None,
        *,
        params: SamplingParams | None = None,
        seed: int | None = None,
        max_turns: int | None = None,
        max_sampled_tokens: int | None = None,
    ) -> Opened:
        """Open a session. What is not given is as the configuration has it; call n samples with seed · 4096 + n.

        Raises ValueError where the session is open already, GatewayError (503) where there is no room for another.
        """
        key = f"t1-{secrets.token_urlsafe(32)}"
        name = session if session is not None else f"session-{secrets.token_hex(8)}"
        if not name:
            raise ValueError("session: expected a name, got an empty one")
        if name in self._sessions:
            raise ValueError(f"session {name} is open already: close it first")
        self._admit(Opening(name, _digest(key), params or self._params(), seed, max_turns, max_sampled_tokens))
        return Opened(name, key)

    def check(self, session: str, key: str) -> str:
        """The session that a key reaches. See `Completer.check`."""
        digest = _digest(key)
        if (owned := self._keys.get(digest)) is not None:
            if session in ("", owned):
                return owned
            if session in self._sessions:
                raise GatewayError(401, "authentication_error", "this key is another session's")
            raise GatewayError(404, "not_found_error", f"no session {session!r} is open")
        if (tomb := self._tombs.get(digest)) is not None and session in ("", tomb):
            raise closed_error(tomb)
        if self.config.open_keys and key and session not in self._sessions:
            name = session or f"key-{digest.hex()[:16]}"
            self._admit(Opening(name, digest, self._params()))
            return name
        raise GatewayError(401, "authentication_error", "no session has this key; the gateway gives one for each")

    async def complete(self, session: str, request: Request) -> Reply:
        """Sample a reply and record the turn. See `Completer.complete` and `core.py`."""
        live = self._live(session, request.model)
        exchange = await live.complete(request)
        return _reply(exchange, request.model)

    async def count_tokens(self, session: str, request: Request) -> int:
        """How many ids the prompt of this request would have; nothing is recorded."""
        return await self._live(session, request.model).count_tokens(request)

    async def spent(self, session: str) -> None:
        """Returns once a limit of the session refused a call: nothing more will come of it."""
        await self._live(session).spent.wait()

    def turns(self, session: str) -> tuple[Turn, ...]:
        """The turns of an open session so far."""
        return self.record(session).turns

    def record(self, session: str) -> Recorded:
        """Everything of an open session so far."""
        return self._live(session).record()

    async def close(self, session: str) -> Recorded:
        """End a session: what is being sampled is cancelled, its calls get a 410 from now on."""
        return await self._bury(self._live(session))

    async def aclose(self, *, keep_open: bool = False) -> None:
        """Close every session and what records them. `keep_open`: the next gateway on the same record goes on."""
        live = [] if keep_open else list(self._sessions.values())
        await asyncio.gather(*(self._bury(session) for session in live))
        if self._closing:
            await asyncio.wait(self._closing)
        if keep_open:
            await asyncio.gather(*(session.close() for session in self._sessions.values()))
            self._sessions.clear()
        if self._capture is not None:
            await asyncio.to_thread(self._capture.close)

    async def __aenter__(self) -> Gateway:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _params(self) -> SamplingParams:
        wanted = self.config.distribution
        return SamplingParams(wanted.temperature, wanted.top_p, wanted.top_k, max_tokens=self.config.max_tokens)

    def _live(self, session: str, model: str | None = None) -> Session:
        """An open session, now the one used last. Raises GatewayError: 404, 410."""
        live = self._sessions.get(session)
        if live is None:
            if session in self._tombs.values():
                raise closed_error(session)
            raise GatewayError(404, "not_found_error", f"no session {session!r} is open")
        if model is not None and model not in self.models:
            known = ", ".join(self.models)
            raise GatewayError(404, "model_not_found", f"model {model!r} is not served here; there is {known}", "model")
        self._used[session] = time.monotonic()
        self._used.move_to_end(session)
        return live

    def _admit(self, opening: Opening) -> None:
        """Make room for a session and take it in."""
        capture, bound = self._capture, self.config.max_capture_behind
        if capture is not None and capture.num_behind > bound:
            raise GatewayError(503, "overloaded_error", f"recording is {capture.num_behind} entries behind: try later")
        if len(self._sessions) >= self.config.max_sessions:
            self._make_room()
        self._start(opening)
        if capture is not None:
            capture.start(opening)

    def _start(self, opening: Opening) -> Session:
        name = opening.session

        def log(entry: object) -> None:
            if self._capture is not None:
                self._capture.write(name, entry)  # type: ignore[arg-type]

        session = Session(opening, sampler=self._sampler, renderer=self._renderer, config=self.config, log=log)
        self._sessions[name] = session
        self._used[name] = time.monotonic()
        self._keys[opening.key_digest] = name
        self._tombs.pop(opening.key_digest, None)
        return session

    def _make_room(self) -> None:
        """Sessions that keys opened have nobody who closes them: the one idle longest goes."""
        idle = next((name for name in self._used if self._sessions[name].idle), None) if self.config.open_keys else None
        if idle is None:
            limit = self.config.max_sessions
            raise GatewayError(503, "overloaded_error", f"{limit} sessions are open: close one of them first")
        session = self._sessions[idle]
        self._forget(session)
        task = asyncio.ensure_future(session.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _bury(self, session: Session) -> Recorded:
        self._forget(session)
        recorded = await session.close()
        self.counts.update(recorded.counts)
        return recorded

    def _forget(self, session: Session) -> None:
        """From now on the session is closed."""
        digest = session.opening.key_digest
        del self._sessions[session.name], self._used[session.name], self._keys[digest]
        self._tombs[digest] = session.name
        if len(self._tombs) > MAX_TOMBS:
            self._tombs.popitem(last=False)
        if self._capture is not None:
            self._capture.write(session.name, Closing())

    def _restore(self) -> tuple[Restored, ...]:
        """The sessions that an earlier gateway left open."""
        if self._capture is None:
            return ()
        found = []
        with contextlib.ExitStack() as undo:
            undo.callback(self._capture.close)
            for restored, opening, entries in self._capture.restore():
                self._start(opening).restore(entries)
                found.append(restored)
            undo.pop_all()
        return tuple(found)


def _digest(key: str) -> bytes:
    """sha256 of a key. Keys are found by their digest, so that how long a look-up takes says nothing about a key."""
    return sha256(key.encode("utf-8", "surrogatepass")).digest()


def _reply(exchange: Exchange, model: str) -> Reply:
    """An exchange as its client is told."""
    completion = len(exchange.completion)
    return Reply(
        id=f"t1-{exchange.request.hex()[:16]}-{exchange.number}",
        model=model,
        message=exchange.reply,
        finish=exchange.ended,
        prompt_tokens=exchange.length - completion,
        completion_tokens=completion,
        cached_tokens=exchange.timings.cached_tokens,
        stop_sequence=exchange.stop_sequence,
    )
