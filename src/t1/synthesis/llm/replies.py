"""What a model must answer, and the candidate that it becomes.

Boundary: parsed at the border and strict about keys; the verifier is written by code from the model's assertions, so
that its report is always readable.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from t1.synthesis.candidate import Candidate, Seed
from t1.tasks.shell_basics import TEST_FOOTER, TEST_HEADER

DOCKERFILE = "FROM python:3.12-bookworm\nWORKDIR /app\nCOPY files/ /app/\n"
_FENCE = re.compile(r"\A\s*(?:<think>.*?</think>\s*)?```(?:json)?\s*\n(.*)\n```\s*\Z", re.DOTALL)


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileReply(_Reply):
    """A file of the environment."""

    path: str = Field(max_length=200)
    content: str = Field(max_length=200_000)

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, value: str) -> str:
        path = value.removeprefix("/app/").removeprefix("./")
        if not path or path.startswith("/") or ".." in path.split("/") or "\0" in path or path.endswith("/"):
            raise ValueError("expected a path of a file below /app")
        return path


class AssertionReply(_Reply):
    """One assertion of the verifier."""

    name: str = Field(min_length=1, max_length=120, pattern=r"^[\w .,:()/+-]+$")
    command: str = Field(min_length=1, max_length=4000)


class TaskReply(_Reply):
    """A whole task."""

    instruction: str = Field(min_length=1, max_length=8000)
    difficulty: str = Field(pattern=r"^(easy|medium|hard)$")
    files: list[FileReply] = Field(max_length=60)
    tests: list[AssertionReply] = Field(min_length=1, max_length=40)
    solution: str = Field(min_length=1, max_length=40_000)

    @field_validator("tests")
    @classmethod
    def _have_distinct_names(cls, value: list[AssertionReply]) -> list[AssertionReply]:
        if len({test.name for test in value}) < len(value):
            raise ValueError("two assertions have the same name")
        return value


def parse_reply(text: str) -> TaskReply:
    """The task in a model's answer, with or without a fence around it. Raises ValueError with what is wrong."""
    fenced = _FENCE.match(text)
    try:
        return TaskReply.model_validate_json(fenced[1] if fenced else text)
    except ValidationError as errors:
        first = errors.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'answer'}: {first['msg']}") from None


def candidate_of_reply(reply: TaskReply, seed: Seed, rewrites: Sequence[str] = ()) -> Candidate:
    """The candidate that a reply describes."""
    checks = "".join(f"check {shlex.quote(t.name)} {shlex.quote(t.command)}\n" for t in reply.tests)
    solution = reply.solution if reply.solution.startswith("#!") else f"#!/bin/bash\nset -e\n{reply.solution}"
    files: Mapping[str, str | bytes] = {f"files/{file.path}": file.content for file in reply.files}
    config: dict[str, Any] = {
        "version": "1.0",
        "metadata": {"num_assertions": len(reply.tests)},
        "verifier": {"timeout_sec": 60.0},
        "agent": {"timeout_sec": 300.0},
        "environment": {"build_timeout_sec": 60.0, "cpus": 1, "memory_mb": 1024, "storage_mb": 1024},
    }
    return Candidate(
        domain=seed.domain or "task",
        skill=seed.skill,
        difficulty=reply.difficulty,
        instruction=reply.instruction.rstrip() + "\n",
        environment={"Dockerfile": DOCKERFILE, **(files or {"files/.keep": ""})},
        tests={"test.sh": TEST_HEADER + checks + TEST_FOOTER},
        solution={"solve.sh": solution.rstrip() + "\n"},
        config=config,
        recipe=json.loads(reply.model_dump_json()),
        rewrites=tuple(rewrites),
    )
