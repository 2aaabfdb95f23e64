"""The whole method in real sandboxes, small: what a run leaves behind, what a kill and a Ctrl-C leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from t1.cli import main
from t1.rollouts.store import read_step
from t1.rollouts.token_stats import read_token_stats
from t1.rundir import RunDir
from t1.sandboxes import probe
from t1.tracking import read_metrics

SMOKE = Path(__file__).parents[2] / "configs" / "smoke.toml"
SMALL = ["run.threads=1", "tasks.num_train=8", "tasks.num_heldout=2"]
TINY_STEPS = ["rollouts.tasks_per_step=4", "rollouts.max_concurrent=4", *SMALL]
# A job in the background ignores Ctrl-C, and its children inherit that.
START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from t1.cli import main; sys.exit(main())"
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(probe().confinement is None, reason="this host cannot open sandboxes"),
]


def begin(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start `t1` as a terminal would: in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", START, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def finish(*arguments: str | Path) -> str:
    """Run `t1` to its end and return what it printed; its errors are the message of a failure."""
    with begin(*arguments) as process:
        out, err = communicate(process)
    assert process.returncode == 0, err[-2000:]
    return out


def communicate(process: subprocess.Popen[str]) -> tuple[str, str]:
    """stdout and stderr at its end, which comes within a bound."""
    try:
        return process.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def wait_until(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    """Poll for something that a running process brings about."""
    until = time.monotonic() + 120
    while not happened():
        if process.poll() is not None or time.monotonic() > until:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"never happened; exit code {process.poll()}: {process.communicate()[1][-2000:]}")
        time.sleep(0.01)


def rl_steps(run: Path) -> list[int]:
    """The steps of PPO in a run's metrics, in order."""
    return [record["step"] for record in read_metrics(run / "metrics.jsonl") if record["stage"] == "rl"]


def versions_of(run: Path, step: int) -> set[int]:
    """The weights versions that sampled the rollouts of a step."""
    rollouts, _ = read_step(run / "rollouts" / f"rl-{step:05d}.parquet")
    return {int(version) for rollout in rollouts for turn in rollout.turns for version in turn.versions}


