"""Rollout routing replay: what a capture must be, how rows join, and replay in the training forward.

`t1.routing.replay` needs torch and is imported by its own name.
"""

from t1.routing.capture import check_capture, disagreement, join
from t1.routing.provenance import Captured, Provenance, provenance

__all__ = ["Captured", "Provenance", "check_capture", "disagreement", "join", "provenance"]
