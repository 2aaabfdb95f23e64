"""Sets of tasks by path, name, registry and Harbor; real git repositories on this disk."""

import json
import subprocess
from pathlib import Path

import pytest

from t1.cli import main
from t1.errors import ConfigError, TaskError
from t1.evaluation.registry import choose, materialize, read_registry
from t1.evaluation.task_sets import ask_harbor, find_tasks
from t1.tasks import read_suite


def write_task(path: Path, *, instruction: str) -> None:
    """A task directory that can be read."""
    for name, text in (
        ("task.toml", 'version = "1.0"\n'),
        ("instruction.md", instruction + "\n"),
        ("environment/Dockerfile", "FROM scratch\n"),
        ("tests/test.sh", "true\n"),
    ):
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def repository(tmp_path: Path) -> tuple[str, list[str]]:
    """A git repository of two tasks and something else, at two commits."""
    root = tmp_path / "repository"
    commits = []
    for round in ("first", "second"):
        for name in ("a", "b"):
            write_task(root / "tasks" / name, instruction=f"Do {name}, the {round} time.")
        (root / "large").write_text("not of any task")
        git = ("git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@example.org")
        for command in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", round)):
            subprocess.run([*git, *command], check=True, capture_output=True)
        commits.append(subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip())
    return root.as_uri(), commits


def entry(name: str, url: str | None = None, commit: str | None = None, path: str | None = None) -> dict[str, str]:
    found = {"name": name, "git_url": url, "git_commit_id": commit, "path": path or f"tasks/{name}"}
    return {key: value for key, value in found.items() if value is not None}


def registry(place: Path, *sets: tuple[str, str, list[dict[str, str]]]) -> Path:
    file = place / "registry.json"
    rows = [{"name": n, "version": v, "description": "", "tasks": tasks, "metrics": []} for n, v, tasks in sets]
    file.write_text(json.dumps(rows))
    return file


def instructions(path: Path) -> list[str]:
    return [task.instruction.strip() for task in read_suite(path).heldout]


def test_a_set_is_what_its_repository_held_at_the_commit(tmp_path, repository):
    url, (first, second) = repository
    file = registry(
        tmp_path,
        ("old", "1.0", [entry("a", url, first), entry("b", url, first)]),
        ("new", "1.0", [entry("a", url, second)]),
        ("newest", "1.0", [entry("b", url)]),
    )
    found = {name: find_tasks(f"{file}#{name}", cache=tmp_path / "cache")[0] for name in ("old", "new", "newest")}
    assert instructions(found["old"]) == ["Do a, the first time.", "Do b, the first time."]
    assert instructions(found["new"]) == ["Do a, the second time."]
    assert instructions(found["newest"]) == ["Do b, the second time."]
    assert not list(tmp_path.rglob("cache/**/large")) and not list((tmp_path / "cache" / "sets").glob(".*"))


def test_a_set_that_is_there_is_not_fetched_again(tmp_path, repository):
    url, (first, _) = repository
    file = registry(tmp_path, ("old", "1.0", [entry("a", url, first)]))
    once, _ = find_tasks(str(file), cache=tmp_path / "cache")
    Path(url.removeprefix("file://")).rename(tmp_path / "gone")
    assert find_tasks(f"{file}#old@1.0", cache=tmp_path / "cache")[0] == once


def test_tasks_without_a_repository_lie_beside_the_registry(tmp_path):
    write_task(tmp_path / "mine" / "a", instruction="Do it.")
    file = registry(tmp_path, ("mine", "", [entry("org/a", path="mine/a")]))
    path, benchmark = find_tasks(str(file), cache=tmp_path / "cache")
    assert [task.id for task in read_suite(path).heldout] == ["org-a"] and benchmark is None


