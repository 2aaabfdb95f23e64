"""Packs hold every token once, shift by one in one place, and pad nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from t1.training.packs import pack
from t1.types import Trajectory

Make = Callable[..., Trajectory]


def test_each_action_is_predicted_from_the_row_of_the_token_before_it(make_trajectory: Make) -> None:
    trajectories = [make_trajectory(seed, length=5 + seed) for seed in range(6)]
    (one,) = pack(trajectories, max_tokens=1000)
    assert torch.equal(one.fed[one.action_rows], one.actions - 1)


def test_a_segment_feeds_all_but_its_last_token_from_position_zero(make_trajectory: Make) -> None:
    (one,) = pack([make_trajectory(0, length=4), make_trajectory(1, length=3)], max_tokens=100)
    assert one.fed.tolist() == [0, 1, 2, 4, 5]
    assert one.positions.tolist() == [0, 1, 2, 0, 1]
    assert one.fed_lengths == (3, 2)


def test_routing_has_one_row_for_each_fed_token_in_the_pack_s_order(make_trajectory: Make) -> None:
    trajectories = [make_trajectory(seed, length=9 - seed, routed=True) for seed in range(3)]
    (one,) = pack(trajectories, max_tokens=1000)
    assert one.routing is not None and len(one.routing) == len(one.fed)
    expected = np.concatenate([t.routing for t in trajectories if t.routing is not None])
    np.testing.assert_array_equal(one.routing.numpy(), expected)


@given(st.lists(st.integers(2, 60), min_size=1, max_size=30), st.integers(2, 120))
def test_every_token_lies_in_exactly_one_pack_and_no_pack_overflows(lengths: list[int], max_tokens: int) -> None:
    from_numbers = [_numbered(i, length) for i, length in enumerate(lengths)]
    packs = pack(from_numbers, max_tokens=max_tokens)
    for part in packs:
        assert part.num_tokens <= max_tokens or len(part.segment_lengths) == 1
    tokens = np.concatenate([p.tokens.numpy() for p in packs])
    assert sorted(tokens) == sorted(np.concatenate([t.tokens for t in from_numbers]))
    slots = np.concatenate([p.slots.numpy() for p in packs])
    assert sorted(slots) == list(range(sum(t.num_actions for t in from_numbers)))


def test_packs_are_of_about_equal_size(make_trajectory: Make) -> None:
    packs = pack([make_trajectory(seed, length=10) for seed in range(40)], max_tokens=110)
    assert {p.num_tokens for p in packs} == {100}


def test_some_routed_and_some_not_is_refused(make_trajectory: Make) -> None:
    with pytest.raises(ValueError, match="all or nothing"):
        pack([make_trajectory(0, routed=True), make_trajectory(1)], max_tokens=100)


def _numbered(index: int, length: int) -> Trajectory:
    """A trajectory whose tokens are found nowhere else."""
    from t1.types import Boundary, Case, RolloutId

    zeros = np.zeros(length, np.int32)
    return Trajectory(
        RolloutId("numbered", 0, index), 0, (np.arange(length) + 1000 * index).astype(np.int32),
        np.arange(length) > length // 2 - 1 if length > 2 else np.array([False, True]),
        zeros.astype(np.float32), zeros, zeros, None, (Boundary(0, Case.OPEN),),
    )  # fmt: skip
