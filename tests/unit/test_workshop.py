"""The check of captures before an episode is verified."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from t1.errors import RoutingError
from t1.types import FinishReason, RolloutId, Turn
from t1.workshop import capture_check, check_episode

CHECK = capture_check(num_layers=2, num_experts=8, top_k=2)
ID = RolloutId("t", 0, 0)


def turn(prompt: list[int], completion: list[int], routing_start: int = 0) -> Turn:
    """A turn with a whole capture from `routing_start` on."""
    rows = len(prompt) + len(completion) - 1 - routing_start
    rng = np.random.default_rng(len(prompt))
    routing = np.stack([[rng.choice(8, 2, replace=False) for _ in range(2)] for _ in range(rows)]).astype(np.uint8)
    size = len(completion)
    return Turn(
        prompt=np.array(prompt, dtype=np.int32),
        completion=np.array(completion, dtype=np.int32),
        logprobs=np.full(size, -1.0, dtype=np.float32),
        versions=np.zeros(size, dtype=np.int32),
        finish=FinishReason.STOP,
        routing=routing,
        routing_start=routing_start,
    )


def test_an_episode_that_branches_is_checked_branch_by_branch() -> None:
    """A sub-agent's conversation between two turns of the main one."""
    turns = (turn([1, 2], [3, 4]), turn([7, 8, 9], [5]), turn([1, 2, 3, 4, 6], [5, 5], routing_start=3))
    check_episode(CHECK, frozenset(), ID, turns)


def test_a_branch_without_its_first_rows_is_refused() -> None:
    turns = (turn([1, 2], [3, 4]), turn([7, 8, 9], [5], routing_start=1))
    with pytest.raises(RoutingError):
        check_episode(CHECK, frozenset(), ID, turns)


def test_an_episode_without_any_capture_is_refused_and_an_empty_one_is_not() -> None:
    """Case R1."""
    with pytest.raises(RoutingError, match="missing"):
        check_episode(CHECK, frozenset(), ID, (replace(turn([1, 2], [3]), routing=None),))
    check_episode(CHECK, frozenset(), ID, ())
