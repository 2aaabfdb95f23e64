"""Whole runs of the command line, in processes of their own, and what their directories say of them afterwards."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from t1.tracking import read_metrics

SMOKE = Path(__file__).parents[2] / "configs" / "smoke.toml"
NUM_STEPS, BATCH = 3, 4
# One trial at a time: then the engine's arithmetic, and so each bit, is the same from run to run.
SETTINGS = [
    f"run.steps={NUM_STEPS}", "run.checkpoint_every=1", "run.keep_checkpoints=3", "run.threads=1",
    "tasks.num_train=6", "tasks.num_heldout=2", "rollouts.tasks_per_step=4", "rollouts.group_size=1",
    "rollouts.max_concurrent=1", "sft.steps=2", "sft.batch_size=4",
]  # fmt: skip
LAST = Path("checkpoints") / "rl" / f"step-{NUM_STEPS:06d}"
CLOCKED = ("_s", "_per_s", "bias_duration")
MAIN = "import sys; from t1.cli import main; sys.exit(main())"


def command(run: Path, sandboxes: Path, *, program: str = MAIN) -> list[str]:
    """What begins the run, or goes on with it."""
    begin = [str(SMOKE), "--out", str(run), f"sandboxes.root={sandboxes}", *SETTINGS]
    arguments = ["--resume", str(run)] if (run / "config.toml").exists() else begin
    return [sys.executable, "-c", program, "train", *arguments]


@dataclass(frozen=True, slots=True)
class Whole:
    """The run that nothing happened to."""

    path: Path
    seconds: float
    """What it took, here and now."""


def finish(line: Sequence[str], *, timeout_s: float) -> tuple[int, str]:
    """Let a command run to its end: (exit status, what it said)."""
    done = subprocess.run(line, capture_output=True, text=True, timeout=timeout_s, start_new_session=True)
    return done.returncode, done.stdout + done.stderr


def trials(run: Path) -> list[tuple[str, int, int, int]]:
    """(task, draw, member, step) of everything that the ledger says was trained on."""
    with contextlib.closing(sqlite3.connect(run / "ledger.sqlite")) as ledger:
        return list(ledger.execute("SELECT task, draw, member, step FROM trials WHERE state='admitted'"))


def learned(run: Path) -> list[dict[str, Any]]:
    """What each PPO step measured, without what a clock says."""
    return [
        {key: value for key, value in record.items() if not key.endswith(CLOCKED)}
        for record in read_metrics(run / "metrics.jsonl")
        if record["stage"] == "rl"
    ]


def assert_same(whole: Path, other: Path) -> None:
    """The same metrics and the same weights, bit for bit."""
    for one, two in zip(learned(whole), learned(other), strict=True):
        assert {key: (one[key], two[key]) for key in one if not _same(one[key], two.get(key))} == {}
    before, after = (load_file(run / LAST / "model.safetensors") for run in (whole, other))
    assert all((before[name] == after[name]).all() for name in before)


def _same(a: Any, b: Any) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))
