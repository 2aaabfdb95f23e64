"""`/v1/models` in one shape that OpenAI's and Anthropic's clients both read."""

from __future__ import annotations

from collections.abc import Sequence

from t1.gateway.conversation import GatewayError
from t1.gateway.protocols.wire import Json


def write_model(name: str) -> Json:
    """One model."""
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "t1",
        "type": "model",
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
    }


def write_models(names: Sequence[str]) -> Json:
    """All of them, on one page."""
    return {
        "object": "list",
        "data": [write_model(name) for name in names],
        "has_more": False,
        "first_id": names[0] if names else None,
        "last_id": names[-1] if names else None,
    }


def find_model(names: Sequence[str], name: str) -> Json:
    """The model of that name. Raises GatewayError 404 that lists those there are."""
    if name not in names:
        raise GatewayError(404, "model_not_found", f"no model {name}: there are {', '.join(names)}", "model")
    return write_model(name)
