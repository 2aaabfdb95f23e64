"""How a command of a long-lived shell ends, and the bounds that the shells of every kind of sandbox keep."""

from __future__ import annotations

from enum import Enum, auto

READ_BYTES = 1 << 16
FLOOD_BYTES = 16 << 20
"""A command that prints more is killed."""
FLOODED = "\n[killed: too much output]"
"""Stands at the end of what such a command printed."""
COME_BACK_S = 0.5
"""How long the shell has to answer after its command was killed."""
KILL_S = 10.0


class Ending(Enum):
    """How a command ended."""

    STATUS = auto()
    """It came back with a status."""
    TIME = auto()
    FLOOD = auto()
    QUOTA = auto()
    SHELL = auto()
    """The shell itself is gone."""
