"""Under which names a session's branches are known to the sampler, so that each finds its own cache.

A sampler keeps one cache a name and runs the requests of a name one after another. So the branches of a session get
names of their own: calls at once do not wait for one another, and branches that take turns do not wipe each other's
prefix. Whatever name a request runs under, its reply is right; a lane only saves work. Boundary: names, no sampling.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from t1.gateway.ledger import Exchange


@dataclass(slots=True, eq=False)
class Lane:
    """One name."""

    name: str
    tip: Exchange | None = None
    """The exchange whose ids its cache ends with."""
    num_running: int = 0
    last_used: int = 0


class Lanes:
    """The names of one session; the first is the session's own."""

    def __init__(self, session: str, max_lanes: int) -> None:
        self._session, self._max_lanes = session, max_lanes
        self._lanes: dict[str, Lane] = {}
        self._clock = itertools.count(1)

    @property
    def names(self) -> tuple[str, ...]:
        """All names that were ever used."""
        return tuple(self._lanes)

    def enter(self, parent: Exchange | None, again: str | None = None) -> Lane:
        """A lane for a call that continues `parent`; `again`: where the same request ran before."""
        lane = self._fitting(parent, again)
        lane.num_running += 1
        lane.last_used = next(self._clock)
        return lane

    def leave(self, lane: Lane, tip: Exchange | None) -> None:
        """The call ended, with an exchange or without."""
        lane.num_running -= 1
        lane.tip = tip or lane.tip

    def _fitting(self, parent: Exchange | None, again: str | None) -> Lane:
        """The parent's own lane, else that of the first try, else a new one, else the one idle longest."""
        own = self._lanes.get(parent.lane) if parent is not None else None
        if own is not None and own.tip is parent and not own.num_running:
            return own
        first = self._lanes.get(again) if again is not None else None
        if first is not None and not first.num_running:
            return first
        if len(self._lanes) < self._max_lanes:
            name = f"{self._session}~{len(self._lanes)}" if self._lanes else self._session
            return self._lanes.setdefault(name, Lane(name))
        return min(self._lanes.values(), key=lambda lane: (lane.num_running, lane.last_used))
