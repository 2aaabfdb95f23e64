"""How the recorded ids of a conversation are found again: a tree of messages, walked along what a client sends.

A node is a message; a node that holds an exchange is a reply whose ids are on record. Branches, sub-agents and retries
are simply other paths. A message that was seen before costs one look-up by its exact spelling; only a new message, or a
new spelling, is canonicalised. Boundary: messages to exchanges; nothing here samples, renders or waits, and a match
changes nothing until it is committed (case T9).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from t1.gateway.canonical import (
    NO_CALL,
    ChangeKind,
    differences,
    digest,
    fills_in,
    message_key,
    plain_text,
    same_reasoning,
    tools_key,
)
from t1.gateway.conversation import Message, Role, Tool
from t1.gateway.ledger import Exchange

MAX_SPELLINGS = 16
"""So many spellings of a node's children are remembered; more are canonicalised each time."""

NOTHING = Message(Role.SYSTEM)
"""Stands at a root."""


class Node:
    """A message after those of its ancestors."""

    __slots__ = ("chain", "children", "exchange", "message", "spellings")

    def __init__(self, chain: bytes, message: Message = NOTHING) -> None:
        self.chain = chain
        """[16] names the whole conversation up to here, forgiven differences aside."""
        self.message = message
        """As it was first seen."""
        self.exchange: Exchange | None = None
        """The reply's ids, where this message is one that was sampled."""
        self.children: dict[bytes, list[Node]] | None = None
        """By message key; several where only the reasoning tells them apart."""
        self.spellings: dict[Message, Node] | None = None
        """By exact spelling."""

    def known(self, message: Message) -> Node | None:
        """The child of this very spelling."""
        return None if self.spellings is None else self.spellings.get(message)

    def alike(self, message: Message, key: bytes) -> Node | None:
        """The child that `message` is, forgiven differences aside: that of the same reasoning, else the latest."""
        nodes = [node for node in self.under(key) if same_reasoning(node.message, message)]
        return self.twin(message, key) or (nodes[-1] if nodes else self.filled(message))

    def filled(self, message: Message) -> Node | None:
        """The reply that came back as `message` with arguments filled in."""
        if not message.tool_calls or self.children is None:
            return None
        replies = [node for nodes in self.children.values() for node in nodes if node.exchange is not None]
        return next((node for node in reversed(replies) if fills_in(node.message, message)), None)

    def twin(self, message: Message, key: bytes) -> Node | None:
        """The child of this key and this very reasoning."""
        thought = plain_text(message.reasoning)
        return next((node for node in self.under(key) if plain_text(node.message.reasoning) == thought), None)

    def under(self, key: bytes) -> list[Node]:
        """The children of a key."""
        return [] if self.children is None else self.children.get(key, [])

    def grow(self, message: Message, key: bytes) -> Node:
        """The child for `message`; made where there is none."""
        node = self.known(message) or self.twin(message, key)
        if node is None:
            node = Node(link(self.chain, message, key), message)
            self.children = self.children or {}
            self.children.setdefault(key, []).append(node)
        self.spell(message, node)
        return node

    def spell(self, message: Message, node: Node) -> None:
        """Remember a spelling of a child."""
        self.spellings = self.spellings or {}
        if len(self.spellings) < MAX_SPELLINGS:
            self.spellings[message] = node


def link(chain: bytes, message: Message, key: bytes) -> bytes:
    """[16] the chain one message further. Reasoning counts here: replies that differ in it are two conversations."""
    return digest(chain, key, plain_text(message.reasoning)) if message.reasoning else digest(chain, key)


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """A conversation as a client sent it, against the tree."""

    messages: tuple[Message, ...]
    """All of it."""
    tip: Exchange | None
    """The last recorded reply on its path; None = none of it is recorded."""
    new: tuple[Message, ...]
    """What comes after it; results name the calls of a recorded reply by its own ids."""
    chain: bytes
    """[16] names the whole conversation, forgiven differences aside."""
    tools: tuple[Tool, ...]
    respelled: tuple[tuple[Node, Message, Node], ...]
    """(parent, spelling, child) of messages that came back in a new spelling."""
    changes: tuple[tuple[ChangeKind, str], ...]


