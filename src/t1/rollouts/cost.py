"""What a rollout used, and what that costs: tokens, seconds by kind, money from a price table.

Boundary: sums over what rollouts carry; a price that nobody set is zero and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from t1.types import Rollout


@dataclass(frozen=True, slots=True)
class Prices:
    """Money for what is used, in any one currency."""

    input_per_million: float = 0.0
    """For a million prompt tokens that were fed."""
    cached_per_million: float = 0.0
    """For a million prompt tokens that the engine's cache already had."""
    output_per_million: float = 0.0
    """For a million sampled tokens."""
    engine_per_hour: float = 0.0
    """For an hour that one request keeps the engine busy, beside its tokens."""
    sandbox_per_hour: float = 0.0
    """For an hour that one sandbox is open, verification included."""


FREE = Prices()


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used: by one rollout, or by many together."""

    tokens_in: int = 0
    """Prompt tokens over all turns, cached ones included."""
    tokens_cached: int = 0
    tokens_out: int = 0
    queue_s: float = 0.0
    engine_s: float = 0.0
    sandbox_s: float = 0.0
    """In commands; the sandbox is open for all of `trial_s`."""
    verifier_s: float = 0.0
    trial_s: float = 0.0
    """From launch to verdict."""
    money: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Usage)))


def usage_of(rollout: Rollout, prices: Prices = FREE) -> Usage:
    """What one rollout used. A failed launch before it is not in it: only its last attempt is on record."""
    spent = rollout.timings
    tokens_in = sum(len(turn.prompt) for turn in rollout.turns)
    cached = sum(turn.timings.cached_tokens for turn in rollout.turns)
    money = (
        (tokens_in - cached) * prices.input_per_million
        + cached * prices.cached_per_million
        + rollout.num_sampled * prices.output_per_million
    ) / 1e6 + (spent.engine_s * prices.engine_per_hour + spent.wall_s * prices.sandbox_per_hour) / 3600
    return Usage(
        tokens_in=tokens_in,
        tokens_cached=cached,
        tokens_out=rollout.num_sampled,
        queue_s=spent.queue_s,
        engine_s=spent.engine_s,
        sandbox_s=spent.sandbox_s,
        verifier_s=spent.verifier_s,
        trial_s=spent.wall_s,
        money=money,
    )


def total(usages: Iterable[Usage]) -> Usage:
    """The sum of many."""
    return sum(usages, Usage())
