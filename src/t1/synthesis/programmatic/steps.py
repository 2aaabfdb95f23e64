"""What a step is, and the book of all of them.

Boundary: each domain has a module of its own that adds to the book; here is only how steps are described and found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from t1.synthesis.programmatic.scene import Move, Scene

SOURCES = ("lines", "table", "tree")
END = "end"


class Unfit(Exception):
    """A step has nothing to do on this value (no row matches, all lines are the same): another one is drawn."""


@dataclass(frozen=True, slots=True)
class Step:
    """One kind of work."""

    name: str
    domain: str
    takes: str
    """One of SOURCES."""
    gives: str
    """One of SOURCES, or END."""
    level: int
    """1 to 3: how much it asks of a policy."""
    run: Callable[[Scene, Any], Move]


BOOK: dict[str, Step] = {}
"""Every step by its name."""

F = TypeVar("F", bound=Callable[..., Move])


def step(domain: str, takes: str, gives: str, level: int = 1) -> Callable[[F], F]:
    """Enter a function into the book under its own name."""

    def enter(run: F) -> F:
        name = f"{domain}/{run.__name__.replace('_', '-').strip('-')}"
        BOOK[name] = Step(name, domain, takes, gives, level, run)
        return run

    return enter
