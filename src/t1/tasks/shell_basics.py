"""The generator of the `shell-basics` suite: small real tasks in Harbor's format, proven before they leave.

The same seed writes the same bytes. Held-out and training tasks differ in digest and in wording.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from t1.errors import IntegrityError, TaskError
from t1.protocols import SandboxProvider
from t1.tasks.check import check_task
from t1.tasks.harbor import write_task
from t1.tasks.primitives import PLAIN, READS, Draft, Requirement
from t1.tasks.suites import SPLITS, Suite, read_suite
from t1.types import Task

READ_SHARE = 0.25
"""How often a requirement's value must be read first; about half of all tasks then have one."""
MAX_AT_ONCE = 4

DOCKERFILE = "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY files/ /app/\n"

TEST_HEADER = """#!/bin/bash
# Reports every assertion as CTRF. Absolute paths only: the working directory is the agent's.
cd /
tests= passed=0 failed=0
check() {
  local status=failed
  if eval "$2" >/dev/null 2>&1; then status=passed; passed=$((passed + 1)); else failed=$((failed + 1)); fi
  tests+="${tests:+,}{\\"name\\":\\"$1\\",\\"status\\":\\"$status\\",\\"duration\\":0}"
}
"""
TEST_FOOTER = """summary="\\"tests\\":$((passed + failed)),\\"passed\\":$passed,\\"failed\\":$failed"
summary+=',"pending":0,"skipped":0,"other":0,"start":0,"stop":0'
report="{\\"results\\":{\\"tool\\":{\\"name\\":\\"shell\\"},\\"summary\\":{$summary},\\"tests\\":[$tests]}}"
mkdir -p /logs/verifier
echo "$report" > /logs/verifier/ctrf.json
if [ "$failed" -eq 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


async def generate(
    out: Path,
    *,
    seed: int,
    num_train: int,
    num_heldout: int,
    min_requirements: int = 1,
    max_requirements: int = 5,
    provider: SandboxProvider | None,
    progress: Callable[[int, int], None] | None = None,
) -> Suite:
    """Write `out/train` and `out/heldout`; with a provider, prove every task in a sandbox.

    Raises TaskError when a task fails its proof: the generator itself is then wrong. The same seed with another
    `num_train` draws other held-out tasks.
    """
    if num_train < 0 or num_heldout < 0 or num_train + num_heldout == 0:
        raise TaskError(out, f"expected at least one task, got {num_train} for training and {num_heldout} held out")
    if not 1 <= min_requirements <= max_requirements:
        reason = f"expected 1 ≤ least ≤ most requirements of a task, got {min_requirements} and {max_requirements}"
        raise TaskError(out, reason)
    if out.exists():  # noqa: ASYNC240
        raise TaskError(out, "exists already; a suite is written into a new directory")
    rng, seen = Random(f"shell-basics {seed}"), set[str]()
    drawn = [
        (f"{split}/{split}-{index:05d}", *_draw(rng, min_requirements, max_requirements, seen))
        for split, count in zip(SPLITS, (num_train, num_heldout), strict=True)
        for index in range(count)
    ]
    scratch = out.with_name(f".{out.name}.{os.getpid()}")
    gate, done = asyncio.Semaphore(MAX_AT_ONCE), 0

    async def emit(name: str, requirements: Sequence[Requirement], files: Mapping[str, str]) -> None:
        nonlocal done
        async with gate:
            task = write_generated(scratch / name, requirements, files)
            if provider is not None:
                await _prove(task, provider, place=out / name)
        done += 1
        if progress is not None:
            progress(done, len(drawn))

    try:
        await gather_first_error(emit(*task) for task in drawn)
        scratch.rename(out)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return read_suite(out)


async def _prove(task: Task, provider: SandboxProvider, *, place: Path) -> None:
    """Raise where a generated task is not sound: it must not leave the generator."""
    report = await check_task(task, provider)
    if not report.sound:
        raise TaskError(place, f"the generator made an unsound task: {report.advice}")


async def gather_first_error(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all; the first error cancels the rest and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in work:
                group.create_task(coroutine)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


def _draw(rng: Random, least: int, most: int, seen: set[str]) -> tuple[list[Requirement], dict[str, str]]:
    """Requirements whose instruction was not drawn before, and the files that they need."""
    for _ in range(1000):
        draft = Draft(Random(rng.getrandbits(64)))
        count = draft.rng.randint(least, most)
        pools = [READS if draft.rng.random() < READ_SHARE else PLAIN for _ in range(count)]
        requirements = [draft.rng.choice(pool)(draft) for pool in pools]
        instruction = " ".join(r.sentence for r in requirements)
        if instruction not in seen:
            seen.add(instruction)
            return requirements, draft.files
    raise IntegrityError(f"no new task in 1000 draws: the space of {least} to {most} requirements is used up")


def write_generated(path: Path, requirements: Sequence[Requirement], files: Mapping[str, str]) -> Task:
    """One task directory: the sentences, the files, a verifier and a solution of these requirements."""
    assertions = [a for r in requirements for a in r.assertions]
    checks = "".join(f"check {shlex.quote(a.name)} {shlex.quote(a.test)}\n" for a in assertions)
    lines = "\n".join(line for r in requirements for line in r.lines)
    config: dict[str, Any] = {
        "version": "1.0",
        "metadata": {
            "difficulty": ("easy", "medium", "hard")[min(2, (len(requirements) - 1) // 2)],
            "category": "shell-basics",
            "primitives": [r.primitive for r in requirements],
            "reads": any(r.reads for r in requirements),
            "num_assertions": len(assertions),
        },
        "verifier": {"timeout_sec": 30.0},
        "agent": {"timeout_sec": 120.0},
        "environment": {"build_timeout_sec": 60.0, "cpus": 1, "memory_mb": 512, "storage_mb": 512},
    }
    environment = {f"files/{name}": content for name, content in files.items()} or {"files/.keep": ""}
    return write_task(
        path,
        config=config,
        instruction=" ".join(r.sentence for r in requirements) + "\n",
        environment={"Dockerfile": DOCKERFILE, **environment},
        tests={"test.sh": TEST_HEADER + checks + TEST_FOOTER},
        solution={"solve.sh": f"#!/bin/bash\nset -e\n{lines}\n"},
    )
