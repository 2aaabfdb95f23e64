"""A Completer that plays a script: no tokens, no session core. For tests of front ends, agents and clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from t1.gateway.conversation import Finish, GatewayError, Message, Reply, Request, Role

Line: TypeAlias = Message | str | Exception
"""One reply: a message, its text alone, or what `complete` raises."""
Script: TypeAlias = Sequence[Line] | Callable[[Request], Line]
"""The replies in order, or a function from a request to its reply."""


class ScriptedCompleter:
    """Plays replies to whoever has the key. Counts tokens as words."""

    def __init__(
        self,
        script: Script = ("ok",),
        *,
        models: Sequence[str] = ("policy",),
        sessions: Mapping[str, str] | None = None,
        held: bool = False,
        max_prompt_tokens: int = 1 << 30,
    ) -> None:
        """`sessions`: session → key (default: s1 → key1). `held`: replies wait for `release`."""
        self._script, self._models = script, tuple(models)
        self._released = asyncio.Event()
        if not held:
            self._released.set()
        self._sessions = {"s1": "key1"} if sessions is None else dict(sessions)
        self._max_prompt_tokens = max_prompt_tokens
        self._played = 0
        self.asked: list[tuple[str, Request]] = []
        """(session, request) of every call that was completed or is under way."""
        self.cancelled = asyncio.Event()
        """Set once a call was cancelled while it waited."""
        self.closed: set[str] = set()
        """Sessions that are no longer served; add to it."""
        self.pending = asyncio.Event()
        """Set while a call waits for its reply."""

    def release(self) -> None:
        """Let the replies go that were held."""
        self._released.set()

    @property
    def models(self) -> tuple[str, ...]:
        """See `conversation.Completer`."""
        return self._models

    def check(self, session: str, key: str) -> str:
        """See `conversation.Completer`."""
        named = session or next((name for name, its_key in self._sessions.items() if its_key == key), "")
        if self._sessions.get(named) != key or not key:
            raise GatewayError(401, "authentication_error", "this key opens no session, or another one")
        if named in self.closed:
            raise GatewayError(410, "session_closed", f"session {named} is closed")
        return named

    async def complete(self, session: str, request: Request) -> Reply:
        """The next reply of the script."""
        prompt_tokens = await self.count_tokens(session, request)
        self.asked.append((session, request))
        number = self._played
        self._played += 1
        await self._wait()
        line = self._script(request) if callable(self._script) else self._script[number]
        if isinstance(line, Exception):
            raise line
        message = Message(Role.ASSISTANT, line) if isinstance(line, str) else line
        said = len(" ".join([message.reasoning, message.content, *(c.arguments for c in message.tool_calls)]).split())
        limit = request.max_tokens
        cut = limit is not None and said >= limit
        finish = Finish.LENGTH if cut else Finish.TOOL_CALLS if message.tool_calls else Finish.STOP
        return Reply(f"r{number}", request.model, message, finish, prompt_tokens, min(said, limit or said))

    async def count_tokens(self, session: str, request: Request) -> int:
        """See `conversation.Completer`; a token is a word here."""
        if request.model not in self._models:
            raise GatewayError(404, "model_not_found", f"no model {request.model}", "model")
        size = sum(len(message.content.split()) for message in request.messages)
        if size > self._max_prompt_tokens:
            limit = self._max_prompt_tokens
            raise GatewayError(
                400, "context_length_exceeded", f"{size} tokens > {limit}, this model's maximum context length"
            )
        return size

    async def _wait(self) -> None:
        self.pending.set()
        try:
            await self._released.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        finally:
            self.pending.clear()
