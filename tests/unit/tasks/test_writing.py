"""Task directories are written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from t1.errors import TaskError
from t1.tasks import read_document, read_task, write_task
from t1.types import Task

CONFIG: Mapping[str, Any] = {"version": "1.0", "metadata": {"num_assertions": 1}}


def write(path: Path, **changed: Any) -> Task:
    """A small task, but for what is changed."""
    whole = {
        "config": CONFIG,
        "instruction": "Make it so.\n",
        "environment": {"Dockerfile": "FROM x\n", "files/deep/blob.bin": b"\0\xff", "files/run.sh": "true\n"},
        "tests": {"test.sh": "true\n"},
        "solution": {"solve.sh": "true\n"},
    }
    return write_task(path, **(whole | changed))


def names(folder: Path) -> list[str]:
    """Everything below a folder, hidden files too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    task = write(tmp_path / "suite" / "one")
    assert task == read_task(tmp_path / "suite" / "one")
    assert (task.instruction, task.num_assertions) == ("Make it so.\n", 1)
    assert (task.path / "environment" / "files" / "deep" / "blob.bin").read_bytes() == b"\0\xff"
    assert names(tmp_path) == sorted(
        ["suite", "suite/one"] + [f"suite/one/{name}" for name in names(tmp_path / "suite" / "one")]
    )


def test_scripts_are_executable_and_the_agents_files_are_not(tmp_path: Path) -> None:
    task = write(tmp_path / "one")
    modes = {name: (task.path / name).stat().st_mode & 0o777 for name in names(task.path) if "." in name}
    assert {name for name, mode in modes.items() if mode == 0o755} == {"tests/test.sh", "solution/solve.sh"}
    assert {mode for name, mode in modes.items() if not name.endswith("test.sh") and name != "solution/solve.sh"} == {
        0o644
    }


def test_steps_are_written_too(tmp_path: Path) -> None:
    steps = {"a/instruction.md": "Begin.\n", "a/tests/test.sh": "true\n"}
    task = write(tmp_path / "one", config={"steps": [{"name": "a"}]}, instruction="", tests={}, steps=steps)
    assert not (task.path / "instruction.md").exists()
    assert [step.instruction for step in task.steps] == ["Begin.\n"]


def test_comments_order_and_unknown_keys_survive_a_change(tmp_path: Path) -> None:
    text = '# A task.\nversion = "1.0"\n\n[zoo] # ours\nkeeper = "Ann"\n\n[verifier]\ntimeout_sec = 5.0  # enough\n'
    first = write(tmp_path / "one")
    (first.path / "task.toml").write_text(text)
    document = read_document(first.path)
    document["verifier"]["timeout_sec"] = 7.0
    second = write(tmp_path / "two", config=document)
    assert (second.path / "task.toml").read_text() == text.replace("5.0", "7.0")
    assert second.verifier.timeout_s == 7.0


def test_a_document_that_is_wrong_is_not_handed_out(tmp_path: Path) -> None:
    task = write(tmp_path / "one")
    (task.path / "task.toml").write_text("[verifier]\ntimeout_sec = -1\n")
    with pytest.raises(TaskError, match="greater than 0"):
        read_document(task.path)


@pytest.mark.parametrize(
    ("changed", "file", "key", "reason"),
    [
        ({"config": {"version": "7"}}, "task.toml", "version", "1.4"),
        ({"config": {"metadata": {"x": None}}}, "task.toml", "", "TOML cannot say"),
        ({"config": {"metadata": {"x": object()}}}, "task.toml", "", "TOML cannot say"),
        ({"instruction": " "}, "instruction.md", "", "is empty"),
        ({"instruction": ""}, "instruction.md", "", "no such file"),
        ({"tests": {}}, "tests/test.sh", "", "needs its verifier"),
        ({"environment": {}}, "environment", "", "Dockerfile"),
        ({"tests": {"test.sh": "", "../../out": ""}}, "tests/../../out", "", "leaves the task directory"),
    ],
)
def test_a_broken_task_is_refused_by_its_final_path_and_leaves_nothing(
    tmp_path: Path, changed: dict[str, Any], file: str, key: str, reason: str
) -> None:
    with pytest.raises(TaskError) as caught:
        write(tmp_path / "one", **changed)
    assert (caught.value.path, caught.value.key) == (tmp_path / "one" / file, key)
    assert reason in caught.value.reason
    assert names(tmp_path) == []


def test_what_the_disk_refuses_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="one: cannot be written: "):
        write(tmp_path / "one", environment={"Dockerfile": "", "a": "a file", "a/b": "and a folder"})
    with pytest.raises(TaskError, match="cannot be written: File name too long"):
        write(tmp_path / "one", tests={"test.sh": "", "x" * 300: ""})
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["directory", "file", "dangling link"])
def test_nothing_is_written_over(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "one"
    if kind == "directory":
        path.mkdir()
    elif kind == "file":
        path.write_text("mine")
    else:
        path.symlink_to("nowhere")
    with pytest.raises(TaskError, match="exists already"):
        write(path)
    assert names(tmp_path) == ["one"]