def test_one_of_several_sets_has_to_be_named(tmp_path):
    file = registry(tmp_path, ("x", "1", [entry("a")]), ("x", "2", [entry("a")]))
    for wanted in ("", "x", "y"):
        with pytest.raises(TaskError, match="FILE#NAME@VERSION, of x@1, x@2"):
            choose(file, wanted)
    assert choose(file, "x@2").version == "2"


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ({"path": "a"}, "0.tasks.0.name: Field required"),
        (entry("a", "--upload-pack=touch /tmp/x", "0" * 40), "git_url"),
        (entry("a", "ext::sh -c true", "0" * 40), "git_url"),
        (entry("a", "https://example.org/x", "--orphan"), "hexadecimal"),
    ],
)
def test_a_bad_entry_is_refused_with_its_key(tmp_path, task, reason):
    with pytest.raises(TaskError, match=reason):
        read_registry(registry(tmp_path, ("x", "1", [task])))


@pytest.mark.parametrize("path", ["../outside", "tasks/none"])
def test_a_path_that_its_repository_does_not_have_is_refused(tmp_path, repository, path):
    url, (first, _) = repository
    dataset = choose(registry(tmp_path, ("x", "1", [entry("a", url, first, path)])), "")
    with pytest.raises(TaskError):
        materialize(dataset, beside=tmp_path, cache=tmp_path / "cache")
    assert not list((tmp_path / "cache" / "sets").iterdir()), "nothing half made is left"


def test_a_repository_that_does_not_answer_is_named_with_gits_last_word(tmp_path):
    file = registry(tmp_path, ("x", "1", [entry("a", (tmp_path / "none").as_uri(), "0" * 40)]))
    with pytest.raises(TaskError, match=r"none: git fetch failed: .+"):
        find_tasks(str(file), cache=tmp_path / "cache")


def test_a_benchmark_that_is_not_here_says_what_to_download(tmp_path):
    with pytest.raises(TaskError, match=r"git clone https://github\.com/harbor-framework/terminal-bench-2-1"):
        find_tasks("terminal-bench-2.1", suites=tmp_path)
    (tmp_path / "terminal-bench-2.1").mkdir()
    path, bench = find_tasks("terminal-bench-2.1", suites=tmp_path)
    assert bench is not None and path.name == bench.name
    with pytest.raises(TaskError, match="long-horizon-terminal-bench"):
        find_tasks(str(tmp_path / "nothing"))


HARBOR = """#!/bin/sh
set -eu
[ "$1" = download ] || exit 2
case $2 in none*) echo "Error: Dataset 'none' not found"; exit 1;; esac
mkdir -p "$5/set" && cp -r "$T1_TEST_TASKS" "$5/set/one"
echo x >> "$T1_TEST_TASKS.calls"
"""


@pytest.fixture
def harbor(tmp_path, monkeypatch) -> Path:
    """A program that downloads as Harbor does: OUTPUT/DATASET/TASK."""
    program, task = tmp_path / "harbor", tmp_path / "task"
    program.write_text(HARBOR)
    program.chmod(0o755)
    write_task(task, instruction="Do one.")
    monkeypatch.setenv("T1_HARBOR", str(program))
    monkeypatch.setenv("T1_TEST_TASKS", str(task))
    return Path(f"{task}.calls")


def test_harbor_is_asked_once_for_a_version_and_anew_without_one(tmp_path, harbor):
    for name, calls in (("org/set@1.0", 1), ("org/set@1.0", 1), ("set", 2), ("set", 3), ("set@latest", 4)):
        path = ask_harbor(name, tmp_path / "cache")
        assert instructions(path) == ["Do one."]
        assert harbor.read_text().count("x") == calls


def test_what_harbor_says_is_passed_on(tmp_path, harbor):
    with pytest.raises(ConfigError, match="Harbor says: Error: Dataset 'none' not found"):
        find_tasks("harbor:none@1", cache=tmp_path / "cache")
    assert not list((tmp_path / "cache" / "harbor").iterdir())


def test_without_harbor_the_fix_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("T1_HARBOR", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["eval", "--tasks", "harbor:terminal-bench@2.1"]) == 2
    assert "make test-harbor" in capsys.readouterr().err
