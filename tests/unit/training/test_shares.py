"""Every rank gets equally many packs of about equal cost, and every trajectory is in exactly one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from t1.training.parallel.shares import cost, share


@given(
    lengths=st.lists(st.integers(2, 400), min_size=1, max_size=40),
    num_ranks=st.integers(1, 8),
    max_tokens=st.integers(10, 1000),
)
def test_every_trajectory_is_in_one_pack_and_no_pack_overflows(lengths, num_ranks, max_tokens):
    rounds = share(lengths, num_ranks=num_ranks, max_tokens=max_tokens)
    packs = [members for packs in rounds for members in packs]
    assert sorted(i for members in packs for i in members) == list(range(len(lengths)))
    assert all(len(packs) == num_ranks and any(packs) for packs in rounds)
    assert all(len(members) <= 1 or sum(lengths[i] for i in members) <= max_tokens for members in packs)


def test_ranks_of_a_round_have_like_work():
    rounds = share([(i * 37) % 900 + 100 for i in range(400)], num_ranks=4, max_tokens=4000, quadratic_at=2000)
    lengths = [(i * 37) % 900 + 100 for i in range(400)]
    for packs in rounds:
        costs = [sum(cost(lengths[i], quadratic_at=2000) for i in members) for members in packs]
        assert max(costs) < 1.1 * min(costs)


def test_long_trajectories_count_more_than_their_tokens():
    assert cost(8000, quadratic_at=4000) > 2 * cost(4000, quadratic_at=4000)
