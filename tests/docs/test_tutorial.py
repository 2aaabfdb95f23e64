"""The tutorial runs as it stands: all of its commands, in their order, in an empty directory."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from t1.sandboxes import probe

from .pages import ROOT, blocks, simple_commands
from .running import answer_of, script

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


@pytest.mark.timeout(BOUND_S + 120)
@pytest.mark.long
def test_every_command_of_the_tutorial_does_what_it_says(place: Path) -> None:
    *scripts, look = SCRIPTS
    printed = script("\n".join(scripts), place, bound_s=BOUND_S)
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
    assert "<title>" in answer_of([*command[:-1], "0"], place)
