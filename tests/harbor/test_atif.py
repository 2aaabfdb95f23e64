"""What `t1 eval --out` leaves for Harbor's viewer, read by Harbor's own models and scanner: `make test-harbor`."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("harbor", reason="HARBOR IS NOT TESTED HERE: it needs Python 3.12, run make test-harbor")

from harbor.models.trajectories import Trajectory
from harbor.viewer.scanner import JobScanner

from t1.evaluation.atif import JOB, trial_name, write_trajectories
from t1.evaluation.results import Conditions, to_attempt
from t1.testing.runs import example_failure, example_rollout

CONDITIONS = Conditions(
    policy="runs/x/rl",
    policy_digest="p1",
    harness="terminal",
    sampling={"temperature": 1.0},
    limits={"max_turns": 10},
    tasks="suites/basics",
    suite_digest="s1",
    attempts=2,
    seed=0,
    versions={"t1": "0.1.0"},
    git_commit=None,
)
ROLLOUTS = [example_rollout("a"), example_rollout("a", member=1, passed=0), example_failure("b")]


@pytest.fixture
def jobs(tmp_path):
    """A directory of one job."""
    attempts = [to_attempt(rollout) for rollout in ROLLOUTS]
    write_trajectories(tmp_path, ROLLOUTS, attempts, {"a": "Do \x1b[31mit.", "b": "Do that."}, CONDITIONS)
    return tmp_path


def test_harbors_models_accept_every_trajectory(jobs):
    for rollout in ROLLOUTS:
        path = jobs / JOB / trial_name(rollout) / "agent" / "trajectory.json"
        document = Trajectory.model_validate_json(path.read_text())
        assert len(document.steps) == 1 + len(rollout.turns)
        for step, turn in zip(document.steps[1:], rollout.turns, strict=True):
            assert step.metrics.completion_token_ids == turn.completion.tolist()
            assert step.observation.results[0].content == turn.observation
        assert Trajectory.model_validate(json.loads(path.read_text())).agent.name == "terminal"


def test_harbors_viewer_finds_the_job_its_trials_and_their_scores(jobs):
    scanner = JobScanner(jobs)
    assert scanner.list_jobs() == [JOB]
    assert sorted(scanner.list_trials(JOB)) == sorted(map(trial_name, ROLLOUTS))
    results = [scanner.get_trial_result(JOB, trial_name(rollout)) for rollout in ROLLOUTS]
    assert [r.verifier_result and r.verifier_result.rewards["reward"] for r in results] == [1.0, 0.0, None]
    assert results[2].exception_info.exception_type == "SandboxVanished"
