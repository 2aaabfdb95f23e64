"""Every requirement that tasks are made of: what it says, what meets it, what it asserts."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from random import Random

import pytest

from t1.sandboxes import NamespaceProvider
from t1.tasks import check_task
from t1.tasks.demonstrations import demonstration_lines
from t1.tasks.primitives import PLAIN, READS, Draft, Primitive, Requirement
from t1.tasks.shell_basics import write_generated
from t1.tasks.vocabulary import DIRECTORIES, STEMS, WORDS

ALL = (*PLAIN, *READS)
NAMES = re.compile(rf"[\w/]+\.\w+|\b(?:{'|'.join(WORDS + DIRECTORIES + STEMS)})\b|\d+")
"""What differs between two sentences of the same wording."""


def draws(primitive: Primitive, count: int = 60) -> list[tuple[Requirement, Draft]]:
    """The primitive alone, over many seeds."""
    drafts = [Draft(Random(seed)) for seed in range(count)]
    return [(primitive(draft), draft) for draft in drafts]


def test_there_are_enough_of_them_and_each_has_its_own_name() -> None:
    names = [draws(primitive, 1)[0][0].primitive for primitive in ALL]
    assert len(set(names)) == len(ALL) >= 18
    assert {name for name in names if name.startswith("read-")} == {draws(p, 1)[0][0].primitive for p in READS}


def test_no_word_is_part_of_another() -> None:
    for one, other in itertools.permutations(WORDS, 2):
        assert one not in other
    everything = [*WORDS, *STEMS, *DIRECTORIES]
    assert len(set(everything)) == len(everything)
    assert all(re.fullmatch("[a-z]{3,7}", word) for word in everything)


@pytest.mark.parametrize("primitive", ALL, ids=lambda p: p.__name__)
def test_each_is_told_in_several_short_sentences(primitive: Primitive) -> None:
    told = [(requirement, draft) for requirement, draft in draws(primitive)]
    blanked = {NAMES.sub("#", requirement.sentence) for requirement, _ in told}
    assert len(blanked) >= 2
    assert all(len(requirement.sentence.split()) <= 14 for requirement, _ in told)
    assert all(requirement.sentence.endswith(".") for requirement, _ in told)


@pytest.mark.parametrize("primitive", READS, ids=lambda p: p.__name__)
def test_a_value_to_be_read_stands_in_no_sentence(primitive: Primitive) -> None:
    for requirement, draft in draws(primitive):
        (shown,) = re.findall(r'"\$\((.+?)\)"', requirement.lines[1])
        assert requirement.lines[0] == shown
        name = shown.split()[1]
        held = [c.strip() if p == name else Path(p).name for p, c in draft.files.items() if p.startswith(name)]
        assert len(held) == 1
        assert held[0] not in re.findall(r"[\w./]+\b", requirement.sentence)


@pytest.mark.parametrize("primitive", PLAIN, ids=lambda p: p.__name__)
def test_a_plain_one_is_met_by_one_command(primitive: Primitive) -> None:
    assert {(len(requirement.lines), requirement.reads) for requirement, _ in draws(primitive, 5)} == {(1, False)}


def test_no_two_requirements_of_a_task_share_a_path() -> None:
    for seed in range(100):
        draft = Draft(Random(seed))
        made = [draft.rng.choice(ALL)(draft) for _ in range(5)]
        names = [a.name for requirement in made for a in requirement.assertions]
        assert len(set(names)) == len(names)
        paths = [set(re.findall(r"/app/([\w./]+)", " ".join(a.test for a in r.assertions))) for r in made]
        assert all(not one & other for one, other in itertools.combinations(paths, 2))


@pytest.mark.parametrize("primitive", ALL, ids=lambda p: p.__name__)
async def test_the_solution_passes_everything_and_doing_nothing_passes_nothing(
    primitive: Primitive, provider: NamespaceProvider, tmp_path: Path
) -> None:
    requirement, draft = draws(primitive, 1)[0]
    task = write_generated(tmp_path / "task", [requirement], draft.files)
    report = await check_task(task, provider)
    assert report.advice == ""
    assert len(report.solved.passed) == len(report.untouched.missed) == task.num_assertions
    assert demonstration_lines(task) == list(requirement.lines)
