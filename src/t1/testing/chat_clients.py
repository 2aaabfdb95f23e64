"""A client of the gateway that keeps its own copy of a conversation, as agents do, and may change it as they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from t1.gateway.conversation import Completer, Message, Reply, Request, Role, Tool, ToolCall
from t1.testing.chat_renderers import CharacterChatRenderer
from t1.types import IntArray

RENDERER = CharacterChatRenderer()


def says(*replies: str | Message) -> Callable[[IntArray], list[int]]:
    """A script for ScriptedSampler: these replies in order, whoever asks."""
    left = [Message(Role.ASSISTANT, reply) if isinstance(reply, str) else reply for reply in replies]
    return lambda prompt: RENDERER.completion(left.pop(0)).tolist()


def user(text: str) -> Message:
    """A message of the user's."""
    return Message(Role.USER, text)


def calls(name: str, arguments: str, *, reasoning: str = "") -> Message:
    """A reply that calls one tool."""
    return Message(Role.ASSISTANT, reasoning=reasoning, tool_calls=(ToolCall("", name, arguments),))


def result(text: str, of: Reply | Message) -> Message:
    """What the first tool call of a reply gave."""
    message = of.message if isinstance(of, Reply) else of
    return Message(Role.TOOL, text, tool_call_id=message.tool_calls[0].id)


def ask(*messages: Message, **wishes: Any) -> Request:
    """A request of the model t1."""
    return Request("t1", messages, **wishes)


class ChatClient:
    """One conversation in one session."""

    def __init__(self, gateway: Completer, session: str, history: Sequence[Message] = ()) -> None:
        self._gateway, self.session = gateway, session
        self.history = list(history)
        """The client's copy; change it at will."""
        self.tools: tuple[Tool, ...] = ()

    async def say(self, *messages: str | Message, **wishes: Any) -> Reply:
        """Add messages, get a reply, keep it."""
        self.history += [user(one) if isinstance(one, str) else one for one in messages]
        reply = await self.ask(**wishes)
        self.history.append(reply.message)
        return reply

    async def ask(self, **wishes: Any) -> Reply:
        """The reply to the conversation as it is; it is not kept."""
        return await self._gateway.complete(self.session, ask(*self.history, tools=self.tools, **wishes))

    def edit(self, index: int, **changes: Any) -> None:
        """Change a message of the copy."""
        self.history[index] = replace(self.history[index], **changes)

    def fork(self, num_messages: int | None = None) -> ChatClient:
        """Another client that begins with this one's first messages."""
        other = ChatClient(self._gateway, self.session, self.history[:num_messages])
        other.tools = self.tools
        return other
