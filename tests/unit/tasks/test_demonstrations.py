"""A solution as a dialogue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from t1.errors import TaskError
from t1.tasks import read_task
from t1.tasks.demonstrations import demonstration_lines, inline

Make = Callable[..., Path]


def test_each_command_is_a_line_and_the_rest_is_left_out(make: Make) -> None:
    script = "#!/bin/bash\nset -e\n\n# Look first.\ncat plan.txt\n  mkdir oak\n"
    assert demonstration_lines(read_task(make({"solution/solve.sh": script}))) == ["cat plan.txt", "mkdir oak"]


@pytest.mark.parametrize(
    ("script", "reason"),
    [(None, "no reference solution"), ("#!/bin/bash\nset -e\n", "no commands"), (b"echo \xff\n", "not UTF-8")],
)
def test_a_task_without_something_to_show_is_refused(make: Make, script: str | bytes | None, reason: str) -> None:
    with pytest.raises(TaskError, match=reason) as caught:
        demonstration_lines(read_task(make({"solution/solve.sh": script})))
    assert caught.value.path.name == "solve.sh"


def test_a_substitution_becomes_what_the_command_printed() -> None:
    printed = {"cat plan.txt": "oak\n", "ls box": " key.dat \n"}
    assert inline('mkdir -p "$(cat plan.txt)"', printed) == "mkdir -p oak"
    assert inline('mv box/"$(ls box)" "$(cat plan.txt)"', printed) == "mv box/key.dat oak"


def test_a_command_that_was_not_run_stays_a_substitution() -> None:
    assert inline('rm "$(cat list)"', {"cat other": "x"}) == 'rm "$(cat list)"'


@pytest.mark.parametrize(
    ("printed", "line"),
    [("two words\n", "rm 'two words'"), ("a; rm b\n", "rm 'a; rm b'"), ("\n", "rm ''"), ("$(id)", "rm '$(id)'")],
)
def test_what_was_printed_stays_one_word_of_the_shell(printed: str, line: str) -> None:
    assert inline('rm "$(cat list)"', {"cat list": printed}) == line
