"""What one session recorded: exchanges as deltas, and the turns, orphans and changes that they amount to.

An exchange holds only the ids that it added and points to the one that it continues, so that a session grows with its
tokens and not with turns x tokens. Boundary: values; how an exchange is found again is in `history.py`.

Which replies are trained. Every reply is a turn, but two kinds are *orphans*, kept on record and not trained:
- *undelivered*: no client ever got it (it went away while the reply was sampled, and did not ask again);
- *superseded*: the client did not go on from it, sent the identical request again, and either did so right away, with
  no other call in between, as one does whose own patience ended, or went on from the later reply.
A reply that a client went on from was seen, whatever was thought of it before: it is a turn. So is one that no call
goes on from and that was asked for again only after other calls: agents ask aside (a summary, a title), use the answer
elsewhere, and may ask in the same words again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

import numpy as np

from t1.gateway.canonical import ChangeKind
from t1.gateway.conversation import Finish, Message, Tool
from t1.types import FinishReason, FloatArray, IntArray, RoutingArray, SampleTimings, SamplingParams, StopReason, Turn


@dataclass(slots=True, eq=False)
class Exchange:
    """One call and its reply. Only `delivered` and `followed` ever change."""

    number: int
    """Place of the call among those of its session, by when they began."""
    parent: Exchange | None
    """The exchange whose ids this prompt extends; None = the conversation was opened."""
    added: IntArray
    """[A] what the prompt has beyond the parent's prompt and completion."""
    completion: IntArray
    """[C]"""
    logprobs: FloatArray
    """[C]"""
    versions: IntArray
    """[C]"""
    finish: FinishReason
    routing: RoutingArray | None
    """[P+C−1−routing_start, L, K]"""
    routing_start: int
    timings: SampleTimings
    tools: tuple[Tool, ...]
    messages: tuple[Message, ...]
    """What the client added after the parent's reply; the whole conversation where there is no parent."""
    reply: Message
    request: bytes
    """[16] identity of the request: the same conversation and the same wishes."""
    ended: Finish
    """Why the reply ended, as the client was told."""
    stop_sequence: str
    """The client's stop string that was met."""
    idempotency_key: str
    lane: str
    """The sampler's name of the conversation: what its cache is kept under."""
    changes: tuple[tuple[ChangeKind, str], ...] = ()
    """What was noticed in this call."""
    length: int = field(init=False)
    """P + C."""
    delivered: bool = False
    """A client got the reply."""
    followed: bool = False
    """A client went on from the reply."""

    def __post_init__(self) -> None:
        self.length = (self.parent.length if self.parent else 0) + len(self.added) + len(self.completion)

    def lineage(self) -> list[Exchange]:
        """From the opening call to this one."""
        chain: list[Exchange] = []
        at: Exchange | None = self
        while at is not None:
            chain.append(at)
            at = at.parent
        return chain[::-1]


