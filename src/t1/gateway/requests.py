"""What a request must be before anything is done for it, and which two requests are one.

Boundary: a request against rules and a match; it changes nothing.
"""

from __future__ import annotations

from t1.gateway.canonical import digest
from t1.gateway.conversation import GatewayError, Message, Request, Role
from t1.gateway.history import Match


def check_messages(messages: tuple[Message, ...]) -> None:
    """Refuse a conversation that makes no sense."""
    if not messages:
        raise GatewayError(400, "invalid_request_error", "messages: at least one is needed", "messages")
    if messages[-1].role is Role.ASSISTANT:
        message = "the last message is the assistant's: a reply cannot be begun for it here; end with another role"
        raise GatewayError(400, "invalid_request_error", message, "messages")
    for index, one in enumerate(messages):
        if one.tool_calls:
            break  # there is something to answer from here on
        if one.role is Role.TOOL:
            message = f"message {index}: a tool's result, but no call came before it"
            raise GatewayError(400, "invalid_request_error", message, f"messages[{index}]")


def identity_of(match: Match, request: Request) -> bytes:
    """[16] what makes two requests the same one."""
    wishes = (request.max_tokens, request.temperature, request.top_p, request.top_k, request.seed, request.stop)
    return digest(match.chain, repr(wishes), request.idempotency_key)
