"""Design law 5 in one function: `reward = num_passed / normalizer`, absolute, with one normalizer for the whole run."""

from __future__ import annotations

import math
from typing import Literal

from t1.errors import RolloutDropped
from t1.types import RewardSource, TamperLevel, Verdict


def score(
    verdict: Verdict,
    *,
    normalizer: float,
    kind: Literal["dense", "binary"],
    tamper: Literal["zero", "record", "drop"] = "zero",
) -> tuple[float, RewardSource]:
    """The reward and where it came from.

    Dense is not a ratio of the task's own assertions: half of a long task is worth more than half of a short one.
    Without a readable report it falls back to the binary outcome, so that a solved task never scores zero. Where the
    agent tampered, `tamper` decides: no reward, the reward as it is, or (RolloutDropped) no score at all.
    """
    if not (math.isfinite(normalizer) and normalizer > 0):
        raise ValueError(f"normalizer: expected a positive number, got {normalizer}")
    if tamper not in ("zero", "record", "drop"):
        raise ValueError(f"tamper: expected zero, record or drop, got {tamper!r}")
    if verdict.tampered and tamper != "record":
        if tamper == "drop":
            first = next(found for found in verdict.tamper if found.level is TamperLevel.TAMPERING)
            raise RolloutDropped(f"{first.rule}: {first.path}: {first.message}")
        return 0.0, RewardSource.TAMPERED
    binary = 1.0 if verdict.solved else 0.0
    if kind == "binary":
        return binary, RewardSource.BINARY
    if kind != "dense":
        raise ValueError(f"reward kind: expected dense or binary, got {kind!r}")
    if verdict.num_passed is None:
        return binary, RewardSource.BINARY_FALLBACK
    return verdict.num_passed / normalizer, RewardSource.ASSERTIONS
