"""What crosses the gateway's wire, apart from any vendor's spelling of it.

A front end (`protocols/`) turns a body into a `Request` and a `Reply` into a body. The core (`sessions.py`) turns a
`Request` into a `Reply` by way of token ids. A `ChatRenderer` (`rendering/`) turns messages into ids and sampled ids
into a message. None of the three knows the others' insides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from t1.errors import T1Error
from t1.types import IntArray


class Role(StrEnum):
    """Who speaks. Vendors' `developer` is SYSTEM, `function` is TOOL."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that an assistant made."""

    id: str
    name: str
    arguments: str
    """JSON text as it was written: never parsed and written again on its way to ids."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str = ""
    reasoning: str = ""
    """What an ASSISTANT thought aloud, where the client keeps it; clients often drop it."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    """Of TOOL: the call that this answers."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the assistant may call."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """JSON schema."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call of a client. None = the client left it open."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    idempotency_key: str = ""
    """The same key again is the same call: it gets the same reply."""
    ignored: tuple[str, ...] = ()
    """Names of fields in the body that mean nothing here: accepted, counted, shown."""


class Finish(StrEnum):
    """Why a reply ended, as the client is told."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    STOP_SEQUENCE = "stop_sequence"
    """One of the client's stop strings was met; the text ends before it, the sampled tokens stay as they are."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a client gets."""

    id: str
    model: str
    message: Message
    finish: Finish
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    stop_sequence: str = ""
    """The stop string that was met."""


class GatewayError(T1Error):
    """A call that gets an error reply; nothing of the session changed."""

    def __init__(self, status: int, kind: str, message: str, param: str = "") -> None:
        """`status`: HTTP. `kind`: such as invalid_request_error. `param`: the field at fault."""
        self.status, self.kind, self.param = status, kind, param
        super().__init__(message)


@runtime_checkable
class Completer(Protocol):
    """The core of the gateway, as the front ends see it."""

    @property
    def models(self) -> tuple[str, ...]:
        """Names that `/v1/models` lists; a Request with another model gets a 404."""
        ...

    def check(self, session: str, key: str) -> str:
        """The session's id. `session` is "" when only the key names it.

        Raises GatewayError: 401 (no such key, or not this session's), 404 (no such session), 410 (closed).
        """
        ...

    async def complete(self, session: str, request: Request) -> Reply:
        """Sample a reply and record the turn. Cancelling the call leaves the session intact (an orphan reply is kept
        on record, not trained).

        Raises GatewayError: 400 (messages make no sense, or the prompt is longer than the context: kind
        `context_length_exceeded`), 404 (unknown model), 410 (closed meanwhile), 503 (the engine is down).
        """
        ...

    async def count_tokens(self, session: str, request: Request) -> int:
        """How many ids the prompt of this request would have; nothing is recorded."""
        ...


@runtime_checkable
class ChatRenderer(Protocol):
    """Conversations to ids and sampled ids to a message. What was sent or sampled is never rendered again."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a completion."""
        ...

    @property
    def boundary_ids(self) -> frozenset[int]:
        """Ids that may stand between a completion and the next message (stop, end of turn, newline, whitespace)."""
        ...

    def open(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> IntArray:
        """[P] the whole conversation and the generation prompt. Earlier assistant messages are context here."""
        ...

    def extend(self, completion: IntArray, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> IntArray:
        """Ids that follow `completion` [C]: its missing end of turn, the new messages, the generation prompt.

        Raises ValueError where the template cannot be continued this way (the caller then opens anew: a split).
        """
        ...

    def parse(self, completion: IntArray, tools: Sequence[Tool] = ()) -> Message:
        """The assistant message that `completion` [C] says. Never fails: what cannot be parsed is content."""
        ...

    def encode(self, text: str) -> IntArray:
        """Ids of text; control tokens spelled out in it stay text."""
        ...

    def decode(self, ids: IntArray) -> str:
        """Text of ids, control tokens spelled out."""
        ...