class History:
    """All conversations of one session."""

    def __init__(self) -> None:
        self._roots: dict[bytes, Node] = {}
        """By tools."""
        self._replies: dict[int, Node] = {}
        """By number of the exchange."""

    def match(self, messages: tuple[Message, ...], tools: tuple[Tool, ...]) -> Match:
        """Follow a conversation as far as it is known. Changes nothing."""
        root = self._root(tools)
        at, node, start, begin = _stride(root, messages)
        known: Node | None = node
        chain, respelled, changes = node.chain, [], []
        for offset, message, answers in _numbered(messages[at:], _latest_assistant(messages[:at])):
            key, parent = message_key(message, answers), known
            known = None if parent is None else parent.known(message) or parent.alike(message, key)
            if parent is None or known is None:
                chain = link(chain, message, key)
                continue
            if parent.known(message) is None:
                respelled.append((parent, message, known))
                named = differences(known.message, message)
                changes += [(kind, f"message {at + offset}: {detail}") for kind, detail in named]
            chain = known.chain
            if known.exchange is not None:
                start, begin = known, at + offset + 1
        tip, new = start.exchange, messages[begin:]
        if tip is not None:
            new = _answering(new, messages[begin - 1], start.message)
            changes += _departure(start, tip, new, begin)
        else:
            changes += self._fresh(messages, root)
        return Match(messages, tip, new, chain, tools, tuple(respelled), tuple(changes))

    def respell(self, parent: Node, spelling: Message, child: Node) -> None:
        """Know a message in a spelling that was forgiven, from now on."""
        parent.spell(spelling, child)

    def add(self, exchange: Exchange) -> None:
        """Put an exchange where it belongs: after the reply that it continues."""
        if exchange.parent is None:
            key = tools_key(exchange.tools)
            node = self._roots.setdefault(key, Node(key))
        else:
            node = self._replies[exchange.parent.number]
        for _, message, answers in _numbered(exchange.messages, node.message):
            node = node.grow(message, message_key(message, answers))
        node = node.grow(exchange.reply, message_key(exchange.reply))
        node.exchange = exchange
        self._replies[exchange.number] = node

    def _root(self, tools: tuple[Tool, ...]) -> Node:
        """The root for these tools; a new one is not kept before something is recorded under it."""
        key = tools_key(tools)
        return self._roots.get(key) or Node(key)

    def _fresh(self, messages: tuple[Message, ...], root: Node) -> list[tuple[ChangeKind, str]]:
        """Why nothing of a conversation was recorded, where something else was."""
        if not self._roots:
            return []
        for key, other in self._roots.items():
            if key == root.chain:
                continue
            child = other.known(messages[0]) or other.alike(messages[0], message_key(messages[0]))
            if child is not None:
                return [(ChangeKind.TOOLS, "the same beginning was recorded with other tools")]
        if root.children and _continues(root, messages):
            return []  # the same opening call again
        return [(ChangeKind.FRESH, f"{len(messages)} messages that nothing recorded begins")]


def _departure(start: Node, tip: Exchange, new: tuple[Message, ...], begin: int) -> list[tuple[ChangeKind, str]]:
    """How a conversation leaves what is recorded after `start`, where it does."""
    if any(message.role is Role.ASSISTANT for message in new):
        return [(ChangeKind.REWRITTEN, f"message {begin}: what is recorded ends here, {len(new)} others follow")]
    if start.children and not _continues(start, new):
        return [(ChangeKind.BRANCH, f"message {begin}: another continuation of call {tip.number}")]
    return []


def _answering(new: tuple[Message, ...], sent: Message, recorded: Message) -> tuple[Message, ...]:
    """`new` with the results of `sent`'s calls naming them as `recorded` does."""
    theirs = [call.id for call in sent.tool_calls]
    ours = [call.id for call in recorded.tool_calls]
    if theirs == ours:
        return new
    results = list(takewhile(lambda message: message.role is not Role.ASSISTANT, new))
    renamed = [
        replace(message, tool_call_id=ours[theirs.index(message.tool_call_id)])
        if message.role is Role.TOOL and message.tool_call_id in theirs
        else message
        for message in results
    ]
    return (*renamed, *new[len(results) :])


def _continues(node: Node, messages: Sequence[Message]) -> bool:
    """True where exactly these messages were sent after `node` before."""
    at: Node | None = node
    for _, message, answers in _numbered(messages, node.message):
        if at is None:
            return False
        at = at.known(message) or at.alike(message, message_key(message, answers))
    return at is not None and bool(at.children)


def _stride(root: Node, messages: Sequence[Message]) -> tuple[int, Node, Node, int]:
    """As far as the very spelling is known: (messages passed, the node there, the last reply's node, messages to it).

    This is where nearly all of a long conversation goes by: a look-up a message, and nothing else.
    """
    node, start, begin = root, root, 0
    for at, message in enumerate(messages):
        child = None if node.spellings is None else node.spellings.get(message)
        if child is None:
            return at, node, start, begin
        node = child
        if child.exchange is not None:
            start, begin = child, at + 1
    return len(messages), node, start, begin


def _latest_assistant(messages: Sequence[Message]) -> Message | None:
    return next((message for message in reversed(messages) if message.role is Role.ASSISTANT), None)


def _numbered(messages: Sequence[Message], before: Message | None = None) -> Iterator[tuple[int, Message, int]]:
    """(index, message, which of the latest assistant's calls it answers)."""
    calls = [call.id for call in before.tool_calls] if before is not None else []
    for index, message in enumerate(messages):
        answers = NO_CALL
        if message.role is Role.ASSISTANT:
            calls = [call.id for call in message.tool_calls]
        elif message.role is Role.TOOL and message.tool_call_id in calls:
            answers = calls.index(message.tool_call_id)
        yield index, message, answers
