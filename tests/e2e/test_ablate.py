"""Ablations in real sandboxes, tiny: whole pairs, nothing run twice, and a text stack that the audit finds out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from t1.evaluation.ablations import is_done
from t1.rollouts.store import read_step
from t1.rundir import read_run_config
from t1.sandboxes import probe

SMOKE = Path(__file__).parents[2] / "configs" / "smoke.toml"
TINY = [
    *("run.threads=1", "run.steps=1", "tasks.num_train=8", "tasks.num_heldout=2", "evaluation.num_tasks=2"),
    *("rollouts.tasks_per_step=4", "rollouts.group_size=1", "rollouts.max_concurrent=4", "sft.steps=2"),
    *("ppo.critic_warmup_steps=0", "harness.max_turns=3"),
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(probe().confinement is None, reason="this host cannot open sandboxes"),
]


def ablate(kind: str, out: Path, sandboxes: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """`t1 ablate` with one seed."""
    words = [kind, SMOKE, "--out", out, "--seeds", "1", *TINY, f"sandboxes.root={sandboxes}", *more]
    command = [sys.executable, "-m", "t1", "ablate", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.long
def test_two_ablations_share_a_start_and_an_arm_and_run_nothing_twice(tmp_path: Path, sandboxes: Path) -> None:
    done = ablate("tito", tmp_path, sandboxes)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "the arms differ in tito.keep alone" in done.stderr and "both have ppo.replay_routing = False" in done.stderr
    assert "one seed says nothing" in done.stderr
    found = json.loads((tmp_path / "tito.json").read_text())
    assert [run["arm"] for run in found["runs"]] == ["text", "tokens"] and found["unsound"] == {}
    assert [one["num_tasks"] for one in found["differences"]] == [2, 2]
    assert [run["rollouts"] for run in found["runs"]] == [4, 4]

    text, tokens = tmp_path / "seed-0" / "text", tmp_path / "seed-0" / "tokens"
    assert is_done(text) and is_done(tokens)
    assert read_run_config(text).model.path == str(tmp_path / "start" / "checkpoints" / "sft")
    _, trained = read_step(text / "rollouts" / "rl-00000.parquet")
    assert trained and all(trajectory.routing is None for trajectory in trained)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*/verdict.json")}

    done = ablate("replay", tmp_path, sandboxes)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "live: done already" in done.stderr
    assert sorted(path.name for path in (tmp_path / "seed-0").iterdir()) == ["replay", "text", "tokens"]
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    assert {"tito.md", "tito.svg", "replay.md", "replay.svg", "replay.json"} <= {p.name for p in tmp_path.iterdir()}

    refused = ablate("tito", tmp_path, sandboxes, "ppo.lr=1e-3")
    assert refused.returncode == 2 and "ppo.lr was 0.0004 and is 0.001; choose another --out" in refused.stderr
