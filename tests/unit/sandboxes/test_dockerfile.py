"""The Dockerfile subset: honoured or refused with path and line, never skipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from t1.errors import TaskError
from t1.sandboxes import NamespaceProvider
from t1.sandboxes.dockerfile import Copy, Image, Run, read_image
from t1.types import Environment, Task


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], Image]:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "deep.txt").write_text("deep")
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")

    def reader(text: str) -> Image:
        (tmp_path / "Dockerfile").write_text(text)
        return read_image(Environment(tmp_path))

    return reader


def test_without_a_dockerfile_there_are_defaults(tmp_path: Path) -> None:
    image = read_image(Environment(tmp_path))
    assert image.workdir == "/app"
    assert image.places == ("/app", "/root", "/tmp", "/logs")


def test_the_tasks_own_workdir_and_variables_come_last(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("WORKDIR /app/one\nENV A=1 B=2\n")
    image = read_image(Environment(tmp_path, workdir="/srv/two", env={"B": "3"}))
    assert image.workdir == "/srv/two"
    assert (image.env["A"], image.env["B"]) == ("1", "3")
    assert "/srv" in image.places


def test_instructions_that_change_nothing_here_are_ignored(read: Callable[[str], Image]) -> None:
    assert (
        read('# a\nFROM debian:12 AS x\nUSER root\nEXPOSE 80\nLABEL a=b\nCMD ["bash"]\nENTRYPOINT ["x"]\n').runs == ()
    )


def test_workdirs_stack_and_belong_to_what_follows(read: Callable[[str], Image]) -> None:
    image = read("WORKDIR /app\nRUN one\nWORKDIR sub/../dir\nrun two \\\n  # between\n  and three\n")
    assert image.runs == (
        Run("one", "/app", "line 2: RUN"),
        Run("two    and three", "/app/dir", "line 4: RUN"),
    )
    assert image.workdir == "/app/dir"


def test_variables_are_expanded_where_they_are_set(read: Callable[[str], Image]) -> None:
    image = read('ENV A="b c" D=${HOME}/d\nENV PATH=/app/bin:$PATH\nENV OLD style of it\nWORKDIR $D\n')
    assert (image.env["A"], image.env["D"], image.env["OLD"]) == ("b c", "/root/d", "style of it")
    assert image.env["PATH"].startswith("/app/bin:/usr/local/sbin")
    assert image.workdir == "/root/d"


def test_copy_takes_files_folders_patterns_and_the_json_form(read: Callable[[str], Image], tmp_path: Path) -> None:
    image = read('COPY a.txt /data/x.txt\nCOPY --chown=0:0 *.txt here/\nCOPY ["folder", "/app/folder"]\n')
    assert image.copies == (
        Copy((tmp_path / "a.txt",), "/data/x.txt", into=False),
        Copy((tmp_path / "a.txt", tmp_path / "b.txt"), "/app/here", into=True),
        Copy((tmp_path / "folder",), "/app/folder", into=False),
    )
    assert "/data" in image.places


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ADD a.txt /app/", "cannot honour"),
        ("ARG X=1", "cannot honour"),
        ("USER nobody", "cannot honour"),
        ("VOLUME /app", "cannot honour"),
        ("COPY --from=build /x /app/x", "cannot honour this flag"),
        ("COPY ../secret /app/", "lies outside environment/"),
        ("COPY none.txt /app/", "is not in environment/"),
        ("COPY a.txt", "expected sources and a destination"),
        ("COPY a.txt /etc/a.txt", "/etc is read-only"),
        ("COPY a.txt /tests/a.txt", "/tests is read-only"),
        ("WORKDIR /", "root directory is read-only"),
        ("WORKDIR /usr/src/app", "/usr is read-only"),
        ("ENV A='unclosed", "No closing quotation"),
        ("ENV A=1 B", "expected NAME=value"),
        ("RUN <<EOF", "cannot honour this form"),
        ('COPY ["a.txt", ', "not a JSON list"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_path_and_line(
    read: Callable[[str], Image], tmp_path: Path, line: str, reason: str
) -> None:
    with pytest.raises(TaskError, match=reason) as caught:
        read(f"FROM debian\n\n{line}\n")
    assert caught.value.path == tmp_path / "Dockerfile"
    assert caught.value.key.startswith("line 3: ")


async def test_an_image_is_built_in_the_sandbox(provider: NamespaceProvider, make_task: Callable[..., Task]) -> None:
    task = make_task(
        "FROM debian\nENV WHO=me\nCOPY tree /data\nCOPY one.txt sub/\nRUN echo $WHO > built && test -f /data/leaf\n"
        'RUN ["touch", "two words"]\nWORKDIR /app/work\n'
    )
    tree = task.environment.path / "tree"
    tree.mkdir()
    (tree / "leaf").write_text("leaf")
    (task.environment.path / "one.txt").write_text("one")
    sandbox = await provider.open(task)
    seen = await sandbox.run("pwd; cat ../built; cat ../sub/one.txt; ls ..; stat -c %u /data/leaf", timeout_s=10)
    assert (
        seen.output == "/app/work\nme\noneDockerfile\n".replace("Dockerfile\n", "") + "built\nsub\ntwo words\nwork\n0\n"
    )
    ended = await sandbox.run("echo more >> /data/leaf", timeout_s=10)
    assert ended.exit_code == 0
    assert (tree / "leaf").read_text() == "leaf"


async def test_a_failing_run_is_a_task_error_that_names_the_line(
    provider: NamespaceProvider, make_task: Callable[..., Task]
) -> None:
    task = make_task("FROM debian\nRUN true\nRUN echo broken; exit 4\n")
    with pytest.raises(TaskError, match=r"Dockerfile: line 3: RUN: exit code 4: broken"):
        await provider.open(task)
