"""The command line as a person meets it: help with examples, and one line for every mistake."""

import subprocess
import sys
from pathlib import Path

import pytest

from t1.cli import main
from t1.cli.settings import split_settings
from t1.errors import ConfigError

COMMANDS = [
    ["quickstart"],
    ["tasks", "make"],
    ["tasks", "check"],
    ["tasks", "show"],
    ["rollout"],
    ["sft"],
    ["train"],
    ["eval"],
    ["audit"],
    ["doctor"],
    ["sandboxes", "list"],
    ["sandboxes", "sweep"],
]


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """The one line on stderr that a mistake gets."""
    assert main(arguments) == code
    captured = capsys.readouterr()
    assert captured.err.startswith("t1: ") and captured.err.count("\n") == 1, captured.err
    assert "Traceback" not in captured.err
    return captured.err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(command, capsys):
    assert main([*command, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"t1 {' '.join(command)}" in shown and "Example:" in shown


def test_the_overview_names_every_command(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(command[0] in shown for command in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        (["trian"], "train"),
        (["tasks", "chekc"], "check"),
        (["train", "--resmue", "x"], "--resume"),
        (["train", "ppo.lrr=1"], "ppo.lr"),
        (["eval", "evaluation.numtasks=1"], "evaluation.num_tasks"),
        (["quickstart", "sft.step=1"], "sft.steps"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest_right_one(arguments, right, capsys):
    assert right in complaint(capsys, *arguments)


def test_a_missing_argument_or_a_wrong_value_is_one_line(capsys):
    assert "PATH" in complaint(capsys, "tasks", "show").upper()
    assert "'--train'" in complaint(capsys, "tasks", "make", "somewhere", "--train", "many")


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path, capsys):
    assert "no such file" in complaint(capsys, "train", str(tmp_path / "none.toml"))
    assert "no run here" in complaint(capsys, "train", "--resume", str(tmp_path / "none"))


def test_an_evaluation_without_a_suite_says_how_to_make_one(capsys):
    assert "t1 tasks make" in complaint(capsys, "eval")


def test_settings_take_one_file_and_any_number_of_values():
    assert split_settings(["a.toml", "x.y=1", "z=a=b"]) == (Path("a.toml"), ["x.y=1", "z=a=b"])
    assert split_settings([]) == (None, [])
    with pytest.raises(ConfigError, match=r"a\.toml and b\.toml"):
        split_settings(["a.toml", "b.toml"])


def test_a_run_directory_in_use_is_refused(tmp_path: Path, capsys):
    from t1.config import RunConfig
    from t1.rundir import RunDir

    with RunDir.create(tmp_path / "run", RunConfig()):
        assert "is writing this run" in complaint(capsys, "quickstart", "--out", str(tmp_path / "run"))
        assert "is writing this run" in complaint(capsys, "train", "--resume", str(tmp_path / "run"))


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "t1", "trian"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "Did you mean 'train'?" in done.stderr


def test_every_kind_of_error_has_its_exit_code_and_one_line():
    script = """
import errno, sys
from pathlib import Path
from t1.cli import app, main
from t1.errors import SandboxUnavailable, SandboxVanished, TaskError

ERRORS = {
    "user": TaskError(Path("t/task.toml"), "must be positive", "agent.timeout_sec"),
    "infrastructure": SandboxUnavailable("no user\\nnamespaces"),
    "interrupt": KeyboardInterrupt(),
    "group": BaseExceptionGroup("several", [ExceptionGroup("inner", [SandboxVanished("gone")]), KeyboardInterrupt()]),
    "full": OSError(errno.ENOSPC, "No space left on device", "runs/x"),
}

@app.command()
def fail(kind: str) -> None:
    raise ERRORS[kind]

print(*[main(["fail", kind]) for kind in ERRORS])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["2", "3", "130", "3", "2"]
    user, infrastructure, interrupt, group, full = done.stderr.splitlines()
    assert user == "t1: t/task.toml: agent.timeout_sec: must be positive"
    assert infrastructure == "t1: SandboxUnavailable: no user namespaces"
    assert "t1 train --resume" in interrupt
    assert group == "t1: SandboxVanished: gone"
    assert full == "t1: runs/x: No space left on device"


@pytest.mark.parametrize("ignores_interrupts", [False, True])
def test_a_kill_is_an_interrupt_even_for_a_job_in_the_background(ignores_interrupts):
    script = f"""
import os, signal, time
from t1.cli import app, main

if {ignores_interrupts}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

@app.command()
def wait() -> None:
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
    finally:
        print("cleaned up")

raise SystemExit(main(["wait"]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout) == (130, "cleaned up\n")
