"""The slots of the embedded engine: who lives in which, which tokens were fed there, and the routing row of each.

A slot keeps a session between its turns. Its tokens and rows are addressed by position; a row is written once, when its
token is first fed, and stays until the token itself is replaced or the slot changes hands. Boundary: no tensors, no
model, no requests.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from t1.types import IntArray, RoutingArray


@dataclass(slots=True, eq=False)
class Slot:
    """One place of the key-value store."""

    index: int
    session: str | None = None
    """None = empty."""
    busy: bool = False
    """A request runs here."""
    closing: bool = False
    """Becomes empty when its request ends."""
    known: int = 0
    """Tokens that stand here."""
    fed: int = 0
    """The first `fed` of them have keys and values."""
    num_rows: int = 0
    """The first `num_rows` of them have a routing row."""
    last_used: int = 0


class SlotTable:
    """All slots, and their tokens and rows as two arrays that grow together with the longest session."""

    def __init__(self, num_slots: int, *, num_layers: int, top_k: int, dtype: Any) -> None:
        self.slots = tuple(Slot(index) for index in range(num_slots))
        self.capacity = 0
        self._tokens: IntArray = np.zeros((num_slots, 0), dtype=np.int32)
        rows: Any = np.zeros((num_slots, 0, num_layers, top_k), dtype=dtype)
        self._rows: RoutingArray = rows
        self._by_session: dict[str, Slot] = {}
        self._clock = itertools.count(1)

    def reserve(self, capacity: int) -> None:
        """Make room for sessions of `capacity` tokens."""
        if capacity > self.capacity:
            more = ((0, 0), (0, capacity - self.capacity))
            self._tokens = np.pad(self._tokens, more)
            rows: Any = np.pad(self._rows, (*more, (0, 0), (0, 0)))
            self._rows = rows
            self.capacity = capacity

    def find(self, session: str) -> Slot | None:
        """Where a session lives, if anywhere."""
        return self._by_session.get(session)

    def claim(self, session: str) -> Slot | None:
        """The session's own slot, else an empty one, else the idle one that was used longest ago; None if all work.

        None as well while another request of the same session runs.
        """
        slot = self._by_session.get(session)
        if slot is None:
            idle = [candidate for candidate in self.slots if not candidate.busy]
            if not idle:
                return None
            slot = min(idle, key=lambda s: (s.session is not None, s.last_used if s.session else s.index))
            self.empty(slot)
            slot.session, self._by_session[session] = session, slot
        elif slot.busy:
            return None
        slot.busy = True
        return slot

    def release(self, slot: Slot) -> None:
        """The request in `slot` ended; its session rests there."""
        slot.busy, slot.last_used = False, next(self._clock)
        slot.known = slot.fed
        if slot.closing:
            self.empty(slot)

    def empty(self, slot: Slot) -> None:
        """Forget what lives in an idle slot."""
        if slot.session is not None:
            del self._by_session[slot.session]
        slot.session, slot.closing = None, False
        slot.known = slot.fed = slot.num_rows = slot.last_used = 0

    def close(self, session: str) -> None:
        """Forget a session, at the end of its request if one runs."""
        if (slot := self._by_session.get(session)) is not None:
            slot.closing = True
            if not slot.busy:
                self.empty(slot)

    def invalidate(self) -> None:
        """Other weights: idle sessions are forgotten, running ones are fed again but keep the rows they have."""
        for slot in self.slots:
            if slot.busy:
                slot.fed = 0
            elif slot.session is not None:
                self.empty(slot)

    def write(self, slot: Slot, prompt: IntArray) -> int:
        """Put a prompt [P] into a slot; returns how many of its tokens need no feeding (at most P − 1)."""
        held = self._tokens[slot.index, : min(slot.known, len(prompt))]
        differs = np.flatnonzero(held != prompt[: len(held)])
        common = int(differs[0]) if len(differs) else len(held)
        self._tokens[slot.index, : len(prompt)] = prompt
        slot.known = len(prompt)
        slot.num_rows = min(slot.num_rows, common)
        slot.fed = min(slot.fed, common, len(prompt) - 1)
        return slot.fed

    def append(self, slot: Slot, token: int) -> None:
        """A sampled token joins, not yet fed."""
        self._tokens[slot.index, slot.known] = token
        slot.known += 1

    def tokens(self, slot: int, start: int, stop: int) -> IntArray:
        """[stop − start] a view."""
        return self._tokens[slot, start:stop]

    def tokens_at(self, slots: Sequence[int], positions: Sequence[int]) -> IntArray:
        """[n] one token of each slot."""
        return self._tokens[slots, positions]

    def record(self, slots: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], rows: RoutingArray) -> None:
        """Rows [M, L, K] of the tokens fed at (slot [M], position [M]); a token that has a row keeps it."""
        held = np.array([slot.num_rows for slot in self.slots])
        fresh = positions >= held[slots]
        if not fresh.all():
            slots, positions, rows = slots[fresh], positions[fresh], rows[fresh]
        self._rows[slots, positions] = rows

    def rows(self, slot: Slot, start: int, stop: int) -> RoutingArray:
        """[stop − start, L, K] a copy."""
        return self._rows[slot.index, start:stop].copy()
