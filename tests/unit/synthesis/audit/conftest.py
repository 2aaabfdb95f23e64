"""A small sound task, and a way to write it with something changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from t1.sandboxes import NamespaceProvider, probe
from t1.tasks import write_task
from t1.types import Task

TEST = """#!/bin/bash
mkdir -p /logs/verifier
if [ "$(cat /app/count.txt)" = 3 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
Write = Callable[..., Task]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the task 'count the lines of names.txt', with other texts where they are given."""

    def make(
        name: str = "count",
        *,
        instruction: str = "Count the lines of /app/names.txt and write the number to /app/count.txt.",
        test: str = TEST,
        solve: str = "wc -l < /app/names.txt > /app/count.txt\n",
        environment: Mapping[str, str] | None = None,
        tests: Mapping[str, str] | None = None,
        dockerfile: str = "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY files/ /app/\n",
    ) -> Task:
        files = {"files/names.txt": "Ana\nBo\nCy\n"} | dict(environment or {})
        return write_task(
            tmp_path / "tasks" / name,
            config={"version": "1.0", "verifier": {"timeout_sec": 20.0}, "agent": {"timeout_sec": 20.0}},
            instruction=instruction,
            environment={"Dockerfile": dockerfile} | files,
            tests={"test.sh": test} | dict(tests or {}),
            solution={"solve.sh": f"#!/bin/bash\n{solve}"},
        )

    return make


@pytest.fixture
async def provider() -> AsyncIterator[NamespaceProvider]:
    """Real sandboxes, where this host has them."""
    if (found := probe()).confinement is None:
        pytest.skip(f"no sandboxes here: {found.problem}")
    made = NamespaceProvider()
    yield made
    await made.close()
