"""Vendors' spellings of a call: bodies to a `Request`, a `Reply` to a body or a stream of events."""

from t1.gateway.protocols.anthropic import MESSAGES
from t1.gateway.protocols.openai_chat import CHAT
from t1.gateway.protocols.responses_events import RESPONSES
from t1.gateway.protocols.wire import Call, Dialect

__all__ = ["CHAT", "MESSAGES", "RESPONSES", "Call", "Dialect"]
