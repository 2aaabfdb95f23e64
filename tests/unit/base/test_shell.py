"""The simulated shell prints what a real one prints."""

import subprocess
from pathlib import Path
from random import Random

import pytest

from t1.base.reading import read_and_use
from t1.base.shell import ACTIONS, Exchange, act
from t1.base.tree import Tree


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
    tree = Tree(Random(seed), num_files=4, num_dirs=2)
    setup = tree.setup_lines()
    exchanges = [act(tree) for _ in range(25)]
    real = real_outputs(setup, [exchange.command for exchange in exchanges], tmp_path)
    for exchange, (output, code) in zip(exchanges, real, strict=True):
        assert exchange == Exchange(exchange.command, output, code)


@pytest.mark.parametrize("seed", range(12))
def test_reading_before_acting_shows_what_bash_shows(seed: int, tmp_path: Path) -> None:
    tree = Tree(Random(seed), num_files=3, num_dirs=1)
    setup = tree.setup_lines()
    exchanges, typed = [], []
    for _ in range(10):
        tree.givens.clear()
        first, second = read_and_use(tree)
        exchanges += [first, second]
        typed += [" && ".join([*tree.givens, first.command]), second.command]
    real = real_outputs(setup, typed, tmp_path)
    for exchange, (output, code) in zip(exchanges, real, strict=True):
        assert exchange == Exchange(exchange.command, output, code)


def test_every_action_can_be_drawn() -> None:
    for action in ACTIONS:
        drawn = [Tree(Random(seed), 5, 2) for seed in range(200)]
        assert any(action(tree) is not None or action(_with_a_link(tree)) is not None for tree in drawn), action


def _with_a_link(tree: Tree) -> Tree:
    tree.links["somelink2"] = next(iter(tree.files))
    return tree
