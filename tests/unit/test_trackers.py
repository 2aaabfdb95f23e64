"""Trackers beside metrics.jsonl: the real packages where they are installed, in their offline modes."""

import importlib.util
import json

import pytest

from t1.config import load_config
from t1.errors import UserError
from t1.rundir import RunDir
from t1.tracking import KINDS, Shielded, make_tracker, scalars

PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "trackio": "trackio", "mlflow": "mlflow"}
HERE = {kind: importlib.util.find_spec(package) is not None for kind, package in PACKAGES.items()}
RECORDS = [
    {"stage": stage, "step": step, "reward": 0.5, "stops": {"submitted": 3}, "gap": float("nan"), "note": "x"}
    for stage in ("sft", "rl")
    for step in range(2)
]


class BrokenTracker:
    """Fails at the second record."""

    def __init__(self) -> None:
        self.logged = 0

    def log(self, metrics):
        self.logged += 1
        if self.logged == 2:
            raise ConnectionError("the server is gone")

    def close(self):
        raise ConnectionError("still gone")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_a_tracker_takes_the_records_of_two_stages_and_closes_twice(kind, tmp_path, monkeypatch, capsys):
    if not HERE[kind]:
        pytest.skip(f"TRACKER {kind} IS NOT TESTED HERE: pip install 't1[{kind}]'")
    for name, value in (("WANDB_MODE", "offline"), ("TRACKIO_DIR", str(tmp_path)), ("HF_HUB_OFFLINE", "1")):
        monkeypatch.setenv(name, value)
    tracker = make_tracker(kind, tmp_path / "logs", "a-run")
    for record in RECORDS:
        tracker.log(record)
    tracker.close()
    tracker.close()
    assert "failed and is off" not in capsys.readouterr().err
    assert any(path.is_file() and path.stat().st_size for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not HERE[kind]])
def test_a_missing_package_is_named_with_its_extra(kind, tmp_path):
    with pytest.raises(UserError, match=rf"pip install 't1\[{kind}\]'"):
        make_tracker(kind, tmp_path, "a-run")


def test_only_finite_numbers_are_sent_under_the_name_of_their_stage():
    assert scalars(RECORDS[0]) == {"sft/reward": 0.5}
    assert scalars({"step": 3, "reward": 1}) == {"reward": 1.0}


def test_a_tracker_that_fails_is_switched_off_and_stops_nothing(capsys):
    broken = BrokenTracker()
    tracker = Shielded(broken, "wandb")
    for step in range(4):
        tracker.log({"step": step})
    tracker.close()
    assert broken.logged == 2
    assert capsys.readouterr().err.count("the server is gone") == 1


def test_an_unknown_tracker_is_refused_by_name(tmp_path):
    with pytest.raises(UserError, match="tensorboard, wandb, trackio, mlflow"):
        make_tracker("paper", tmp_path, "a-run")


def test_trackers_of_the_configuration_stand_beside_the_json_lines(tmp_path):
    from t1.stages import open_tracker

    kinds = [kind for kind in ("tensorboard",) if HERE[kind]]
    config = load_config(None, [f"tracker.also={json.dumps(kinds)}"])
    with RunDir.create(tmp_path / "run", config) as run, open_tracker(config, run) as tracker:
        tracker.log(RECORDS[0])
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text())["reward"] == 0.5
    assert not kinds or list((tmp_path / "run" / "logs" / "tensorboard").iterdir())
