"""Runs of PPO whose suite pays a policy that knows nothing: for tests of where a run's processes are."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from t1.cli.train import reinforce
from t1.config import load_config
from t1.progress import ProgressDisplay
from t1.rundir import RunDir
from t1.tracking import read_metrics

SMOKE = Path(__file__).parents[2] / "configs" / "smoke.toml"
# One trial at a time: then the engine's arithmetic, and so each bit of a rollout, is the same from run to run.
SETTINGS = [
    "run.steps=3", "run.checkpoint_every=1", "run.keep_checkpoints=3", "run.threads=1", "rollouts.tasks_per_step=4",
    "rollouts.group_size=1", "rollouts.max_concurrent=1", "ppo.critic_warmup_steps=1",
]  # fmt: skip
IMAGE = "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY files/ /app/\n"
TASK = """version = "1.0"
[metadata]
num_assertions = 3
[verifier]
timeout_sec = 30.0
[agent]
timeout_sec = 60.0
[environment]
cpus = 1
memory_mb = 256
"""
VERIFIER = """#!/bin/bash
mkdir -p /logs/verifier
echo '{"results":{"tool":{"name":"shell"},"summary":{"tests":3,"passed":PASSED,"failed":FAILED,"pending":0,"skipped":0,
"other":0,"start":0,"stop":0},"tests":[TESTS]}}' > /logs/verifier/ctrf.json
echo 0 > /logs/verifier/reward.txt
"""


def write_suite(path: Path, *, num_tasks: int = 6) -> Path:
    """Tasks that pay a third of their index, modulo three, whatever the agent does: something to learn from."""
    for index in range(num_tasks):
        for split in ("train", "heldout"):
            task = path / split / f"{split}-{index}"
            for folder in ("environment/files", "solution", "tests"):
                (task / folder).mkdir(parents=True)
            (task / "environment" / "files" / "notes.txt").write_text(f"{split} {index}\n", encoding="utf-8")
            (task / "environment" / "Dockerfile").write_text(IMAGE, encoding="utf-8")
            (task / "instruction.md").write_text(f"Say {split} {index}.", encoding="utf-8")
            (task / "solution" / "solve.sh").write_text(f"#!/bin/bash\necho {index}\n", encoding="utf-8")
            (task / "task.toml").write_text(TASK, encoding="utf-8")
            (task / "tests" / "test.sh").write_text(_verifier(index % 3), encoding="utf-8")
    return path


def _verifier(passed: int) -> str:
    statuses = ["passed"] * passed + ["failed"] * (3 - passed)
    tests = [f'{{"name":"a{i}","status":"{status}","duration":0}}' for i, status in enumerate(statuses)]
    counted = VERIFIER.replace("PASSED", str(passed)).replace("FAILED", str(3 - passed))
    return counted.replace("TESTS", ",".join(tests))


@contextmanager
def sandbox_root() -> Iterator[Path]:
    """A directory for sandboxes that other uids can pass through."""
    path = Path(tempfile.mkdtemp(prefix="t1-ranked-"))
    path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def train(run: Path, suite: Path, sandboxes: Path, *overrides: str) -> Path:
    """The command `t1 train`, here; on from where the run is, if there is one. Returns the last checkpoint."""
    if (run / "config.toml").exists():
        opened, config = RunDir.resume(run)
    else:
        fixed = [f"tasks.path={suite}", f"sandboxes.root={sandboxes}", *SETTINGS, *overrides]
        config = load_config(SMOKE, fixed)
        opened = RunDir.create(run, config)
    with opened, ProgressDisplay() as show:
        return reinforce(config, opened, show)


def steps_of(run: Path) -> list[dict[str, Any]]:
    """What each PPO step logged."""
    return [record for record in read_metrics(run / "metrics.jsonl") if record["stage"] == "rl"]


def pid_of_post(name: str, *, timeout_s: float = 120.0) -> int:
    """The local post of this name that this process started."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and _is_post(process, name):
                return int(process.name)
        time.sleep(0.05)
    raise TimeoutError(f"no post {name} within {timeout_s:g} s")


def _is_post(process: Path, name: str) -> bool:
    try:
        line = (process / "cmdline").read_bytes().split(b"\0")
        parent = int((process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    except OSError:
        return False
    return parent == os.getpid() and b"t1.cluster.hosted" in line and line[-2].endswith(f"/{name}".encode())
