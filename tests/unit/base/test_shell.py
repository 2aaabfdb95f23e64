"""The simulated shell prints what a real one prints."""

import subprocess
from pathlib import Path
from random import Random

import pytest

from t1.base.reading import read_and_use
from t1.base.shell import ACTIONS, Exchange, Shell


def real_outputs(setup: list[str], commands: list[str], workdir: Path) -> list[tuple[str, int]]:
    """(output, exit code) of each command in one bash."""
    lines = ["umask 022", *setup, *(f"{command} 2>&1; printf '\\001%s\\002' $?" for command in commands)]
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(lines)],
        cwd=workdir,
        env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    parts = [part.split("\1") for part in done.stdout.split("\2")[:-1]]
    return [(output.rstrip("\n"), int(code)) for output, code in parts]


@pytest.mark.parametrize("seed", range(12))
def test_a_simulated_session_prints_what_bash_prints(seed: int, tmp_path: Path) -> None:
    sh = Shell(Random(seed), num_files=4, num_dirs=2)
    setup = sh.setup_lines()
    exchanges = [sh.act() for _ in range(25)]
    real = real_outputs(setup, [exchange.command for exchange in exchanges], tmp_path)
    for exchange, (output, code) in zip(exchanges, real, strict=True):
        assert exchange == Exchange(exchange.command, output, code)


@pytest.mark.parametrize("seed", range(12))
def test_reading_before_acting_shows_what_bash_shows(seed: int, tmp_path: Path) -> None:
    sh = Shell(Random(seed), num_files=3, num_dirs=1)
    setup = sh.setup_lines()
    exchanges, typed = [], []
    for _ in range(10):
        sh.givens.clear()
        first, second = read_and_use(sh)
        exchanges += [first, second]
        typed += [" && ".join([*sh.givens, first.command]), second.command]
    real = real_outputs(setup, typed, tmp_path)
    for exchange, (output, code) in zip(exchanges, real, strict=True):
        assert exchange == Exchange(exchange.command, output, code)


def test_every_action_can_be_drawn() -> None:
    for action in ACTIONS:
        assert any(Shell(Random(seed), 5, 2).act((action, *ACTIONS)) is not None for seed in range(5))
        drawn = [Shell(Random(seed), 5, 2) for seed in range(200)]
        assert any(action(sh) is not None or action(_with_a_link(sh)) is not None for sh in drawn), action


def _with_a_link(sh: Shell) -> Shell:
    sh.links["somelink2"] = next(iter(sh.files))
    return sh
