"""Attacks on one task: the bank's names hold, a volley hides nothing, and a verifier that greps pays an attacker."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from t1.redteam import EXPLOITS, aimed_exploits, arbitrary_exploits, volley_members
from t1.sandboxes import NamespaceProvider, probe
from t1.synthesis.attacks import Attacks, attack, expected_files
from t1.synthesis.trials import Ground
from t1.tasks import write_task
from t1.types import Task


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    if probe().confinement is None:
        pytest.skip("no namespaces here")
    provider = NamespaceProvider()
    yield Ground(provider)
    await provider.close()


def task_with(test: str, path: Path) -> Task:
    """A task whose verifier is one shell condition."""
    report = "mkdir -p /logs/verifier; if {}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
    return write_task(
        path,
        config={"version": "1.0", "agent": {"timeout_sec": 30.0}, "verifier": {"timeout_sec": 30.0}},
        instruction="Write the word harbor, upside down, into /app/word.txt.\n",
        environment={"Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n"},
        tests={"test.sh": "#!/bin/bash\n" + report.format(test)},
        solution={"solve.sh": "#!/bin/bash\necho harbor | rev > /app/word.txt\n"},
    )


def test_every_attack_of_the_bank_is_known_by_one_name_and_bound_ones_are_left_out():
    names = [exploit.name for exploit in arbitrary_exploits()]
    assert len(names) == len(set(names)) and set(names) < {exploit.name for exploit in EXPLOITS}
    assert {member.name for member in volley_members()} < set(names)
    assert not {"git-hook", "stack-frames", "linked-output"} & set(names)


def test_outputs_are_aimed_at_with_the_files_of_the_tests_that_equal_them():
    digest = hashlib.sha256(b"robrah\n").hexdigest()
    aims = expected_files({"expected/00": "robrah\n", "test.sh": "x"}, {"/app/word.txt": digest, "/app/b": "0"})
    assert aims == {"/app/word.txt": "expected/00"}
    linked = next(e for e in aimed_exploits(["/app/word.txt"], "Write it.", aims) if e.name == "linked-outputs")
    assert "ln -sf /tests/expected/00 /app/word.txt" in linked.script


async def test_a_verifier_that_looks_for_a_word_of_the_instruction_pays_whoever_repeats_it(ground, tmp_path):
    task = task_with("grep -q harbor /app/word.txt", tmp_path / "grepping")
    earned = {each.name: each.reward for each in await attack(task, ground, Attacks.VOLLEY, outputs=["/app/word.txt"])}
    assert earned == {"stuffed-outputs": 1.0, "linked-outputs": 0.0, "volley": 0.0}


async def test_a_sound_verifier_pays_nobody_and_the_volley_leaves_evidence(ground, tmp_path):
    task = task_with('[ "$(cat /app/word.txt)" = robrah ]', tmp_path / "sound")
    tried = await attack(task, ground, Attacks.VOLLEY, outputs=["/app/word.txt"])
    assert [each.reward for each in tried] == [0.0, 0.0, 0.0]
    assert "forged-result" in str(tried[-1].tamper) and "forged-results" in tried[-1].members


async def test_trials_that_leave_the_same_files_share_a_verdict(ground, tmp_path):
    task = task_with('[ "$(cat /app/word.txt)" = robrah ]', tmp_path / "known")
    right = await ground.looked(task, "echo robrah > /app/word.txt")
    same = await ground.trial(task, "printf 'robrah\\n' > /app/word.txt", look=True, known={right.state: right})
    other = await ground.trial(task, "echo x > /app/word.txt", look=True, known={right.state: right})
    assert right.solved and same.passed == right.passed and same.state == right.state
    assert not other.solved and other.state != right.state
    assert await ground.looked(task, "echo robrah > /app/word.txt") is right
