"""The texts of a task, read once: instruction, environment, tests, solution, and what of it may count as stated.

Boundary: bounded reads, nothing is judged here and nothing is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from t1.types import Task

MAX_BYTES = 256 << 10
MAX_FILES = 400
CODE = frozenset(
    """py sh bash js mjs ts rb pl go rs c h cpp cc hpp java kt scala php lua r jl sql mk cmake swift hs ml ex erl awk
    sed ipynb dockerfile""".split()
)
CODE_NAMES = frozenset(("makefile", "dockerfile", "gnumakefile", "rakefile", "gemfile", "cmakelists.txt"))
USUAL_PLACES = frozenset("app root home tmp files environment srv opt workspace testbed".split())
"""Directories that a task is about only because everything lies there."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file of the task."""

    path: str
    """Relative to the task directory."""
    text: str
    """Up to MAX_BYTES, undecodable bytes replaced."""
    binary: bool = False

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    def line_of(self, text: str) -> int:
        """The first line that holds `text`, else 1."""
        at = self.text.find(text) if text else -1
        return 1 if at < 0 else self.text.count("\n", 0, at) + 1


def is_code(name: str, text: str = "") -> bool:
    """True for a program, by its name or its first line."""
    lower = name.rpartition("/")[2].lower()
    _, dot, suffix = lower.rpartition(".")
    return lower in CODE_NAMES or bool(dot and suffix in CODE) or text.startswith("#!")


@dataclass(frozen=True)
class Sources:
    """Everything that a task's author wrote."""

    task: Task
    environment: tuple[Source, ...]
    tests: tuple[Source, ...]
    solution: tuple[Source, ...]

    @property
    def instruction(self) -> str:
        """What the agent is told."""
        return self.task.instruction

    @cached_property
    def dockerfile(self) -> Source:
        """The Dockerfile, or an empty one."""
        empty = Source("environment/Dockerfile", "")
        return next((file for file in self.environment if file.path == "environment/Dockerfile"), empty)

    @cached_property
    def verifier(self) -> Source:
        """tests/test.sh."""
        return next((file for file in self.tests if file.path == "tests/test.sh"), Source("tests/test.sh", ""))

    @cached_property
    def stated(self) -> str:
        """Instruction, names and texts of the environment's files, and its variables: what an agent can find."""
        files = [f"{file.path.removeprefix('environment/')}\n{file.text}" for file in self.environment]
        variables = [f"{name}={value}" for name, value in self.task.environment.env.items()]
        return "\n".join([self.instruction, *files, *variables])

    @cached_property
    def solution_text(self) -> str:
        """All of the solution, without lines that are comments."""
        text = "\n".join(file.text for file in self.solution)
        return re.sub(r"^\s*#(?!include).*$", "", text, flags=re.MULTILINE)

    @cached_property
    def _words(self) -> frozenset[str]:
        """The instruction's words that could be names, in lower case."""
        found = re.findall(r"[\w.+@-]+", self.instruction.lower())
        return frozenset(found) | {word.strip(".") for word in found}

    def names(self, path: str) -> bool:
        """Whether the instruction names a file, or a directory above it that is more than a usual place of work."""
        *folders, name = [part.lower() for part in path.split("/") if part] or [""]
        if name in USUAL_PLACES:
            return False
        return name in self._words or any(part in self._words for part in folders if part not in USUAL_PLACES)

    def leads_to(self, path: str) -> bool:
        """Whether the instruction names a file, or a file that names it."""
        name = path.rpartition("/")[2]
        linked = (file for file in self.environment if name and name in file.text)
        return self.names(path) or any(self.names(file.path) for file in linked if file.name != "Dockerfile")


def read_sources(task: Task) -> Sources:
    """The texts of a task. Files that cannot be read are left out: `read_task` has read them all before."""
    tests = task.verifier.path
    return Sources(
        task,
        tuple(_files(task.environment.path, task.path)),
        tuple(_files(tests, task.path)),
        tuple(_files(task.path / "solution", task.path)),
    )


def _files(folder: Path, root: Path) -> Iterator[Source]:
    """The regular files below a folder, in the order of their names, at most MAX_FILES."""
    inside, above = folder.is_relative_to(root), f"{root}/"
    count = 0
    for directory, names, files in os.walk(folder):
        names.sort()
        for name in sorted(files):
            path = f"{directory}/{name}"
            if count >= MAX_FILES or os.path.islink(path):  # noqa: PTH114 (hot)
                continue
            try:
                with open(path, "rb") as file:  # noqa: PTH123
                    content = file.read(MAX_BYTES)
            except OSError:
                continue
            count += 1
            yield Source(
                path.removeprefix(above) if inside else path, content.decode("utf-8", "replace"), b"\0" in content
            )
