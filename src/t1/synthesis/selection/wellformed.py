"""Stage 1, well-formed: the directory parses, its environment builds and starts, instruction and files agree.

Boundary: it looks for what is broken or left unsaid on the page; whether the task can be solved is the next stage's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from t1.synthesis.candidate import Candidate, Files, Stage, StageResult
from t1.synthesis.trials import Ground
from t1.types import Task

MIN_CHARACTERS, MAX_CHARACTERS = 20, 8000
MAX_FILES_BYTES = 8 << 20
MIN_LEAK_LINES = 3
"""From so many lines on, a file that the environment shares with tests or solution is no coincidence."""
_PATH = re.compile(r"(?<![\w/.@-])(?:/?[\w-]+(?:\.[\w-]+)*/)*[\w-]+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,7}\b(?![/(])")
_NOT_FILES = re.compile(r"\A(?:e\.g|i\.e|www\..*|.*\.(?:com|org|net|io)|(?:.*/)?[A-Z]{2,}\.\w+)\Z")
"""Abbreviations, hosts, and names such as WORD.txt that stand for others."""
_TESTED = re.compile(r"/app/[\w./-]*\w")


async def well_formed(candidate: Candidate, task: Task, ground: Ground) -> StageResult:
    """The result of the stage; the task directory was written and read by then."""
    for reason, detail in _static(candidate):
        return StageResult(Stage.WELL_FORMED, False, reason, detail)
    code, output = await ground.probe(task, "bash -n -c 'true' && pwd && ls -A")
    if code != 0:
        return StageResult(Stage.WELL_FORMED, False, "does-not-start", f"the sandbox answers {code}: {output[-300:]}")
    named = sorted({found[0] for found in _PATH.finditer(candidate.instruction)})
    evidence = {"starts": True, "workdir": output.splitlines()[:1], "named_files": named}
    return StageResult(Stage.WELL_FORMED, True, evidence=evidence)


def _static(candidate: Candidate) -> Iterator[tuple[str, str]]:
    """(code, what is wrong), the first of which is enough."""
    text = candidate.instruction.strip()
    if not MIN_CHARACTERS <= len(text) <= MAX_CHARACTERS:
        yield "instruction-length", f"{len(text)} characters, not {MIN_CHARACTERS} to {MAX_CHARACTERS}"
    size = sum(len(content) for content in candidate.environment.values())
    if size > MAX_FILES_BYTES:
        yield "too-large", f"the environment has {size} bytes, more than {MAX_FILES_BYTES}"
    if not candidate.script.strip().removeprefix("#!/bin/bash").strip():
        yield "no-solution", "solution/solve.sh has no commands"
    yield from _unknown_files(candidate)
    yield from _unsaid_files(candidate)
    yield from _leaks(candidate.environment, {**candidate.tests, **candidate.solution})


def _unknown_files(candidate: Candidate) -> Iterator[tuple[str, str]]:
    """Files that the instruction names and nothing else knows."""
    known = "\n".join([*candidate.environment, *_texts(candidate.environment), *_texts(candidate.tests)])
    known += candidate.script
    for found in _PATH.finditer(candidate.instruction):
        name = PurePosixPath(found[0].rstrip(".")).name
        if not _NOT_FILES.match(found[0]) and name not in known:
            yield "unknown-file", f"the instruction names {found[0]}, which neither files, tests nor solution have"


def _unsaid_files(candidate: Candidate) -> Iterator[tuple[str, str]]:
    """Paths that the tests look at of which neither name nor directory is known: an agent could not find them."""
    said = "\n".join([candidate.instruction, *candidate.environment, *_texts(candidate.environment)])
    for text in _texts({name: body for name, body in candidate.tests.items() if name.endswith((".sh", ".py"))}):
        for found in _TESTED.finditer(text):
            path = PurePosixPath(found[0])
            if not any(part in said for part in {path.name, path.stem, *path.parts[2:-1]}):
                yield "hidden-file", f"the tests look at {found[0]}, which neither instruction nor environment names"


def _leaks(environment: Files, hidden: Files) -> Iterator[tuple[str, str]]:
    """A script of the tests, or the solution, that lies in the environment."""
    scripts = {name: body for name, body in hidden.items() if name.endswith((".sh", ".py"))}
    bodies = {body: name for name, body in scripts.items() if len(body.splitlines()) >= MIN_LEAK_LINES}
    for name, content in environment.items():
        if content in bodies:
            yield "tests-in-environment", f"environment/{name} is the same as {bodies[content]}"


def _texts(files: Files) -> list[str]:
    """Contents that are text."""
    return [content if isinstance(content, str) else content.decode("utf-8", "replace") for content in files.values()]
