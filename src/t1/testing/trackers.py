"""A Tracker that remembers. Held to the same contract test as the real ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class MemoryTracker:
    """Keeps every record."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.closed = False

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Append a copy of the record."""
        self.records.append(dict(metrics))

    def close(self) -> None:
        """Note it. Safe to call twice."""
        self.closed = True
