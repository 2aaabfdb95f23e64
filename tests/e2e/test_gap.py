"""The gap, from the command line and in a run's own log."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from t1.cli import main
from t1.sandboxes import probe
from t1.tracking import read_metrics

SMOKE = str(Path(__file__).parents[2] / "configs" / "smoke.toml")
TINY = ["run.threads=1", "tasks.num_train=4", "tasks.num_heldout=2", "rollouts.tasks_per_step=4", "run.steps=1"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(probe().confinement is None, reason="this host cannot open sandboxes"),
]


@pytest.fixture(scope="module")
def run() -> Iterator[Path]:
    """A run of one PPO step whose bound is below any gap."""
    with tempfile.TemporaryDirectory(prefix="t1-e2e-") as scratch:
        place = Path(scratch)
        place.chmod(0o711)
        out = place / "run"
        assert main(["train", SMOKE, "--out", str(out), *TINY, "ppo.gap_alarm=1e-12", "run.checkpoint_every=1"]) == 0
        yield out


def test_a_step_logs_its_gap_and_what_it_looks_like(run: Path) -> None:
    (step,) = [m for m in read_metrics(run / "metrics.jsonl") if m.get("stage") == "rl"]
    assert 0 < step["gap"] < 1e-4 and step["gap_flipped"] == 0 and step["gap_ess"] > 0.999
    assert step["routing_disagreement"] == 0
    assert step["gap_alarm"] in ("wrong_weights", "temperature", "routing", "truncation", "stale_cache")


def test_t1_gap_prints_a_table_and_one_json_object(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gap", str(run), "run.threads=1", "-n", "2", "--json"]) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out.splitlines()[-1])
    assert set(answer) == {"tito_replay", "tito", "replay", "neither", "measured"}
    assert answer["measured"]["engine"] == "embedded bfloat16"
    assert answer["measured"]["trainer"] == "transformers float32"
    assert 0 < answer["tito_replay"]["mean_abs"] < 0.1 and answer["tito_replay"]["flipped_share"] == 0
    assert "TITO + replay" in said.err and "trains" in said.err


def test_in_one_arithmetic_nothing_is_left_of_the_gap(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gap", str(run), "run.threads=1", "-n", "2", "--engine-dtype", "float32", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["tito_replay"]["mean_abs"] < 1e-4 and answer["tito"]["mean_abs"] < 1e-4


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["/no/such"], "no such"),
        (["tasks.path=/no/such", "harness.sampling.temperature=0"], "temperature is 0"),
        ([], "tasks.path is not set"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_line(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gap", *words]) == 2
    assert reason in capsys.readouterr().err.lower()
