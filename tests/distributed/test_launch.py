"""Ranks that fail, die or hang end the group within its bound, and say why."""

from __future__ import annotations

import os
import time

import pytest

from t1.errors import InfrastructureError
from t1.testing.ranked import fail_on, sum_of_ranks
from t1.training.parallel.launch import on_ranks


def test_each_rank_answers_in_its_place():
    assert on_ranks(2, sum_of_ranks, 10, timeout_s=60.0) == [(0, 21.0), (1, 21.0)]


def test_a_failing_rank_ends_the_group_while_its_peer_waits():
    with pytest.raises(InfrastructureError, match=r"(?s)rank \d failed.*(rank 1 has no luck|peer|Connection)"):
        on_ranks(2, fail_on, 1, timeout_s=60.0)


def test_a_dead_rank_is_named_with_its_exit_code():
    with pytest.raises(InfrastructureError, match=r"rank \d died .*exit code 7"):
        on_ranks(2, os._exit, 7, timeout_s=60.0)


def test_a_group_that_hangs_ends_at_its_bound():
    with pytest.raises(InfrastructureError, match="did not answer in time"):
        on_ranks(2, time.sleep, 60, timeout_s=3.0)
