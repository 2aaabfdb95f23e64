"""The generated suite: the same from the same seed, every task proven, training and held-out tasks apart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from t1.errors import TaskError
from t1.protocols import SandboxProvider
from t1.sandboxes import NamespaceProvider
from t1.tasks import Suite, read_suite
from t1.tasks.demonstrations import demonstration_lines, inline
from t1.tasks.primitives import PLAIN, READS
from t1.tasks.shell_basics import generate
from t1.testing.sandboxes import FakeSandboxProvider
from t1.types import Task
from t1.verification import PristineVerifier

GOLDEN = "607accdd91d542bfa6bf3e04e5a3c87924e61f20219e591d00c493d52582d290"
"""Of seed 7 with 4 + 2 tasks: published results are of these bytes, so a change is to be made knowingly."""


async def small(out: Path, *, seed: int = 7, provider: SandboxProvider | None = None, **changed: Any) -> Suite:
    """A small suite."""
    return await generate(out, **({"seed": seed, "num_train": 4, "num_heldout": 2, "provider": provider} | changed))


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """A suite large enough to count in."""
    out: Path = tmp_path_factory.mktemp("suites") / "suite"
    return asyncio.run(generate(out, seed=3, num_train=250, num_heldout=50, provider=None))


def names(folder: Path) -> list[str]:
    """What lies in a folder."""
    return [path.name for path in folder.iterdir()]


def everything(suite: Suite) -> list[Task]:
    return [*suite.train, *suite.heldout]


async def test_the_same_seed_writes_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    first, second = await small(tmp_path / "a"), await small(tmp_path / "b")
    other = await small(tmp_path / "c", seed=8)
    assert first.digest == second.digest == GOLDEN
    assert not {task.digest for task in everything(first)} & {task.digest for task in everything(other)}


async def test_a_suite_is_read_back_as_it_was_made(tmp_path: Path) -> None:
    suite = await small(tmp_path / "deep" / "suite")
    assert read_suite(tmp_path / "deep" / "suite") == suite
    assert ([len(suite.train), len(suite.heldout)], suite.train[3].id) == ([4, 2], "train-00003")


def test_every_primitive_occurs(suite: Suite) -> None:
    seen = {name for task in everything(suite) for name in task.metadata["primitives"]}
    assert len(seen) == len(PLAIN) + len(READS)


def test_two_tasks_of_five_cannot_be_solved_without_reading(suite: Suite) -> None:
    reads = [task for task in everything(suite) if task.metadata["reads"]]
    assert len(reads) / len(everything(suite)) >= 0.4
    assert all(any(name.startswith("read-") for name in task.metadata["primitives"]) for task in reads)


def test_tasks_have_one_to_five_requirements_in_few_words(suite: Suite) -> None:
    sizes = [len(task.metadata["primitives"]) for task in everything(suite)]
    assert set(sizes) == {1, 2, 3, 4, 5}
    words = sum(len(task.instruction.split()) for task in everything(suite))
    assert words / sum(sizes) < 10


def test_no_held_out_instruction_or_task_is_trained_on(suite: Suite) -> None:
    for value in ("instruction", "digest"):
        trained = {getattr(task, value) for task in suite.train}
        held = {getattr(task, value) for task in suite.heldout}
        assert (len(trained), len(held), trained & held) == (250, 50, set())


def test_a_demonstration_shows_each_value_before_it_is_used(suite: Suite) -> None:
    for task in everything(suite):
        lines = demonstration_lines(task)
        shown = {line: "value" for line in lines if line.startswith(("cat ", "ls ")) and ">" not in line}
        assert all('"$(' not in inline(line, shown) for line in lines)
        assert bool(shown) is task.metadata["reads"]


async def test_requirements_are_bounded_as_asked(tmp_path: Path) -> None:
    suite = await small(tmp_path / "s", min_requirements=2, max_requirements=2)
    assert {len(task.metadata["primitives"]) for task in everything(suite)} == {2}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"num_train": 0, "num_heldout": 0}, "at least one task"),
        ({"num_train": -1}, "at least one task"),
        ({"min_requirements": 0}, "1 ≤ least"),
        ({"min_requirements": 3, "max_requirements": 2}, "1 ≤ least"),
    ],
)
async def test_a_suite_that_cannot_be_is_refused(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(TaskError, match=reason):
        await small(tmp_path / "s", **changed)
    assert names(tmp_path) == []


async def test_a_suite_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    with pytest.raises(TaskError, match="exists already"):
        await small(tmp_path / "s")


async def test_in_real_sandboxes_every_task_is_proven_and_counted(tmp_path: Path, provider: NamespaceProvider) -> None:
    counted: list[tuple[int, int]] = []
    proven = await small(tmp_path / "s", provider=provider, progress=lambda done, of: counted.append((done, of)))
    assert counted == [(done, 6) for done in range(1, 7)]
    assert proven.digest == GOLDEN


def always_passed(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """A verifier that is easily pleased."""
    tests = [{"name": "a", "status": "passed", "duration": 0}]
    return {"/logs/verifier/ctrf.json": json.dumps({"results": {"tests": tests}}).encode()}


async def test_a_task_that_fails_its_proof_stops_the_generator_and_leaves_nothing(tmp_path: Path) -> None:
    provider = FakeSandboxProvider(verify=always_passed)
    with pytest.raises(TaskError, match=r"unsound task: .*doing nothing passes a") as caught:
        await small(tmp_path / "s", provider=provider)
    assert caught.value.path.is_relative_to(tmp_path / "s")
    assert (provider.live, names(tmp_path)) == ({}, [])


async def test_an_interrupted_generator_leaves_neither_suite_nor_sandbox(tmp_path: Path) -> None:
    started = asyncio.Event()

    class Waiting(FakeSandboxProvider):
        async def open_pristine(self, *arguments: Any) -> Any:
            started.set()
            await asyncio.Event().wait()

    provider = Waiting()
    work = asyncio.create_task(small(tmp_path / "s", provider=provider))
    await started.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert (provider.live, names(tmp_path)) == ({}, [])


@pytest.mark.parametrize("where", ["/app", "/tmp/elsewhere"])
async def test_half_of_the_work_passes_half_of_the_assertions_wherever_the_agent_went(
    tmp_path: Path, provider: NamespaceProvider, where: str
) -> None:
    suite = await small(tmp_path / "s", min_requirements=5, max_requirements=5, num_train=1, num_heldout=0)
    task = suite.train[0]
    sandbox = await provider.open(task)
    for line in demonstration_lines(task)[:3]:
        await sandbox.run(line, timeout_s=10)
    await sandbox.run(f"mkdir -p {where}; cd {where}; mkdir -p -- tests logs", timeout_s=10)
    verdict = await PristineVerifier(provider).verify(task, sandbox)
    await sandbox.close()
    assert verdict.num_passed is not None and verdict.assertions is not None
    assert 0 < verdict.num_passed < len(verdict.assertions) == task.num_assertions
    assert not verdict.solved
