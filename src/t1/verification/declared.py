"""What a task's author says about its verification: odd places that are outputs, and live services that are checked.

`[metadata] outputs = ["/root/.bashrc", "/app/.git/hooks"]` and `in_place = true` (or `"compared"`) in task.toml. What
the instruction names counts as declared too: its author asks for it. Boundary: text in, yes or no out.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from t1.errors import TaskError
from t1.types import Task

HOME = "/root"


@dataclass(frozen=True, slots=True)
class Declared:
    """The author's word on one task."""

    outputs: tuple[str, ...] = ()
    """Absolute paths; what lies below one of them is an output too."""
    instruction: str = ""
    in_place: bool = False
    """The verifier runs in the agent's own sandbox, beside its live services."""
    compared: bool = False
    """And then in a pristine one, too, where whatever passes only beside the agent counts as failed."""

    def covers(self, path: str) -> bool:
        """True when `path` is an output, or the instruction names it by its path or by a name that is no plain word."""
        return self.lists(path) or any(_stands_in(name, self.instruction) for name in _names(path))

    def lists(self, path: str) -> bool:
        """True when `path` is an output, or below one."""
        return any(path == output or path.startswith(output + "/") for output in self.outputs)

    def names(self, text: str) -> bool:
        """True when the instruction holds `text`."""
        return text in self.instruction


def read_declared(task: Task) -> Declared:
    """What the task declares. Raises TaskError where a key is of the wrong kind."""
    outputs = task.metadata.get("outputs", [])
    file = task.path / "task.toml"
    if not isinstance(outputs, list | tuple) or not all(isinstance(path, str) for path in outputs):
        raise TaskError(file, f"expected a list of paths, got {outputs!r}", key="metadata.outputs")
    absolute = tuple(_absolute(path) for path in outputs)
    wrong = [path for path, whole in zip(outputs, absolute, strict=True) if whole in ("", "/")]
    if wrong:
        raise TaskError(file, f"expected absolute paths below /, got {wrong[0]!r}", key="metadata.outputs")
    in_place = task.metadata.get("in_place", False)
    if in_place not in (True, False, "compared"):
        raise TaskError(file, f'expected true, false or "compared", got {in_place!r}', key="metadata.in_place")
    return Declared(absolute, task.instruction, in_place=bool(in_place), compared=in_place == "compared")


def _absolute(path: str) -> str:
    """`~` is root's home; empty for a relative path."""
    if path == "~" or path.startswith("~/"):
        path = HOME + path[1:]
    return posixpath.normpath(path) if path.startswith("/") else ""


def _names(path: str) -> list[str]:
    """The spellings by which an instruction may name a file: whole, from home, its last two parts, its own name."""
    parts = path.strip("/").split("/")
    names = [path, "/".join(parts[-2:])] if len(parts) > 1 else [path]
    if path.startswith(HOME + "/"):
        names.append("~" + path.removeprefix(HOME))
    if re.search(r"[._-]", parts[-1]):
        names.append(parts[-1])
    if re.fullmatch(r"\.\w+rc", parts[-1]):
        names.append(parts[-1][1:])
    return names


def _stands_in(name: str, text: str) -> bool:
    """True when `name` stands in `text` as a whole: no longer name, no longer path that ends otherwise."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w/-]|\.\w)", text) is not None
