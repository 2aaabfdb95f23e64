"""A run whose pool holds two tasks that no audit read: training notices, says why, and goes on with the others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from t1.rollouts.store import read_step
from t1.sandboxes import probe
from t1.tasks.harbor import write_task
from t1.tracking import read_metrics

SMOKE = Path(__file__).parents[2] / "configs" / "smoke.toml"
STEPS = 5
SETTINGS = (
    f"run.steps={STEPS} run.threads=1 rollouts.tasks_per_step=4 rollouts.group_size=2 rollouts.max_concurrent=4 "
    "harness.max_turns=2 evaluation.num_tasks=2 demotion.min_attempts=4 demotion.impossible_after=4"
).split()
CHECK = "check() { if $2; then echo ok - $1; else echo not ok - $1; fi; }\n"
TESTS = {
    "given": "check given 'test -f names.txt'; check sorted 'test -f sorted.txt'\n",
    "impossible": "check sky 'test -f /nowhere/sky.txt'; check sea 'test -f /nowhere/sea.txt'\n",
    "flaky": 'check "given-$RANDOM$RANDOM" "test -f names.txt"; check sorted "test -f sorted.txt"\n',
}
"""Verifiers: one passes by half what nobody does, one asks for what nobody can do, one never has the same names."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(probe().confinement is None, reason="this host cannot open sandboxes"),
]


def write_suite(path: Path) -> None:
    """Three tasks to train on that are sound, one of each other kind, and two to evaluate."""
    names = {f"sound-{number}": "given" for number in range(3)} | {"sky": "impossible", "dice": "flaky"}
    for part, tests in (("train", names), ("heldout", {"held-0": "given", "held-1": "given"})):
        for number, (name, kind) in enumerate(tests.items()):
            write_task(
                path / part / name,
                config={"version": "1.0", "verifier": {"timeout_sec": 20}, "agent": {"timeout_sec": 30}},
                instruction=f"Sort names.txt into sorted.txt. This is {part} {number}.\n",
                environment={"Dockerfile": "FROM debian\nWORKDIR /app\nCOPY names.txt /app/\n", "names.txt": "b\na\n"},
                tests={"test.sh": f"cd /app\n{{ {CHECK}echo 1..2; {TESTS[kind]} }} > /logs/verifier/report.tap\n"},
                solution={"solve.sh": "sort names.txt > sorted.txt\n"},
            )


def test_what_no_audit_read_leaves_the_pool_and_the_run_goes_on(tmp_path: Path, sandboxes: Path) -> None:
    write_suite(tmp_path / "suite")
    run = tmp_path / "run"
    words = [SMOKE, "--out", run, f"tasks.path={tmp_path / 'suite'}", f"sandboxes.root={sandboxes}", *SETTINGS]
    done = subprocess.run(
        [sys.executable, "-m", "t1", "train", *map(str, words)], capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr[-3000:]
    out = json.loads((run / "demotions.json").read_text())["out"]
    assert set(out) == {"sky", "dice"}
    assert out["sky"]["reason"].startswith("impossible: none of") and out["dice"]["reason"].startswith("flaky: ")
    assert "sky leaves the pool: impossible" in done.stderr and "dice leaves the pool: flaky" in done.stderr

    steps = [record for record in read_metrics(run / "metrics.jsonl") if record["stage"] == "rl"]
    assert len(steps) == STEPS
    assert [steps[-1][f"demoted{kind}"] for kind in ("", "_impossible", "_flaky", "_tampering")] == [2, 1, 1, 0]
    _, last = read_step(run / "rollouts" / f"rl-{STEPS - 1:05d}.parquet")
    assert last and {trajectory.rollout.task for trajectory in last} <= {"sound-0", "sound-1", "sound-2"}
