"""Whether a policy was trained on what it is measured on."""

from dataclasses import replace

import pytest

from t1.errors import RunError
from t1.evaluation.exposure import exposure, run_of
from t1.testing.runs import example_rollout, write_run
from t1.testing.tasks import example_task


def test_a_run_is_asked_what_it_trained_on_and_not_what_it_was_measured_on(tmp_path):
    run = write_run(tmp_path / "run", evaluated={"rl": [example_rollout("held")]})
    rollouts = [example_rollout("a"), example_rollout("held"), example_rollout("new")]
    tasks = [replace(example_task(r.id.task, instruction=f"Do {r.id.task}."), digest=r.task_digest) for r in rollouts]
    found = exposure(tasks, rollouts, run)
    assert found.seen == (("a", "the same files as a"),)
    assert (found.num_tasks, found.trained) == (3, str(run)) and found.num_trained > 0


def test_a_task_under_another_name_is_known_by_its_first_prompt(tmp_path):
    run = write_run(tmp_path / "run")
    rollout = example_rollout("a")
    other = replace(rollout, id=replace(rollout.id, task="renamed"))
    task = replace(example_task("renamed"), digest="0" * 64)
    assert exposure([task], [other], run).seen == (("renamed", "the first prompt of a"),)
    assert exposure([task], [], run).seen == ()


def test_tasks_of_a_directory_are_compared_by_files_and_by_instruction(tmp_path):
    for split, name, text in (("train", "a", "Do a."), ("heldout", "b", "Do b.")):
        folder = tmp_path / split / name
        for file, content in (
            ("task.toml", 'version = "1.0"\n'),
            ("instruction.md", text),
            ("environment/Dockerfile", "FROM scratch\n"),
            ("tests/test.sh", "true\n"),
        ):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(content)
    tasks = [example_task("x", instruction="Do a.\n"), example_task("y", instruction="Do b.")]
    found = exposure(tasks, [], tmp_path)
    assert found.seen == (("x", "the instruction of a"),) and found.num_trained == 1


def test_the_run_of_a_checkpoint_is_found_however_deep_it_lies(tmp_path):
    run = write_run(tmp_path / "run")
    assert run_of(run / "checkpoints" / "rl" / "step-000002") == run
    assert run_of(tmp_path / "elsewhere" / "checkpoint") is None


def test_a_run_without_rollouts_cannot_say_what_it_trained_on(tmp_path):
    (tmp_path / "rollouts").mkdir()
    with pytest.raises(RunError, match="not on record"):
        exposure([], [], tmp_path)
