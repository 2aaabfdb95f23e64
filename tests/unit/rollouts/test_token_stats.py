"""The trainer's words on each token: they come back whole, belong to the same tokens, and keep to their size."""

from dataclasses import replace

import numpy as np
import pytest

from t1.errors import RunError
from t1.rollouts.token_stats import BYTES_PER_ACTION, TokenStats, read_token_stats, tokens_crc, write_token_stats
from t1.types import Boundary, Case, RolloutId, Trajectory


def trajectory(member, *, segment=0, num_actions=3):
    """Two tokens of context and some actions."""
    size = 2 + num_actions
    return Trajectory(
        RolloutId("a/b", 0, member),
        segment,
        np.arange(size, dtype=np.int32) + member,
        np.arange(size) >= 2,
        np.where(np.arange(size) >= 2, -0.5, 0).astype(np.float32),
        np.zeros(size, np.int32),
        np.zeros(size, np.int32),
        None,
        (Boundary(0, Case.OPEN, inserted=2),),
    )


def stats_of(one, start=0.0):
    columns = start + np.arange(4 * one.num_actions, dtype=np.float32).reshape(4, -1)
    return TokenStats(one.rollout, one.segment, tokens_crc(one), *columns)


def test_each_trajectory_gets_its_own_numbers_back(tmp_path):
    ours = [trajectory(0), trajectory(0, segment=1), trajectory(1, num_actions=5)]
    path = tmp_path / "rl-00000.parquet"
    assert write_token_stats(path, [stats_of(t, 100 * i) for i, t in enumerate(ours)], max_bytes=10**6) == 0
    for i, one in enumerate(ours):
        found, expected = read_token_stats(path, one), stats_of(one, 100 * i)
        for name in ("logprobs", "values", "advantages", "returns"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_numbers_of_other_tokens_are_not_believed(tmp_path):
    path, one = tmp_path / "rl-00000.parquet", trajectory(0)
    write_token_stats(path, [stats_of(one)], max_bytes=10**6)
    assert read_token_stats(path, replace(one, tokens=one.tokens[::-1].copy())) is None
    assert read_token_stats(path, trajectory(7)) is None
    assert read_token_stats(tmp_path / "rl-00001.parquet", one) is None


@pytest.mark.parametrize("fits", [0, 1, 3, 10, 20])
def test_what_does_not_fit_is_left_out_by_whole_rollouts_evenly(tmp_path, fits):
    ours = [trajectory(member, segment=segment) for member in range(10) for segment in range(2)]
    budget = fits * 3 * BYTES_PER_ACTION
    left_out = write_token_stats(tmp_path / "s.parquet", [stats_of(t) for t in ours], max_bytes=budget)
    kept = [t for t in ours if read_token_stats(tmp_path / "s.parquet", t) is not None]
    members = sorted({t.rollout.member for t in kept})
    assert len(kept) == 2 * len(members) and len(kept) * 3 * BYTES_PER_ACTION <= budget
    assert left_out == 10 - len(members)
    assert members == {0: [], 1: [], 3: [0], 10: [0, 2, 4, 6, 8], 20: list(range(10))}[fits]


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"expected \[a\] for each"):
        TokenStats(RolloutId("a", 0, 0), 0, 0, *(np.zeros(n, np.float32) for n in (2, 2, 3, 2)))


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "s.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(RunError, match="no readable file"):
        read_token_stats(tmp_path / "s.parquet", trajectory(0))
