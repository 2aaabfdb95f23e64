"""Evidence, time-outs and verification in place, over real sandboxes where the host allows them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from t1.errors import RolloutDropped, TaskError, VerifierError
from t1.sandboxes import NamespaceProvider, probe
from t1.testing.sandboxes import FakeSandboxProvider
from t1.types import (
    AssertionResult,
    AssertionStatus,
    Environment,
    FileChanges,
    Limits,
    RewardSource,
    TamperEvidence,
    TamperLevel,
    Task,
    Verdict,
    VerifierSpec,
)
from t1.verification import PristineVerifier, score
from t1.verification.declared import read_declared
from t1.verification.evidence import disagreement, outlived, read_guard, readable, system_changes
from t1.verification.ways import read_ways

REWARD = "/logs/verifier/reward.txt"


def make_task(folder: Path, test: str, metadata: Mapping[str, Any] | None = None, **verifier: Any) -> Task:
    for name in ("environment", "tests"):
        (folder / name).mkdir()
    if test:
        (folder / "tests" / "test.sh").write_text(test)
    spec = VerifierSpec(folder / "tests", **verifier)
    environment = Environment(folder / "environment")
    return Task("example", folder.name * 8, "Do it.", environment, spec, Limits(), folder, metadata=metadata or {})


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[NamespaceProvider]:
    if not (found := probe()):
        pytest.skip(str(found))
    opened = NamespaceProvider()
    yield opened
    await opened.close()


async def judge(provider: NamespaceProvider, task: Task, script: str, **settings: Any) -> Verdict:
    """The verdict on what an agent's script leaves."""
    sandbox = await provider.open(task)
    try:
        await sandbox.run(script, timeout_s=30)
        return await PristineVerifier(provider, **settings).verify(task, sandbox)
    finally:
        await sandbox.close()


def rules(verdict: Verdict) -> set[str]:
    return {found.rule for found in verdict.tamper}


PASS = f"echo 1 > {REWARD}\n"


async def test_a_pipe_that_was_left_there_does_not_hang_the_verifier(
    provider: NamespaceProvider, tmp_path: Path
) -> None:
    """Case F7: the archive of a place with a pipe in it can be read."""
    task = make_task(tmp_path, f"cd /app && cat * > /dev/null; [ -e /app/p ] && exit; {PASS}", timeout_s=20.0)
    verdict = await judge(provider, task, "mkfifo /app/p; ln -s /dev/zero /app/z; echo x > /app/a")
    assert verdict.solved
    assert not verdict.tampered
    assert rules(verdict) == {"special-file", "link-out"}


async def test_forged_results_and_a_racing_writer_are_evidence_and_earn_nothing(
    provider: NamespaceProvider, tmp_path: Path
) -> None:
    """Cases V1 and F4."""
    task = make_task(tmp_path, f"echo 0 > {REWARD}\n")
    race = f"while :; do echo 1 > {REWARD}; sleep 0.02; done"
    verdict = await judge(provider, task, f"(setsid bash -c '{race}' >/dev/null 2>&1 &); sleep 0.1")
    assert not verdict.solved
    assert verdict.tampered
    assert rules(verdict) == {"forged-result", "process"}


async def test_what_the_shell_redefined_is_noted_and_reaches_no_verifier(
    provider: NamespaceProvider, tmp_path: Path
) -> None:
    task = make_task(tmp_path, f'[ -z "$LD_PRELOAD" ] && [ "$(cat /app/a)" = x ] && {PASS}')
    script = "echo x > /app/a; cat() { echo y; }; export -f cat; export LD_PRELOAD=/app/none.so"
    verdict = await judge(provider, task, script)
    assert verdict.solved
    assert {(found.rule, found.level) for found in verdict.tamper} == {
        ("shell-function", TamperLevel.NOTED),
        ("shell-variable", TamperLevel.NOTED),
    }


async def test_an_honest_background_process_is_noted(provider: NamespaceProvider, tmp_path: Path) -> None:
    verdict = await judge(provider, make_task(tmp_path, PASS), "(sleep 100 &); sleep 0.2")
    assert (verdict.solved, verdict.tampered) == (True, False)
    assert [found.path for found in verdict.tamper] == ["sleep 100"]


CTRF = json.dumps({"results": {"tests": [{"name": "a", "status": "passed"}, {"name": "b", "status": "passed"}]}})


async def test_what_had_passed_before_the_time_was_up_counts_where_it_is_wanted(
    provider: NamespaceProvider, tmp_path: Path
) -> None:
    task = make_task(tmp_path, f"echo '{CTRF}' > /logs/verifier/ctrf.json; sleep 60\n", timeout_s=1.0)
    verdict = await judge(provider, task, "true", partial=True)
    assert (verdict.num_passed, verdict.solved) == (2, False)
    assert "ran out of time" in verdict.report_error
    with pytest.raises(VerifierError, match=r"test\.sh: the verifier ran longer than 1 s"):
        await judge(provider, task, "true")


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("", r"test\.sh: there is no such file"),
        ("sleep 60\n", r"test\.sh: ran out of time, and left no report"),
        ("yes | head -c 1000000000\n", r"test\.sh: the verifier was killed"),
        ("head -c 50000000 /dev/zero > /logs/verifier/ctrf.json\n", r"ctrf\.json.* no reward"),
        (f"echo nonsense > {REWARD}\n", r"reward\.txt: not a number"),
        (f"ln -s /dev/zero {REWARD}\n", "no reward"),
        ("kill -9 $$\n", "no reward; exit code 137"),
    ],
    ids=["missing", "hangs", "prints a gigabyte", "huge report", "nonsense", "endless", "dies"],
)
async def test_a_bad_verifier_is_a_typed_error_and_never_a_score(
    provider: NamespaceProvider, tmp_path: Path, test: str, message: str
) -> None:
    """Case V6."""
    task = make_task(tmp_path, test, timeout_s=2.0)
    with pytest.raises(VerifierError, match=message):
        await judge(provider, task, "true", partial=True)


async def test_a_verifiers_own_processes_do_not_outlive_it(provider: NamespaceProvider, tmp_path: Path) -> None:
    late = f"(setsid bash -c 'sleep 0.3; echo 1 > {REWARD}' >/dev/null 2>&1 &)"
    verdict = await judge(provider, make_task(tmp_path, f"{late}\necho 0 > {REWARD}\n"), "true")
    assert not verdict.solved


SERVE = "(setsid python3 -m http.server -d /app 8000 >/dev/null 2>&1 &)\n" + (
    "for i in $(seq 200); do (echo > /dev/tcp/127.0.0.1/8000) 2>/dev/null && break; sleep 0.02; done\n"
)
ASK = "if (echo > /dev/tcp/127.0.0.1/8000) 2>/dev/null; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"


async def test_a_live_service_is_checked_in_place(provider: NamespaceProvider, tmp_path: Path) -> None:
    task = make_task(tmp_path, ASK, {"in_place": True})
    verdict = await judge(provider, task, SERVE)
    assert (verdict.solved, verdict.tamper) == (True, ())
    assert not (await judge(provider, task, "true")).solved


async def test_in_place_a_planted_conftest_or_a_redefined_command_is_tampering(
    provider: NamespaceProvider, tmp_path: Path
) -> None:
    task = make_task(tmp_path, ASK, {"in_place": True})
    verdict = await judge(provider, task, SERVE + "touch /app/conftest.py; cat() { :; }")
    assert verdict.tampered
    assert rules(verdict) == {"pytest-setting", "shell-function"}


async def test_what_passes_only_beside_the_agent_is_a_disagreement(provider: NamespaceProvider, tmp_path: Path) -> None:
    task = make_task(tmp_path, ASK, {"in_place": "compared"})
    verdict = await judge(provider, task, SERVE)
    assert (verdict.solved, rules(verdict)) == (False, {"disagreement"})


def tampered(level: TamperLevel = TamperLevel.TAMPERING) -> Verdict:
    results = (AssertionResult("a", AssertionStatus.PASSED),)
    return Verdict(results, True, (TamperEvidence("conftest", "/app/conftest.py", "planted", level),))


