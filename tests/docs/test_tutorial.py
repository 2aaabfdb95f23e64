"""The tutorial runs as it stands: all of its commands, in their order, in an empty directory."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from t1.sandboxes import probe

from .pages import ROOT, blocks, simple_commands

SCRIPTS = [script for _, script in blocks(ROOT / "docs" / "tutorial.md")]
BOUND_S = 1800
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(probe().confinement is None, reason="this host cannot open sandboxes"),
]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory that looks like a checkout after `make venv`: its programs and its configurations."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "activate").write_text(f'export PATH="{programs}:$PATH"\n')
    (programs / "t1").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m t1 "$@"\n')
    (programs / "t1").chmod(0o755)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def run(script: str, place: Path) -> str:
    """What a script printed. It ends within a bound, and with it all that it started."""
    command = ["bash", "-euo", "pipefail", "-c", script]
    with subprocess.Popen(
        command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            printed, _ = process.communicate(timeout=BOUND_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, printed[-3000:]
    return printed


def page_of(command: list[str], place: Path) -> str:
    """The first page that `t1 view` serves; the command runs until it is interrupted."""
    start = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from t1.cli import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-u", "-c", start, *command],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        else:
            raise AssertionError(f"no address was printed, exit code {process.wait()}")
        try:
            with urllib.request.urlopen(found[0], timeout=60) as answer:
                return str(answer.read().decode())
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)


def test_every_command_of_the_tutorial_does_what_it_says(place: Path) -> None:
    *scripts, look = SCRIPTS
    printed = run("\n".join(scripts), place)
    assert "count-errors" in printed and "sound: no errors" in printed
    for path in (
        "runs/tutorial/verdict.json",
        "evals/rl/results.md",
        "evals/rl/harbor/t1-eval",
        "runs/tutorial/metrics.jsonl",
    ):
        assert (place / path).exists(), path
    results = (place / "evals" / "rl" / "results.md").read_text()
    assert "## Against the earlier evaluation" in results and "0 of 4 tasks are among the" in results

    [(_, (program, *command))] = simple_commands(look)
    assert (program, command[0], command[-2]) == ("t1", "view", "--port")
    assert "<title>" in page_of([*command[:-1], "0"], place)