def processes_of(sandboxes: Path) -> list[str]:
    """Command lines of living processes that mention the directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(sandboxes) in line:
                found.append(line)
    return found


def test_the_quickstart_leaves_all_that_it_promises(tmp_path: Path, sandboxes: Path) -> None:
    run = tmp_path / "run"
    printed = finish("quickstart", SMOKE, "--out", run, "run.threads=1", f"sandboxes.root={sandboxes}")
    assert "solve rate" in printed
    assert list(sandboxes.iterdir()) == []

    report = json.loads((run / "report.json").read_text())
    assert list(report["stages"]) == ["base", "sft", "rl"]
    for stage in report["stages"].values():
        assert stage["num_tasks"] == 8 and stage["mean_turns"] > 0 and stage["mean_passed_assertions"] >= 0
        low, high = stage["ci95"]
        assert 0 <= low <= stage["solve_rate"] <= high <= 1
    assert report["wall_s"] > 0
    assert 0 <= report["gap"] < 1e-3, "the engine and the trainer disagree about the log-probabilities"
    assert report["audit"]["findings_error"] == report["audit"]["loss_region_drift"] == report["audit"]["residual"] == 0
    assert report["audit"]["case_split"] == 0 < report["audit"]["case_strict"]
    assert report["audit"]["routing_rows"] > 0
    assert (run / "report.html").read_text().count("<svg") > 3, "curves are pictures"

    assert rl_steps(run) == [0, 1]
    names = ["demonstrations", "eval-base", "eval-rl", "eval-sft", "rl-00000", "rl-00001"]
    assert sorted(path.stem for path in (run / "rollouts").glob("*.parquet")) == names
    counts = [pq.read_metadata(run / "rollouts" / f"{name}.parquet").num_rows for name in names]
    assert counts == [16, 8, 8, 8, 16, 16], "every rollout is stored, failed ones too"
    for trajectory in read_step(run / "rollouts" / "rl-00001.parquet")[1]:
        told = read_token_stats(run / "token_stats" / "rl-00001.parquet", trajectory)
        assert told is not None, "what the trainer said of each token is stored too"
        assert abs(told.logprobs - trajectory.logprobs[trajectory.mask]).mean() < 1e-3
    for checkpoint in ("sft", "rl/step-000002"):
        path = run / "checkpoints" / checkpoint
        model = AutoModelForCausalLM.from_pretrained(path)
        prompt = AutoTokenizer.from_pretrained(path)("ls", return_tensors="pt")["input_ids"]
        assert torch.isfinite(model(prompt).logits).all()
    assert "sound: no errors" in finish("audit", run)


@pytest.mark.long
def test_training_goes_on_after_a_kill_and_has_each_step_once(tmp_path: Path, sandboxes: Path) -> None:
    """Killed after a step that no checkpoint holds: the step is done again, and counted once."""
    run = tmp_path / "run"
    settings = ["run.steps=5", "run.checkpoint_every=2", f"sandboxes.root={sandboxes}", *TINY_STEPS]
    with begin("train", SMOKE, "--out", run, *settings) as process:
        wait_until(process, lambda: 2 in rl_steps(run))
        process.kill()
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert (run / "checkpoints" / "rl" / "step-000002").is_dir()
    for _ in range(1000):  # the kernel kills the sandboxes with their parent, in its own time
        if not processes_of(sandboxes):
            break
        time.sleep(0.01)
    assert processes_of(sandboxes) == []

    printed = finish("train", "--resume", run)
    assert printed.strip() == str(run / "checkpoints" / "rl" / "step-000005")
    assert rl_steps(run) == [0, 1, 2, 3, 4]
    assert [versions_of(run, step) for step in range(5)] == [{0}, {1}, {2}, {3}, {4}], "each step's own weights sample"
    assert list(sandboxes.iterdir()) == [], "what the kill left is swept"
    assert "sound: no errors" in finish("audit", run)


def begun(moment: str, run: Path, sandboxes: Path) -> bool:
    """True once the run is where it is to be interrupted."""
    return any(sandboxes.glob("*/s*")) if moment == "while tasks are made" else 0 in rl_steps(run)


@pytest.mark.parametrize("moment", ["while tasks are made", "while it trains"])
def test_ctrl_c_leaves_no_sandbox_and_no_process(tmp_path: Path, sandboxes: Path, moment: str) -> None:
    """Case F3."""
    run = tmp_path / "run"
    settings = ["run.steps=500", f"sandboxes.root={sandboxes}", *TINY_STEPS]
    with begin("train", SMOKE, "--out", run, *settings) as process:
        wait_until(process, lambda: begun(moment, run, sandboxes))
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group
        _, complaint = communicate(process)
    assert process.returncode == 130, complaint[-2000:]
    assert "t1 train --resume" in complaint and "Traceback" not in complaint
    assert list(sandboxes.iterdir()) == []
    assert processes_of(sandboxes) == []
    RunDir.resume(run)[0].close()  # nobody holds the run


def demonstrated(run: Path) -> tuple[str, list[tuple[str, list[int]]]]:
    """The suite's digest, and id and tokens of every demonstration."""
    rollouts, trajectories = read_step(run / "rollouts" / "demonstrations.parquet")
    assert len(rollouts) == len(trajectories) == 8
    digest = json.loads((run / "pins.json").read_text())["suite_digest"]
    return digest, [(str(t.rollout), t.tokens.tolist()) for t in trajectories]


def test_the_same_seed_makes_the_same_tasks_and_demonstrations(
    tmp_path: Path, sandboxes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [str(SMOKE), "sft.steps=1", "sft.batch_size=2", f"sandboxes.root={sandboxes}", *SMALL]
    for name, seed in (("first", 5), ("again", 5), ("other", 6)):
        assert main(["sft", *settings, "--out", str(tmp_path / name), f"run.seed={seed}"]) == 0, capsys.readouterr().err
    first, again, other = (demonstrated(tmp_path / name) for name in ("first", "again", "other"))
    assert first == again
    assert first[0] != other[0]
