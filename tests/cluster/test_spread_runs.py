"""A whole run whose rollouts are collected elsewhere: the command and the loop are the same, only the places differ."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from t1.sandboxes import probe
from t1.tracking import read_metrics

SMOKE = Path(__file__).parents[2] / "configs" / "smoke.toml"
SETTINGS = [
    "run.steps=2", "run.threads=1", "tasks.num_train=4", "tasks.num_heldout=2", "rollouts.tasks_per_step=4",
    "rollouts.group_size=1", "rollouts.max_concurrent=4", "sft.steps=2", "sft.batch_size=4", "cluster.workers=2",
]  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(probe().confinement is None, reason="this host cannot open sandboxes"),
]


@pytest.fixture
def sandboxes() -> Iterator[Path]:
    """A directory for sandboxes that other uids can pass through."""
    path = Path(tempfile.mkdtemp(prefix="t1-spread-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("kind", ["local", pytest.param("ray", marks=pytest.mark.ray)])
@pytest.mark.long
def test_a_run_with_workers_and_an_engine_of_their_own_trains(kind: str, tmp_path: Path, sandboxes: Path) -> None:
    run = tmp_path / "run"
    main = "import sys; from t1.cli import main; sys.exit(main())"
    line = [sys.executable, "-c", main, "train", str(SMOKE), "--out", str(run), f"sandboxes.root={sandboxes}"]
    line += [*SETTINGS, f"cluster.kind={kind}"]
    if kind == "ray":  # two cores are not enough for two workers, an engine and two trainer ranks
        line += ["cluster.worker_cpus=0.5", "cluster.engine_cpus=0.5", "trainer.ranks=2", "trainer.cpus=0.25"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, start_new_session=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    steps = [record for record in read_metrics(run / "metrics.jsonl") if record["stage"] == "rl"]
    assert len(steps) == 2 and all(step["failures"] == step["findings"] == 0 for step in steps)
    with contextlib.closing(sqlite3.connect(run / "ledger.sqlite")) as ledger:
        assert ledger.execute("SELECT COUNT(*) FROM trials WHERE state='admitted'").fetchone() == (8,)
        assert ledger.execute("SELECT MAX(version) FROM trials").fetchone() == (1,)
