"""What running a task shows about it, over a fake whose verifier says what it likes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from t1.errors import SandboxVanished, TaskError
from t1.sandboxes import NamespaceProvider
from t1.tasks import TaskReport, check_task, read_task
from t1.testing.sandboxes import FakeSandbox, FakeSandboxProvider
from t1.types import CommandResult

Make = Callable[..., Path]
Written = Mapping[str, bytes]
DONE = "/app/done"


def ctrf(**statuses: str) -> Written:
    """A report."""
    tests = [{"name": name, "status": status, "duration": 0} for name, status in statuses.items()]
    return {"/logs/verifier/ctrf.json": json.dumps({"results": {"tests": tests}}).encode()}


def honest(files: Mapping[str, bytes]) -> Written:
    """Passes once the solution has run."""
    return ctrf(done="passed" if DONE in files else "failed")


def solves(sandbox: FakeSandbox, command: str) -> CommandResult | str | None:
    """A shell in which any solution works, and which can delete the verifier's files."""
    if command.startswith("bash -c "):
        sandbox.files[DONE] = b""
        return ""
    if command == "rm -rf /logs/verifier/*":
        for path in [path for path in sandbox.files if path.startswith("/logs/verifier/")]:
            del sandbox.files[path]
        return ""
    return None


async def report(
    path: Path,
    verify: Callable[[Mapping[str, bytes]], Written],
    shell: Callable[[FakeSandbox, str], CommandResult | str | None] = solves,
) -> TaskReport:
    """The report of a task, after which no sandbox is left."""
    provider = FakeSandboxProvider(shell, verify=verify)
    found = await check_task(read_task(path), provider)
    assert provider.live == {}
    return found


async def test_a_sound_task_has_no_faults(make: Make) -> None:
    found = await report(make(), honest)
    assert (found.sound, found.advice, found.task) == (True, "", "example")
    assert [run.passed for run in (found.untouched, found.solved, found.again)] == [set(), {"done"}, {"done"}]
    assert found.untouched.missed == {"done"}


async def test_a_verifier_that_passes_for_nothing_is_a_fault(make: Make) -> None:
    """Case V3."""
    found = await report(make(), lambda files: {**ctrf(free="passed", done="passed" if DONE in files else "failed")})
    assert found.faults == ("doing nothing passes free: assert what only the work brings about",)


async def test_a_verifier_whose_tests_are_all_skipped_is_a_fault(make: Make) -> None:
    """Case V3."""
    assert "the solution does not pass a, b" in (await report(make(), lambda _: ctrf(a="skipped", b="pending"))).advice


async def test_a_solution_that_does_not_pass_is_a_fault(make: Make) -> None:
    found = await report(make(), lambda files: {**ctrf(other="failed", done="passed" if DONE in files else "failed")})
    assert found.faults == ("the solution does not pass other: mend solve.sh or the assertion",)


@pytest.mark.parametrize(
    ("ended", "fault"),
    [
        (CommandResult("cp: no such file\n", 1, 0.0), "solve.sh failed: cp: no such file"),
        (CommandResult("", 3, 0.0), "solve.sh failed: exit code 3"),
        (CommandResult("", None, 900.0, timed_out=True), "solve.sh failed: still running after 900 s"),
    ],
)
async def test_a_solution_that_fails_is_a_fault(make: Make, ended: CommandResult, fault: str) -> None:
    def shell(sandbox: FakeSandbox, command: str) -> CommandResult | str | None:
        sandbox.files[DONE] = b""
        return ended if command.startswith("bash -c ") else None

    assert fault in (await report(make(), lambda files: ctrf(done="passed"), shell)).faults


async def test_a_verifier_that_changes_its_mind_is_a_fault(make: Make) -> None:
    said: Iterator[Written] = iter([ctrf(a="failed"), ctrf(a="passed"), ctrf(a="failed")])
    assert "says something else the second time" in (await report(make(), lambda _: next(said))).advice


