"""reward.txt and reward.json: one number within [0, 1]. Case V1: nan, inf and nested objects are refused."""

from __future__ import annotations

import json
import math
from typing import TypeGuard


def parse_reward(text: bytes, *, is_json: bool) -> float:
    """The number in reward.txt or reward.json (a number, or a flat object of numbers with `reward`), within [0, 1].

    An object with a single entry needs no `reward`: its only number is the reward.
    """
    try:
        decoded = text.decode("utf-8")
        value = json.loads(decoded) if is_json else float(decoded)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a number: {text[:80]!r}") from error
    if isinstance(value, dict):
        wrong = [name for name, number in value.items() if not _is_number(number)]
        if wrong:
            raise ValueError(f"expected a number for {wrong[0][:80]!r}, as for every key, got {text[:80]!r}")
        value = next(iter(value.values())) if len(value) == 1 else value.get("reward")
    if not _is_number(value):
        raise ValueError(f"expected a number within [0, 1] or an object with `reward`, got {text[:80]!r}")
    if not 0 <= value <= 1:
        raise ValueError(f"expected a number within [0, 1], got {value}")
    return float(value)


def _is_number(value: object) -> TypeGuard[int | float]:
    """True for a finite number; whether it can be a reward is judged later."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf
