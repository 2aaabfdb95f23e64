"""Verdicts over fakes, and over real sandboxes where the ground itself is hostile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from t1.errors import SandboxVanished, VerifierError
from t1.protocols import Verifier
from t1.sandboxes import NamespaceProvider, probe
from t1.testing.sandboxes import FakeSandbox, FakeSandboxProvider
from t1.types import CommandResult, Environment, Limits, Task, Verdict, VerifierSpec
from t1.verification import PristineVerifier


def make_task(folder: Path, test: str = "true\n", **verifier: object) -> Task:
    (folder / "environment").mkdir()
    (folder / "tests").mkdir()
    (folder / "tests" / "test.sh").write_text(test)
    spec = VerifierSpec(folder / "tests", **verifier)  # type: ignore[arg-type]
    return Task("example", "v" * 64, "Do it.", Environment(folder / "environment"), spec, Limits(), folder)


def ctrf(**statuses: str) -> bytes:
    tests = [{"name": name, "status": status} for name, status in statuses.items()]
    return json.dumps({"results": {"tests": tests}}).encode()


async def verdict(folder: Path, **written: bytes) -> Verdict:
    """The verdict when the verifier writes these files (`ctrf_json` → ctrf.json)."""
    files = {f"/logs/verifier/{name.replace('_', '.')}": data for name, data in written.items()}
    provider = FakeSandboxProvider(verify=lambda _: files)
    task = make_task(folder)
    sandbox = await provider.open(task)
    found = await PristineVerifier(provider).verify(task, sandbox)
    assert sandbox.stopped
    assert [box.id for box in provider.live.values()] == [sandbox.id]
    return found


async def test_the_report_decides_assertion_by_assertion(tmp_path: Path) -> None:
    found = await verdict(tmp_path, ctrf_json=ctrf(a="passed", b="failed"), reward_txt=b"1")
    assert (found.num_passed, found.solved, found.report_error) == (1, False, "")


async def test_solved_means_that_every_assertion_passed(tmp_path: Path) -> None:
    assert (await verdict(tmp_path, ctrf_json=ctrf(a="passed", b="passed"))).solved


async def test_all_skipped_is_not_solved(tmp_path: Path) -> None:
    """Case V3."""
    found = await verdict(tmp_path, ctrf_json=ctrf(a="skipped", b="pending"), reward_txt=b"1")
    assert (found.num_passed, found.solved) == (0, False)


@pytest.mark.parametrize(("reward", "solved"), [(b"1", True), (b"1.0\n", True), (b"0", False), (b"0.5", False)])
async def test_without_a_report_the_reward_file_decides_and_the_lack_is_told(
    tmp_path: Path, reward: bytes, solved: bool
) -> None:
    """Case V4."""
    found = await verdict(tmp_path, reward_txt=reward)
    assert (found.assertions, found.solved) == (None, solved)
    assert found.report_error == "the verifier wrote no ctrf.json"


async def test_an_unreadable_report_falls_back_and_says_why(tmp_path: Path) -> None:
    found = await verdict(tmp_path, ctrf_json=b"{broken", reward_json=b'{"reward": 1}')
    assert (found.assertions, found.solved) == (None, True)
    assert found.report_error.startswith("ctrf.json: ")


async def test_a_report_beyond_the_bound_counts_as_unreadable(tmp_path: Path) -> None:
    found = await verdict(tmp_path, ctrf_json=b" " * (9 << 20), reward_txt=b"1")
    assert found.report_error.endswith("larger than 8388608 bytes")


@pytest.mark.parametrize("reward", [b"nan", b"inf", b"2", b"-1", b""])
async def test_a_nonsense_reward_is_an_error_and_no_score(tmp_path: Path, reward: bytes) -> None:
    """Cases V1 and V6."""
    with pytest.raises(VerifierError, match=r"example: reward\.txt"):
        await verdict(tmp_path, reward_txt=reward)


async def test_neither_report_nor_reward_is_an_error(tmp_path: Path) -> None:
    """Case V6."""
    with pytest.raises(VerifierError, match=r"wrote no ctrf\.json and no reward; exit code 0"):
        await verdict(tmp_path)


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (CommandResult("", None, 9.0, timed_out=True), "ran longer than 9 s"),
        (CommandResult("cut", None, 1.0), "was killed: cut"),
    ],
)
async def test_a_verifier_that_hangs_or_is_killed_is_an_error_and_its_sandbox_is_closed(
    tmp_path: Path, ended: CommandResult, message: str
) -> None:
    provider = FakeSandboxProvider(lambda sandbox, _: ended if sandbox.pristine else None)
    task = make_task(tmp_path, timeout_s=9.0)
    sandbox = await provider.open(task)
    with pytest.raises(VerifierError, match=message):
        await PristineVerifier(provider).verify(task, sandbox)
    assert list(provider.live) == [sandbox.id]


async def test_a_vanished_sandbox_is_passed_on(tmp_path: Path) -> None:
    def vanish(sandbox: FakeSandbox, command: str) -> None:
        if sandbox.pristine:
            raise SandboxVanished("gone")

    provider = FakeSandboxProvider(vanish)
    task = make_task(tmp_path)
    with pytest.raises(SandboxVanished):
        await PristineVerifier(provider).verify(task, await provider.open(task))


async def test_the_verifiers_variables_are_quoted_and_their_names_checked(tmp_path: Path) -> None:
    seen: list[str] = []
    files: Mapping[str, bytes] = {"/logs/verifier/reward.txt": b"1"}

    def script(sandbox: FakeSandbox, command: str) -> None:
        seen.append(command)

    provider = FakeSandboxProvider(script, verify=lambda _: files)
    task = make_task(tmp_path, env={"KEY": "two words; $x"})
    await PristineVerifier(provider).verify(task, await provider.open(task))
    command = next(command for command in seen if command.endswith("bash /tests/test.sh"))
    assert command.startswith("PYTHONNOUSERSITE=1 GIT_CONFIG_COUNT=2 ")
    assert "KEY='two words; $x' " in command
    (tmp_path / "other").mkdir()
    wrong = make_task(tmp_path / "other", env={"a b": "1"})
    with pytest.raises(VerifierError, match="'a b' is not the name of a variable"):
        await PristineVerifier(provider).verify(wrong, await provider.open(wrong))


def test_it_is_a_verifier() -> None:
    verifier: Verifier = PristineVerifier(FakeSandboxProvider())
    assert verifier is not None


PLANT = r"""
mkdir -p /app/bin ~/.local/lib/python3.11/site-packages
printf '#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n' | tee /app/bin/bash /app/bin/cat > ~/.bashrc
chmod +x /app/bin/*
echo 'import os; os.makedirs("/app/planted")' > ~/.local/lib/python3.11/site-packages/usercustomize.py
mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo '{"results":{"tests":[]}}' > /logs/verifier/ctrf.json
export PATH=/app/bin:$PATH BASH_ENV=/root/.bashrc LD_PRELOAD=/app/x.so
cat() { echo 1; }; export -f cat
"""
TEST = r"""
test ! -e /tests/planted || exit 9
[ "$(cat /app/answer)" = 42 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
test -x /usr/bin/python3 && python3 -c 'pass'
test ! -e /app/planted || echo 1 > /logs/verifier/reward.txt
"""


@pytest.mark.parametrize(("answer", "solved"), [("42", True), ("41", False)])
async def test_what_an_agent_plants_changes_no_verdict(tmp_path: Path, answer: str, solved: bool) -> None:
    """Cases V1 and V2."""
    if not (found := probe()):
        pytest.skip(str(found))
    provider = NamespaceProvider()
    try:
        task = make_task(tmp_path, TEST)
        sandbox = await provider.open(task)
        await sandbox.run(f"echo {answer} > /app/answer", timeout_s=20)
        await sandbox.run(PLANT, timeout_s=20)
        verdict = await PristineVerifier(provider).verify(task, sandbox)
        assert (verdict.solved, verdict.assertions) == (solved, None)
    finally:
        await provider.close()


async def test_tests_are_read_only_and_absent_from_the_agents_sandbox(tmp_path: Path) -> None:
    if not (found := probe()):
        pytest.skip(str(found))
    provider = NamespaceProvider()
    try:
        task = make_task(tmp_path, "touch /tests/x 2>/dev/null && echo 0 > /logs/verifier/reward.txt\n")
        sandbox = await provider.open(task)
        assert (await sandbox.run("ls /tests /solution", timeout_s=20)).exit_code != 0
        with pytest.raises(VerifierError, match="exit code 1"):
            await PristineVerifier(provider).verify(task, sandbox)
    finally:
        await provider.close()
