"""Sets of tasks that Harbor itself resolves, from a registry on this disk: `make test-harbor`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("harbor", reason="HARBOR IS NOT TESTED HERE: it needs Python 3.12, run make test-harbor")

from harbor.models.registry import Registry

from t1.evaluation.registry import read_registry
from t1.evaluation.task_sets import ask_harbor
from t1.tasks import read_suite


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """A registry file of one set of two tasks in a git repository; of tasks without one, Harbor makes no copies."""
    tasks, root = [], tmp_path / "repository"
    for name in ("one", "two"):
        task = root / "tasks" / name
        for file, text in (
            ("task.toml", 'version = "1.0"\n'),
            ("instruction.md", f"Do {name}.\n"),
            ("environment/Dockerfile", "FROM scratch\n"),
            ("tests/test.sh", "true\n"),
        ):
            (task / file).parent.mkdir(parents=True, exist_ok=True)
            (task / file).write_text(text)
        tasks.append({"name": name, "git_url": root.as_uri(), "path": f"tasks/{name}"})
    git = ("git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@example.org")
    for command in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "tasks")):
        subprocess.run([*git, *command], check=True, capture_output=True)
    commit = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    tasks = [task | {"git_commit_id": commit} for task in tasks]
    file = tmp_path / "registry.json"
    file.write_text(json.dumps([{"name": "mine", "version": "1.0", "description": "Two.", "tasks": tasks}]))
    return file


def test_harbor_downloads_a_set_that_becomes_a_directory_of_tasks(tmp_path, registry, monkeypatch):
    monkeypatch.setenv("T1_HARBOR", str(Path(sys.executable).parent / "harbor"))
    path = ask_harbor("mine@1.0", tmp_path / "cache", "--registry-path", str(registry))
    assert [task.instruction.strip() for task in read_suite(path).heldout] == ["Do one.", "Do two."]


def test_harbor_and_t1_read_the_same_registry(registry):
    [theirs], [ours] = Registry.from_path(registry).datasets, read_registry(registry)
    assert (theirs.name, theirs.version) == (ours.name, ours.version)
    assert [str(task.path) for task in theirs.tasks] == [task.path for task in ours.tasks]
    assert [task.git_commit_id for task in theirs.tasks] == [task.git_commit_id for task in ours.tasks]
