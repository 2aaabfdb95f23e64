"""The base has seen neither the tasks' wording nor their solutions: a large sample of each, compared."""

import asyncio
import re
from itertools import islice
from pathlib import Path

import pytest

from t1.base.corpus import END, START, documents

shell_basics = pytest.importorskip("t1.tasks.shell_basics")
demonstrations = pytest.importorskip("t1.tasks.demonstrations")

TYPED = re.compile(rf"^(?:\$ |(?<={re.escape(START)}assistant\n))(.+?)(?:{re.escape(END)})?$", re.MULTILINE)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """A sample of the suite."""
    out: Path = tmp_path_factory.mktemp("suite") / "suite"
    suite = asyncio.run(shell_basics.generate(out, seed=5, num_train=100, num_heldout=10, provider=None))
    return [*suite.train, *suite.heldout]


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    """A sample of the corpus."""
    return [document.text for document in islice(documents(0), 8_000)]


def sentences(text: str) -> set[str]:
    """The sentences of an instruction."""
    return {part.strip() for part in re.split(r"(?<=[.!?])\s+|\n", text) if part.strip()}


def shape(sentence: str) -> str:
    """A sentence with its names and numbers blanked: the wording alone."""
    return re.sub(r"[\w-]*[./\d][\w./-]*\w|\d+", "#", sentence.lower())


def test_no_sentence_of_an_instruction_occurs_in_the_corpus(tasks: list[object], corpus: list[str]) -> None:
    whole = "\n".join(corpus)
    asked = {sentence for task in tasks for sentence in sentences(task.instruction)}  # type: ignore[attr-defined]
    assert len(asked) > 100
    assert [sentence for sentence in asked if sentence in whole] == []


def test_no_wording_of_an_instruction_occurs_in_the_corpus(tasks: list[object], corpus: list[str]) -> None:
    asked = {shape(sentence) for task in tasks for sentence in sentences(task.instruction)}  # type: ignore[attr-defined]
    written = {shape(sentence) for text in corpus for sentence in sentences(text)}
    assert asked & written == set()


def test_no_command_of_a_solution_occurs_in_the_corpus(tasks: list[object], corpus: list[str]) -> None:
    typed = {command for text in corpus for command in TYPED.findall(text)}
    assert len(typed) > 10_000
    solutions = {line for task in tasks for line in demonstrations.demonstration_lines(task) if " " in line.strip()}
    assert len(solutions) > 100
    assert solutions & typed == set()