def ids_of(tip: Exchange | None, *more: IntArray) -> IntArray:
    """[T] prompt and completion of `tip`, then `more`: one concatenation."""
    pieces = [] if tip is None else [piece for one in tip.lineage() for piece in (one.added, one.completion)]
    return np.concatenate([*pieces, *more], dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Change:
    """Something that a client changed."""

    turn: int
    """The turn in whose prompt it was noticed; −1 where that call's reply is an orphan."""
    kind: ChangeKind
    detail: str


class OrphanReason(StrEnum):
    """Why a reply is not trained."""

    UNDELIVERED = "undelivered"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Orphan:
    """A reply that is on record and not trained."""

    turn: Turn
    reason: OrphanReason


@dataclass(frozen=True, slots=True)
class Recorded:
    """All of a session."""

    session: str
    turns: tuple[Turn, ...]
    changes: tuple[Change, ...] = ()
    orphans: tuple[Orphan, ...] = ()
    stop: StopReason | None = None
    """The limit of the session that refused a call, if one did."""
    failure: Exception | None = None
    """What the last call died of, the engine or a part of ours, where no reply came after it."""
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Opening:
    """A session as it was opened: the first entry of its log."""

    session: str
    key_digest: bytes
    """sha256 of the key; the key itself is not kept."""
    params: SamplingParams
    seed: int | None = None
    max_turns: int | None = None
    max_sampled_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """A client got the reply of exchange `number`."""

    number: int


@dataclass(frozen=True, slots=True)
class Closing:
    """The session was closed: the last entry of its log."""


Entry: TypeAlias = Opening | Exchange | Delivered | Closing
"""What happened in a session, in order: enough to restore it."""


def orphaned(exchanges: Sequence[Exchange]) -> dict[int, OrphanReason]:
    """Numbers of the exchanges (in order of their numbers) that are not trained, with the reason."""
    reasons: dict[int, OrphanReason] = {}
    replies: dict[bytes, list[int]] = {}
    for place, exchange in enumerate(exchanges):
        if not exchange.delivered and not exchange.followed:
            reasons[exchange.number] = OrphanReason.UNDELIVERED
        else:
            replies.setdefault(exchange.request, []).append(place)
    for places in replies.values():
        followed = [place for place in places if exchanges[place].followed]
        for place in places:
            if place not in followed and (place + 1 in places or place < max(followed, default=-1)):
                reasons[exchanges[place].number] = OrphanReason.SUPERSEDED
    return reasons


def turns_of(exchanges: Sequence[Exchange]) -> dict[int, Turn]:
    """{number: turn} in the order in which tokens were sampled.

    Turns of one branch share the memory of its longest one: a branch of T tokens takes T ids, however many turns.
    Order: by weights version, then by when the call began, so that versions never step back where that can be had.
    """
    arrays: dict[int, IntArray] = {}
    for exchange in sorted(exchanges, key=lambda one: -one.length):
        if exchange.number not in arrays:
            ids = ids_of(exchange)
            ids.setflags(write=False)
            arrays |= {one.number: ids for one in exchange.lineage() if one.number not in arrays}
    ordered = sorted(exchanges, key=lambda one: (one.versions[0], one.versions[-1], one.number))
    observed = _observations(exchanges)
    return {one.number: _turn(one, arrays[one.number], observed.get(one.number, "")) for one in ordered}


def _observations(exchanges: Sequence[Exchange]) -> dict[int, str]:
    """What clients answered to a reply, by its number; the last continuation's, where there are several."""
    return {
        one.parent.number: "\n".join(message.content for message in one.messages)
        for one in exchanges
        if one.parent is not None
    }


def _turn(exchange: Exchange, ids: IntArray, observation: str) -> Turn:
    """The turn of an exchange; `ids` [≥ P + C] begin with its prompt and completion."""
    start = exchange.length - len(exchange.completion)
    return Turn(
        prompt=ids[:start],
        completion=ids[start : exchange.length],
        logprobs=exchange.logprobs,
        versions=exchange.versions,
        finish=exchange.finish,
        routing=exchange.routing,
        routing_start=exchange.routing_start,
        action=_spoken(exchange.reply),
        observation=observation,
        timings=exchange.timings,
    )


def _spoken(reply: Message) -> str:
    """A reply as a person reads it."""
    calls = [f"{call.name} {call.arguments}" for call in reply.tool_calls]
    return "\n".join(filter(None, [reply.reasoning, reply.content, *calls]))


def record_of(
    session: str,
    exchanges: Sequence[Exchange],
    *,
    stop: StopReason | None,
    failure: Exception | None,
    counts: Mapping[str, int],
) -> Recorded:
    """Everything that a session amounts to."""
    reasons = orphaned(exchanges)
    turns = turns_of(exchanges)
    kept = [number for number in turns if number not in reasons]
    place = {number: index for index, number in enumerate(kept)}
    return Recorded(
        session=session,
        turns=tuple(turns[number] for number in kept),
        changes=tuple(
            Change(place.get(one.number, -1), kind, detail) for one in exchanges for kind, detail in one.changes
        ),
        orphans=tuple(Orphan(turns[number], reason) for number, reason in reasons.items()),
        stop=stop,
        failure=failure,
        counts=dict(counts),
    )
