"""Starts programs as a reader would, and ends them within a bound."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

START = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from t1.cli import main; main()"
"""`t1` as a terminal starts it: a job in the background would ignore Ctrl-C."""
START_S, END_S = 120, 60


def script(text: str, place: Path, *, bound_s: float) -> str:
    """What a shell script printed, as `run`."""
    return run(["bash", "-euo", "pipefail", "-c", text], place, bound_s=bound_s)


def run(command: Sequence[str], place: Path, *, bound_s: float) -> str:
    """What a program printed that ended well, as `ended`."""
    code, printed = ended(command, place, bound_s=bound_s)
    assert code == 0, printed[-3000:]
    return printed


def ended(command: Sequence[str], place: Path, *, bound_s: float) -> tuple[int, str]:
    """(exit code, what it printed). A program ends within a bound, and with it all that it started."""
    with subprocess.Popen(
        command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            printed, _ = process.communicate(timeout=bound_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, printed


def answer_of(command: Sequence[str], place: Path, path: str = "/") -> str:
    """What a `t1` command that serves until Ctrl-C answers at `path` of the address that it prints."""
    with subprocess.Popen(
        [sys.executable, "-u", "-c", START, *command],
        cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | {"BROWSER": "true"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            printed = ""
            for line in process.stdout:
                printed += line
                if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                    break
            else:
                raise AssertionError(f"no address was printed, exit code {process.wait(END_S)}: {printed}")
            with urllib.request.urlopen(found[0] + path, timeout=START_S) as answer:
                return str(answer.read().decode())
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