def test_tampering_zeroes_the_reward_unless_the_policy_says_otherwise() -> None:
    assert score(tampered(), normalizer=1, kind="dense") == (0.0, RewardSource.TAMPERED)
    assert score(tampered(), normalizer=1, kind="dense", tamper="record") == (1.0, RewardSource.ASSERTIONS)
    with pytest.raises(RolloutDropped, match=r"conftest: /app/conftest\.py: planted"):
        score(tampered(), normalizer=1, kind="binary", tamper="drop")


@pytest.mark.parametrize("policy", ["zero", "drop", "record"])
def test_what_is_only_noted_costs_nothing(policy: Any) -> None:
    assert score(tampered(TamperLevel.NOTED), normalizer=1, kind="dense", tamper=policy)[0] == 1.0


def test_processes_that_aim_at_the_results_weigh_more() -> None:
    lines = ("sleep 9", "bash -c echo 1 > /logs/verifier/reward.txt")
    found = outlived(FileChanges(Path("/x"), {}, outlived=lines))
    assert [one.level for one in found] == [TamperLevel.NOTED, TamperLevel.TAMPERING]


def test_of_system_paths_only_those_are_listed_that_a_verifier_uses() -> None:
    paths = ("/usr/bin/python3", "/usr/share/doc/x", "/etc/ld.so.preload", "/usr/lib/x/_pytest/runner.py", "/bin/bash")
    assert {found.path for found in system_changes(paths)} == set(paths) - {"/usr/share/doc/x"}


@pytest.mark.parametrize(
    ("report", "rules"),
    [
        (b'{"finished": true, "evidence": []}', []),
        (b'{"finished": false, "evidence": []}', ["guard"]),
        (b'{"finished": true, "evidence": [{"rule": "r", "path": "p"}]}', ["r"]),
        (b"garbage", ["guard"]),
        (b'{"finished": true, "evidence": [], "more": 1}', ["guard"]),
    ],
)
def test_a_guard_that_was_silenced_is_evidence(report: bytes, rules: list[str]) -> None:
    assert [found.rule for found in read_guard(report)] == rules


def test_names_that_no_file_can_hold_become_readable_evidence() -> None:
    found = readable(TamperEvidence("r", "/app/\udcff" + "x" * 1000))
    assert found.path.startswith("/app/\\xff")
    assert len(found.path) == 500
    found.path.encode("utf-8")


def test_a_disagreement_names_what_passes_beside_the_agent_only() -> None:
    beside = tampered()
    pristine = replace(beside, assertions=(AssertionResult("a", AssertionStatus.FAILED),), solved=False)
    assert [found.path for found in disagreement(beside, pristine)] == ["a"]
    assert disagreement(beside, beside) == []
    assert [found.path for found in disagreement(Verdict(None, True), Verdict(None, False))] == ["the outcome"]


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        ({"outputs": "x"}, "outputs"),
        ({"outputs": ["x"]}, "outputs"),
        ({"outputs": ["/"]}, "outputs"),
        ({"in_place": 1.5}, "in_place"),
    ],
)
def test_a_declaration_that_makes_no_sense_names_its_key(tmp_path: Path, metadata: dict[str, Any], key: str) -> None:
    with pytest.raises(TaskError, match=rf"task\.toml: metadata\.{key}"):
        read_declared(make_task(tmp_path, "true", metadata))


def test_the_ways_of_a_verifier_are_read_from_what_its_author_wrote(tmp_path: Path) -> None:
    task = make_task(tmp_path, 'cd src && pytest\n(cd /opt/x; make)\nexport PATH="$HOME/.cargo/bin:$PATH"\n')
    (tmp_path / "environment" / "Dockerfile").write_text("FROM x\nWORKDIR /app\nENV PATH=/opt/v/bin:$PATH\n")
    ways = read_ways(task)
    assert ways.starts == {"/app", "/app/src", "/opt/x"}
    assert {"/root/.cargo/bin", "/opt/v/bin", "/root/.local/bin"} <= ways.path


async def test_nothing_is_said_against_a_sandbox_in_which_nothing_odd_happened(tmp_path: Path) -> None:
    provider = FakeSandboxProvider(verify=lambda _: {REWARD: b"1"})
    task = make_task(tmp_path, "true")
    assert (await PristineVerifier(provider).verify(task, await provider.open(task))).tamper == ()
