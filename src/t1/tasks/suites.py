"""Suites: directories of task directories, `train/` and `heldout/` apart by digest.

Boundary: which tasks there are and how they are split; what a task is, is `harbor`'s business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from t1.errors import TaskError
from t1.tasks.harbor import read_task
from t1.types import Task

SPLITS = ("train", "heldout")


@dataclass(frozen=True, slots=True)
class Suite:
    """Tasks to train on, and tasks that training never sees."""

    path: Path
    train: tuple[Task, ...]
    heldout: tuple[Task, ...]

    @property
    def digest(self) -> str:
        """What "the same suite" means: sha256 over the splits' task digests."""
        digest = hashlib.sha256()
        for name, tasks in zip(SPLITS, (self.train, self.heldout), strict=True):
            lines = [name, *sorted(f"{task.id} {task.digest}" for task in tasks), ""]
            digest.update("\n".join(lines).encode())
        return digest.hexdigest()


def read_suite(path: Path) -> Suite:
    """The suite in the directory `path`: `train/` and `heldout/`, or task directories side by side (all held out).

    Raises TaskError for an empty suite, a broken task, and a task that stands in both splits.
    """
    if not path.is_dir():
        raise TaskError(path, "is not a directory" if path.exists() else "no such suite")
    if (path / "task.toml").is_file():
        raise TaskError(path, "is a task, not a suite: name the directory that holds it")
    if any((path / split).is_dir() for split in SPLITS):
        train, heldout = (_read_all(path / split) for split in SPLITS)
    else:
        train, heldout = (), _read_all(path)
    if not train and not heldout:
        raise TaskError(path, "holds no tasks: a task is a directory with a task.toml")
    _check_apart(train, heldout)
    return Suite(path, train, heldout)


def _read_all(folder: Path) -> tuple[Task, ...]:
    """Every task below `folder`, by name."""
    if not folder.is_dir():
        return ()
    return tuple(read_task(entry) for entry in sorted(_task_directories(folder)))


def _task_directories(folder: Path) -> Iterable[Path]:
    """Directories that hold, or should hold, a task; hidden ones are scratch."""
    return (entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _check_apart(train: Sequence[Task], heldout: Sequence[Task]) -> None:
    """No task, and no instruction, may be in both splits."""
    trained = {task.digest: task for task in train}
    told = {task.instruction.strip(): task for task in train if task.instruction.strip()}
    for task in heldout:
        twin = trained.get(task.digest) or told.get(task.instruction.strip())
        if twin is not None:
            raise TaskError(task.path, f"is in both splits: training has it as {twin.id}")
