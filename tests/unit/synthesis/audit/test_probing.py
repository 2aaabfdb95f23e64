"""What running a task shows, in real sandboxes."""

from __future__ import annotations

import pytest

from t1.errors import SandboxVanished, TaskError
from t1.synthesis.audit import Kind, audit_directory, audit_task
from t1.testing.sandboxes import FakeSandboxProvider

WEAK = "#!/bin/bash\nmkdir -p /logs/verifier\nif {}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"


async def test_a_sound_task_survives_every_probe(write, provider):
    report = await audit_task(write(), provider=provider)
    assert report.accepted, report.rejects
    assert report.score > 0.9


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("[ -f /app/names.txt ]", "before anything was done"),
        ("[ -f /app/count.txt ]", "/app/count.txt"),
        ("grep -q '[0-9]' /app/count.txt", "other values in /app/count.txt"),
    ],
    ids=["nothing done", "existence", "form"],
)
async def test_a_verifier_that_takes_wrong_work_is_weak(write, provider, condition, reason):
    """Case V3."""
    report = await audit_task(write(test=WEAK.format(condition)), provider=provider)
    assert report.kinds == {Kind.WEAK_VERIFIER}
    assert reason in report.rejects[0].reason and report.rejects[0].ran


async def test_an_answer_that_no_input_changes_is_a_shortcut(write, provider):
    solve = "cat /app/names.txt > /dev/null\necho 3 > /app/count.txt\n"
    report = await audit_task(write(solve=solve), provider=provider)
    assert report.kinds == {Kind.SOLUTION_SHORTCUT}
    assert (report.rejects[0].file, report.rejects[0].line) == ("solution/solve.sh", 3)


async def test_an_answer_that_the_build_leaves_behind_is_a_leak(write, provider):
    """Case V5."""
    dockerfile = "FROM x\nWORKDIR /app\nCOPY files/ /app/\nRUN wc -l < names.txt > /app/.expected\n"
    report = await audit_task(write(dockerfile=dockerfile), provider=provider)
    assert report.kinds == {Kind.TEST_LEAKAGE}
    assert (report.rejects[0].file, report.rejects[0].line) == ("environment/Dockerfile", 4)


async def test_a_solution_that_does_not_pass_is_named(write, provider):
    report = await audit_task(write(solve="wc -c < /app/names.txt > /app/count.txt\n"), provider=provider)
    assert Kind.UNSOLVABLE in report.kinds


async def test_a_file_that_a_named_file_names_is_no_leak(write, provider):
    task = write(
        instruction="Copy the file that /app/which.cfg names to /app/copy.txt.",
        environment={"files/which.cfg": "long.txt\n", "files/long.txt": "a text of some length\n"},
        test=WEAK.format('[ "$(cat /app/copy.txt)" = "a text of some length" ]'),
        solve='cp "/app/$(cat /app/which.cfg)" /app/copy.txt\n',
    )
    assert (await audit_task(task, provider=provider)).rejects == ()


async def test_a_sandbox_that_vanishes_is_a_problem_of_the_report(write):
    report = await audit_task(write(), provider=FakeSandboxProvider(failures=[SandboxVanished("gone")]))
    assert not report.accepted and "gone" in report.problem
    assert report.criteria


async def test_a_broken_task_is_a_line_and_the_audit_goes_on(write):
    root = write("b").path.parent
    (root / "a").mkdir()
    (root / "a" / "task.toml").write_text("[verifier]\ntimeout_sec = -1\n")
    write("c")
    reports = [report async for report in audit_directory(root)]
    assert [report.task for report in reports] == ["a", "b", "c"]
    assert "a/task.toml" in reports[0].problem or "a/" in reports[0].problem
    assert [report.accepted for report in reports] == [False, True, True]


async def test_a_place_without_tasks_is_refused(tmp_path):
    with pytest.raises(TaskError, match="holds no tasks"):
        [report async for report in audit_directory(tmp_path)]


async def test_a_twin_of_the_output_elsewhere_is_a_leak(write, provider):
    """Case V5."""
    task = write(
        instruction="Write the names of /app/names.txt in reverse to /app/reverse.txt.",
        environment={"files/.cache/reverse.txt": "Cy\nBo\nAna\n"},
        test=WEAK.format("tac /app/names.txt | cmp -s - /app/reverse.txt"),
        solve="tac /app/names.txt > /app/reverse.txt\n",
    )
    assert (await audit_task(task, provider=provider)).kinds == {Kind.TEST_LEAKAGE}


async def test_a_file_that_is_committed_is_judged_in_its_repository(write, provider):
    identity = "git config user.name A && git config user.email a@example.org"
    task = write(
        instruction="Commit a file CHANGES with the line done in the git repository /app/repo.",
        dockerfile=f"FROM x\nWORKDIR /app/repo\nCOPY files/ /app/repo/\nRUN git init -q . && {identity}\n",
        test=WEAK.format('[ "$(git -C /app/repo show HEAD:CHANGES)" = "done" ]'),
        solve="cd /app/repo && echo done > CHANGES && git add CHANGES && git commit -qm done\n",
    )
    assert (await audit_task(task, provider=provider)).rejects == ()
