"""Killed at random instants, a run goes on as if nothing had happened: bit for bit, with every rollout used once.

`T1_KILLS` says how many kills (default 3); `make test-chaos` has 20.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from t1.sandboxes import probe
from t1.tracking import read_metrics

SMOKE = Path(__file__).parents[2] / "configs" / "smoke.toml"
NUM_KILLS = int(os.environ.get("T1_KILLS", "3"))
NUM_STEPS = 4
# One trial at a time: then the engine's arithmetic, and so each bit, is the same from run to run.
SETTINGS = [
    f"run.steps={NUM_STEPS}",
    "run.checkpoint_every=2",
    "rollouts.tasks_per_step=4",
    "rollouts.max_concurrent=1",
]
SMALL = ["run.threads=1", "tasks.num_train=8", "tasks.num_heldout=2"]
LAST = Path("checkpoints") / "rl" / f"step-{NUM_STEPS:06d}"
CLOCKED = ("_s", "_per_s", "bias_duration")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(probe().confinement is None, reason="this host cannot open sandboxes"),
]


def start(run: Path, sandboxes: Path) -> subprocess.Popen[str]:
    """Begin the run, or go on with it."""
    begin = [str(SMOKE), "--out", str(run), f"sandboxes.root={sandboxes}", *SETTINGS, *SMALL]
    arguments = ["--resume", str(run)] if (run / "config.toml").exists() else begin
    return subprocess.Popen(
        [sys.executable, "-c", "import sys; from t1.cli import main; sys.exit(main())", "train", *arguments],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def finish(run: Path, sandboxes: Path) -> float:
    """Let it run to its end; returns how many seconds that took."""
    started = time.monotonic()
    with start(run, sandboxes) as process:
        _, complaint = process.communicate(timeout=300)
    assert process.returncode == 0, complaint[-2000:]
    return time.monotonic() - started


def kill_after(run: Path, sandboxes: Path, seconds: float) -> bool:
    """Start, and kill -9 after so long; False where it was quicker."""
    with start(run, sandboxes) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    return process.returncode == -signal.SIGKILL


def learned(run: Path) -> list[dict[str, Any]]:
    """What each PPO step measured, without what a clock says."""
    return [
        {key: value for key, value in record.items() if not key.endswith(CLOCKED)}
        for record in read_metrics(run / "metrics.jsonl")
        if record["stage"] == "rl"
    ]


def same(a: Any, b: Any) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


@pytest.mark.timeout(600 + 120 * NUM_KILLS)
@pytest.mark.long
def test_a_run_that_is_killed_again_and_again_ends_as_one_that_never_was(tmp_path: Path, sandboxes: Path) -> None:
    """Cases P3, B1."""
    whole, seed, kills = tmp_path / "whole", time.time_ns(), 0
    seconds, rng = finish(whole, sandboxes), random.Random(seed)
    print(f"seed of the kills: {seed}")
    for attempt in range(10 + 3 * NUM_KILLS):
        killed, began = tmp_path / f"killed-{attempt}", time.monotonic()
        if not kill_after(killed, sandboxes, rng.uniform(0.35, 1.0) * seconds):
            seconds = time.monotonic() - began  # the machine has less to do than it had
        else:
            kills += 1
        while kills < NUM_KILLS and not (killed / LAST).is_dir():
            kills += kill_after(killed, sandboxes, rng.uniform(0.35, 1.0) * seconds)
        finish(killed, sandboxes)
        check(whole, killed)
        if kills == NUM_KILLS:
            return
    pytest.fail(f"{kills} kills in {10 + 3 * NUM_KILLS} runs of {seconds:.0f} s")


def check(whole: Path, killed: Path) -> None:
    """The same metrics, the same weights, every rollout used once."""
    for one, other in zip(learned(whole), learned(killed), strict=True):
        assert {key: (one[key], other[key]) for key in one if not same(one[key], other.get(key))} == {}
    before, after = (load_file(run / LAST / "model.safetensors") for run in (whole, killed))
    assert all((before[name] == after[name]).all() for name in before)
    with contextlib.closing(sqlite3.connect(killed / "ledger.sqlite")) as ledger:
        (trained,) = ledger.execute("SELECT COUNT(*) FROM trials WHERE state='admitted'").fetchone()
        (updates,) = ledger.execute("SELECT COUNT(*) FROM updates").fetchone()
        per_step = dict(ledger.execute("SELECT step, COUNT(*) FROM trials GROUP BY step"))
    assert (trained, updates, per_step) == (NUM_STEPS * 8, NUM_STEPS, dict.fromkeys(range(NUM_STEPS), 8))
