"""The run directory: created once, locked, resumed only as what it was."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from t1.config import RunConfig, load_config
from t1.errors import RunError
from t1.rundir import RunDir, read_run_config, set_aside

CONFIG = RunConfig()


def test_a_new_run_says_what_it_runs_and_where(tmp_path: Path):
    with RunDir.create(tmp_path / "run", CONFIG) as run:
        environment = json.loads((run.path / "environment.json").read_text())
    assert read_run_config(tmp_path / "run") == CONFIG
    assert environment["seed"] == 0 and environment["packages"]["numpy"] and environment["cpus"] >= 1


def test_a_run_is_not_overwritten(tmp_path: Path):
    RunDir.create(tmp_path / "run", CONFIG).close()
    with pytest.raises(RunError, match="holds a run already"):
        RunDir.create(tmp_path / "run", CONFIG)


def test_a_second_writer_is_refused_with_the_pid_of_the_first(tmp_path: Path):
    script = f"from pathlib import Path; from t1.rundir import RunDir; RunDir.resume(Path({str(tmp_path / 'run')!r}))"
    with RunDir.create(tmp_path / "run", CONFIG):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert f"process {os.getpid()} is writing this run" in done.stderr
    RunDir.resume(tmp_path / "run")[0].close()


def test_a_run_that_ended_without_closing_can_be_resumed(tmp_path: Path):
    script = (
        "import os; from pathlib import Path; from t1.config import RunConfig; from t1.rundir import RunDir; "
        f"run = RunDir.create(Path({str(tmp_path / 'run')!r}), RunConfig()); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 9
    run, config = RunDir.resume(tmp_path / "run")
    run.close()
    assert config == CONFIG


def test_a_resume_may_change_the_learning_rate(tmp_path: Path):
    RunDir.create(tmp_path / "run", CONFIG).close()
    run, config = RunDir.resume(tmp_path / "run", load_config(None, ["ppo.lr=1e-5", "run.steps=99"]))
    run.close()
    assert (config.ppo.lr, config.run.steps) == (1e-5, 99)
    assert read_run_config(tmp_path / "run") == config


@pytest.mark.parametrize("change", ["reward.normalizer=3", "reward.kind=binary", "tasks.path=elsewhere", "run.seed=1"])
def test_a_resume_may_not_change_what_rewards_or_data_mean(tmp_path: Path, change: str):
    RunDir.create(tmp_path / "run", CONFIG).close()
    with pytest.raises(RunError, match=change.split("=")[0]):
        RunDir.resume(tmp_path / "run", load_config(None, [change]))
    RunDir.resume(tmp_path / "run")[0].close()


def test_a_pinned_fact_stays(tmp_path: Path):
    with RunDir.create(tmp_path / "run", CONFIG) as run:
        run.pin("normalizer", 5.0)
        run.pin("normalizer", 5.0)
        with pytest.raises(RunError, match=r"normalizer was 5\.0 and cannot become 6\.0"):
            run.pin("normalizer", 6.0)
        assert run.pins() == {"normalizer": 5.0}


def test_a_missing_run_names_its_neighbours(tmp_path: Path):
    RunDir.create(tmp_path / "first", CONFIG).close()
    with pytest.raises(RunError, match="runs there: first"):
        read_run_config(tmp_path / "frist")


def test_an_earlier_run_is_set_aside_whole(tmp_path: Path):
    assert set_aside(tmp_path / "run") is None
    with RunDir.create(tmp_path / "run", CONFIG), pytest.raises(RunError, match="is writing this run"):
        set_aside(tmp_path / "run")
    first = set_aside(tmp_path / "run")
    RunDir.create(tmp_path / "run", CONFIG).close()
    second = set_aside(tmp_path / "run")
    assert first is not None and second is not None and first != second
    assert read_run_config(first) == read_run_config(second) == CONFIG
    assert not (tmp_path / "run").exists()
