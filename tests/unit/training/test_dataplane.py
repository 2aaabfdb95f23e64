"""Trajectories by reference: written once, mapped by every reader, and never in a controller's private memory."""

from __future__ import annotations

import dataclasses
import json
import pickle
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from t1.errors import RunError
from t1.training.batches import Batch
from t1.training.parallel.dataplane import TrajectoryWriter, read_rewarded, store_rollouts
from t1.types import Trajectory

Make = Callable[..., Trajectory]


def test_what_was_written_is_read_exactly(tmp_path, make_trajectory: Make):
    rollouts = [
        ((make_trajectory(1, routed=True), make_trajectory(2, length=31, routed=True)), 0.5),
        ((make_trajectory(3, length=9),), 0.0),
    ]
    with TrajectoryWriter(tmp_path / "step.arrow") as writer:
        for segments, reward in rollouts:
            writer.write(segments, reward)
    found = read_rewarded(tmp_path / "step.arrow")
    assert [reward for _, reward in found] == [0.5, 0.0]
    for (ours, _), (theirs, _) in zip(found, rollouts, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            for field in dataclasses.fields(Trajectory):
                left, right = getattr(one, field.name), getattr(other, field.name)
                if isinstance(right, np.ndarray):
                    assert left.dtype == right.dtype
                    np.testing.assert_array_equal(left, right)
                else:
                    assert left == right


def test_arrays_are_views_of_the_file_and_cannot_be_written(tmp_path, make_trajectory: Make):
    with TrajectoryWriter(tmp_path / "step.arrow") as writer:
        writer.write([make_trajectory(1, routed=True)], 1.0)
    (((trajectory,), _),) = read_rewarded(tmp_path / "step.arrow")
    assert trajectory.routing is not None
    for array in (trajectory.tokens, trajectory.mask, trajectory.routing):
        assert not array.flags.owndata and not array.flags.writeable


def test_a_batch_of_views_is_the_batch_of_the_arrays(tmp_path, make_trajectory: Make):
    rollouts = [((make_trajectory(i, routed=True, length=20 + i),), float(i)) for i in range(3)]
    with TrajectoryWriter(tmp_path / "step.arrow") as writer:
        for segments, reward in rollouts:
            writer.write(segments, reward)
    ours, theirs = Batch.of(read_rewarded(tmp_path / "step.arrow")), Batch.of(rollouts)
    for one, other in zip(ours.packs(range(3), max_tokens=50), theirs.packs(range(3), max_tokens=50), strict=True):
        assert one.tokens.equal(other.tokens) and one.slots.equal(other.slots)
        assert one.routing is not None and other.routing is not None and one.routing.equal(other.routing)


def test_what_travels_is_the_path(tmp_path, make_trajectory: Make):
    stored = store_rollouts(tmp_path / "step.arrow", (((make_trajectory(i, routed=True),), float(i)) for i in range(3)))
    packed = pickle.dumps(stored)
    assert len(packed) < 300
    there = pickle.loads(packed)
    assert [reward for _, reward in there] == [0.0, 1.0, 2.0]
    np.testing.assert_array_equal(there[1][0][0].routing, stored[1][0][0].routing)


def test_a_reader_of_the_last_step_keeps_it_while_the_next_is_written(tmp_path, make_trajectory: Make):
    first = store_rollouts(tmp_path / "step.arrow", [((make_trajectory(1, routed=True),), 1.0)])
    tokens = first[0][0][0].tokens.copy()
    store_rollouts(tmp_path / "step.arrow", [((make_trajectory(2, routed=True),), 2.0)])
    np.testing.assert_array_equal(first[0][0][0].tokens, tokens)


def test_an_unfinished_file_is_refused_and_leaves_nothing(tmp_path, make_trajectory: Make):
    with pytest.raises(ZeroDivisionError), TrajectoryWriter(tmp_path / "step.arrow") as writer:
        writer.write([make_trajectory(1)], 1 / 0)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "step.arrow").write_bytes(b"ARROW1 and then the disk was full")
    with pytest.raises(RunError, match="no complete file"):
        read_rewarded(tmp_path / "step.arrow")


def test_a_step_stays_within_the_memory_that_the_plan_prints(tmp_path):
    """64 rollouts × 5 000 tokens × 384 bytes, written and read; `make test-dataplane` plays 512 × 50 000."""
    for role in ("controller", "rank"):
        command = [sys.executable, "-m", "t1.testing.dataplane", str(tmp_path), "64", "5000", role]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.stdout, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["routing_bytes"] > 100e6
        assert found["private_bytes"] < found["bound_bytes"] < 0.4 * found["routing_bytes"], found
        assert done.returncode == 0, done.stderr
