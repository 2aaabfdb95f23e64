"""Commands of the documentation that only read: they run over a small run that lies where the pages say."""

from __future__ import annotations

from pathlib import Path

import pytest

from t1.cli import main
from t1.testing.runs import example_rollout, write_run

from .pages import PAGES, commands

RUN = "runs/quickstart"
SHOWN = {
    command.words: str(command)
    for page in PAGES
    for command in commands(page)
    if command.words[:2] in (("t1", "audit"), ("t1", "verdict")) and command.words[2:3] == (RUN,)
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a small run in it that nothing is wrong with."""
    root = tmp_path_factory.mktemp("place")
    write_run(root / RUN, evaluated={"rl": [example_rollout(f"held-{i:02}", passed=4 * (i % 2)) for i in range(20)]})
    return root


@pytest.mark.parametrize("words", SHOWN, ids=SHOWN.values())
def test_what_reads_a_run_does_so_as_it_is_written(
    words: tuple[str, ...], place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    code = main(words[1:])
    shown = capsys.readouterr()
    assert code in (0, 1), shown.err
    assert shown.out.strip()
