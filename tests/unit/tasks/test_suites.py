"""Suites: which tasks there are, and that training and held-out tasks are apart."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from t1.errors import TaskError
from t1.tasks import read_suite

Make = Callable[..., Path]


def test_a_suite_with_splits_has_them_in_order_of_name(make: Make) -> None:
    for name in ("train/b", "train/a", "heldout/c"):
        make({"instruction.md": f"Do {name}.\n"}, name=f"suite/{name}")
    make({"task.toml": "broken ="}, name="suite/train/.scratch")
    suite = read_suite(make(name="suite/train/z").parent.parent)
    assert [task.id for task in suite.train] == ["a", "b", "z"]
    assert [task.id for task in suite.heldout] == ["c"]


def test_tasks_side_by_side_are_all_held_out(make: Make) -> None:
    make({"instruction.md": "One.\n"}, name="suite/one")
    suite = read_suite(make({"instruction.md": "Two.\n"}, name="suite/two").parent)
    (suite.path / "README.md").write_text("Not a task.\n")
    assert (suite.train, [task.id for task in read_suite(suite.path).heldout]) == ((), ["one", "two"])


def test_the_digest_of_a_suite_knows_tasks_and_splits_and_not_where_it_lies(make: Make, tmp_path: Path) -> None:
    make({"instruction.md": "One.\n"}, name="suite/train/a")
    make({"instruction.md": "Two.\n"}, name="suite/heldout/b")
    suite = read_suite(tmp_path / "suite")
    moved = Path(shutil.copytree(suite.path, tmp_path / "moved"))
    assert read_suite(moved).digest == suite.digest
    (moved / "heldout" / "b").rename(moved / "train" / "b")
    assert read_suite(moved).digest != suite.digest


def test_a_task_in_both_splits_is_refused(make: Make, tmp_path: Path) -> None:
    make(name="suite/train/a")
    path = make(name="suite/heldout/b")
    with pytest.raises(TaskError, match="in both splits: training has it as a") as caught:
        read_suite(tmp_path / "suite")
    assert caught.value.path == path


def test_an_instruction_in_both_splits_is_refused(make: Make, tmp_path: Path) -> None:
    make(name="suite/train/a")
    make({"environment/files/x": "another file", "instruction.md": "Make it so.\n\n"}, name="suite/heldout/b")
    with pytest.raises(TaskError, match="in both splits: training has it as a"):
        read_suite(tmp_path / "suite")


def test_a_broken_task_is_named(make: Make, tmp_path: Path) -> None:
    make(name="suite/train/a")
    broken = make({"instruction.md": ""}, name="suite/train/b")
    with pytest.raises(TaskError) as caught:
        read_suite(tmp_path / "suite")
    assert caught.value.path == broken / "instruction.md"


@pytest.mark.parametrize("folders", [[], ["train"], ["train", "heldout"]])
def test_an_empty_suite_is_refused(tmp_path: Path, folders: list[str]) -> None:
    for name in folders:
        (tmp_path / name).mkdir()
    with pytest.raises(TaskError, match="holds no tasks"):
        read_suite(tmp_path)


def test_what_is_no_suite_is_refused_in_words(make: Make, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no such suite"):
        read_suite(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(TaskError, match="is not a directory"):
        read_suite(tmp_path / "file")
    with pytest.raises(TaskError, match="is a task, not a suite"):
        read_suite(make())
