"""Metrics: JSON lines that survive a kill and a resume."""

import json
from pathlib import Path

import numpy as np
import pytest

from t1.errors import RunError
from t1.tracking import JsonLinesTracker, Trackers, read_metrics


class ListTracker:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[dict[str, object]] = []
        self.closed = False

    def log(self, metrics):
        self.records.append(dict(metrics))

    def close(self):
        self.closed = True


def test_every_record_is_on_disk_at_once(tmp_path: Path):
    tracker = JsonLinesTracker(tmp_path / "metrics.jsonl")
    tracker.log({"step": 0, "reward": np.float32(0.5), "gap": float("nan")})
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 0, "reward": 0.5, "gap": None}]
    tracker.close()
    tracker.close()


def test_a_resumed_run_drops_the_steps_it_will_do_again(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    tracker = JsonLinesTracker(path)
    for step in range(5):
        tracker.log({"step": step})
    tracker.close()
    tracker = JsonLinesTracker(path, keep=lambda record: record["step"] < 3)
    tracker.log({"step": 3, "again": True})
    tracker.close()
    assert [record["step"] for record in read_metrics(path)] == [0, 1, 2, 3]


def test_the_half_line_that_a_kill_leaves_is_dropped(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":0}\n{"step":1,"rew')
    assert read_metrics(path) == [{"step": 0}]
    tracker = JsonLinesTracker(path)
    tracker.log({"step": 1})
    tracker.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0, 1]


def test_other_damage_is_named_by_line(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":0}\nrubbish\n{"step":1}\n')
    with pytest.raises(RunError, match="line 2"):
        read_metrics(path)


def test_several_trackers_get_the_same_records():
    trackers = [ListTracker(), ListTracker()]
    both = Trackers(trackers)
    both.log({"step": 1})
    both.close()
    assert all(tracker.records == [{"step": 1}] and tracker.closed for tracker in trackers)