async def test_a_report_left_from_before_is_not_read_again(make: Make) -> None:
    said: Iterator[Written] = iter([ctrf(a="failed"), ctrf(a="passed"), {}])
    found = await report(make(), lambda _: next(said))
    assert "the verifier reports nothing" in found.advice
    assert not found.sound


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ({}, "reports nothing (exit code 0: no output): let it write /logs/verifier/ctrf.json"),
        ({"/logs/verifier/ctrf.json": b"{"}, "report cannot be read"),
        (ctrf(), "lists no test"),
        ({"/logs/verifier/ctrf.json": b"x" * (9 << 20)}, "larger than"),
        ({"/logs/verifier/reward.txt": b"nan"}, "report cannot be read"),
    ],
)
async def test_a_verifier_that_says_nothing_readable_is_a_fault(make: Make, written: Written, advice: str) -> None:
    """Cases V1 and V4."""
    found = await report(make(), lambda _: written)
    assert advice in found.advice
    assert not found.sound


@pytest.mark.parametrize("name", ["reward.txt", "reward.json"])
async def test_a_task_with_only_a_reward_is_sound_and_told_what_it_lacks(make: Make, name: str) -> None:
    found = await report(make(), lambda files: {f"/logs/verifier/{name}": b"1" if DONE in files else b"0"})
    assert found.sound
    assert found.solved.passed == {"reward"}
    assert found.advice.startswith("only a reward is reported")


async def test_a_report_in_another_format_is_read_as_training_reads_it(make: Make) -> None:
    def tap(files: Mapping[str, bytes]) -> Written:
        ok = "ok" if DONE in files else "not ok"
        lines = ["1..2", f"{ok} 1 - there", f"{ok} 2 - done"]
        return {"/logs/verifier/results.tap": "\n".join(lines).encode()}

    found = await report(make(), tap)
    assert found.sound and found.solved.passed == {"there", "done"} and not found.solved.binary


async def test_a_verifier_that_hangs_is_a_fault(make: Make) -> None:
    def shell(sandbox: FakeSandbox, command: str) -> CommandResult | str | None:
        return CommandResult("", None, 5.0, timed_out=True) if "test.sh" in command else solves(sandbox, command)

    found = await report(make({"task.toml": "[verifier]\ntimeout_sec = 5\n"}), honest, shell)
    assert found.faults == ("the verifier was still running after 5 s: mend what waits",)


async def test_the_verifier_gets_its_variables(make: Make) -> None:
    commands = []

    def shell(sandbox: FakeSandbox, command: str) -> CommandResult | str | None:
        commands.append(command)
        return solves(sandbox, command)

    await report(make({"task.toml": '[verifier]\nenv = { MODE = "a b" }\n'}), honest, shell)
    assert commands.count("MODE='a b' bash /tests/test.sh") == 3


async def test_a_task_without_a_solution_cannot_be_checked(make: Make) -> None:
    with pytest.raises(TaskError, match="no reference solution"):
        await check_task(read_task(make({"solution/solve.sh": None})), FakeSandboxProvider())


async def test_a_task_of_several_steps_is_not_run_as_if_it_had_one(make: Make) -> None:
    path = make({"task.toml": '[[steps]]\nname = "a"\n', "steps/a/instruction.md": "Begin.\n"})
    with pytest.raises(TaskError, match=r"task\.toml: steps: .*not run yet"):
        await check_task(read_task(path), FakeSandboxProvider())


async def test_a_sandbox_that_vanishes_is_no_fault_of_the_task_and_leaves_no_other(make: Make) -> None:
    def shell(sandbox: FakeSandbox, command: str) -> CommandResult | str | None:
        raise SandboxVanished("gone")

    provider = FakeSandboxProvider(shell)
    with pytest.raises(SandboxVanished):
        await check_task(read_task(make()), provider)
    assert provider.live == {}


async def test_in_a_real_sandbox_verifier_and_solution_start_in_the_workdir(
    make: Make, provider: NamespaceProvider
) -> None:
    test = """
if [ -f done ]; then status=passed; else status=failed; fi
echo '{"results":{"tests":[{"name":"done","status":"'$status'","duration":0}]}}' > /logs/verifier/ctrf.json
"""
    path = make(
        {
            "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
            "tests/test.sh": test,
            "solution/solve.sh": "#!/bin/bash\nset -e\nnote='a quoted word'\ntouch done\n",
        }
    )
    assert (await check_task(read_task(path), provider)).advice == ""
