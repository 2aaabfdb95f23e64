"""Engines behind the Sampler protocol: embedded in this process, or vLLM and SGLang over HTTP.

The names of the embedded engine are looked up when they are first used: the clients of other engines, and the commands
that need only those, start without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t1.inference.engine import TorchEngine
    from t1.inference.models import load_model, use_threads

_HOMES = {
    "TorchEngine": "t1.inference.engine",
    "load_model": "t1.inference.models",
    "use_threads": "t1.inference.models",
}

__all__ = ["TorchEngine", "load_model", "use_threads"]


def __getattr__(name: str) -> Any:
    """Import the module that has `name` when somebody asks for it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
