"""A reference solution as a dialogue: each line of `solve.sh` is one turn, and what a turn showed is used by name.

`cat plan.cfg` shows a value; `mkdir "$(cat plan.cfg)"`, the honest line of the script, is then played as `mkdir oak`:
the value comes from the observation, so that the demonstration teaches to read. Boundary: text in, text out.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from t1.errors import TaskError
from t1.types import Task


def demonstration_lines(task: Task) -> list[str]:
    """The commands of the reference solution, in order: one a line, comments and `set` left out.

    Raises TaskError where the task ships no solution, or one without commands.
    """
    if task.solution is None:
        raise TaskError(task.path / "solution" / "solve.sh", "no reference solution to demonstrate")
    try:
        lines = [line.strip() for line in task.solution.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise TaskError(task.solution, f"is not UTF-8: byte {error.start}") from None
    commands = [line for line in lines if line and not line.startswith(("#", "set "))]
    if not commands:
        raise TaskError(task.solution, "has no commands")
    return commands


def inline(line: str, outputs: Mapping[str, str]) -> str:
    """`line` with every quoted substitution of an earlier command replaced by what that command printed.

    The value is quoted where the shell would read more than one plain word in it, so that the meaning stays the same.
    """
    for command, printed in outputs.items():
        line = line.replace(f'"$({command})"', shlex.quote(printed.strip()))
    return line
