"""`t1 audit`: a table for people, JSON for programs, an exit code for both."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from t1.cli import main
from t1.rollouts.store import write_step
from t1.tito import assemble
from t1.types import FinishReason, Outcome, RewardSource, Rollout, RolloutId, StopReason, Turn


def rollout_of(member: int) -> Rollout:
    """Two turns of one conversation."""
    prompt = np.arange(10, 16, dtype=np.int32)
    turns = []
    for index in range(2):
        completion = np.array([20 + index, 21, 1], dtype=np.int32)
        logprobs, versions = np.full(3, -0.5 - index, dtype=np.float32), np.zeros(3, dtype=np.int32)
        turns.append(Turn(prompt, completion, logprobs, versions, FinishReason.STOP))
        prompt = np.concatenate([prompt, completion, np.array([2, 30], dtype=np.int32)])
    outcome = Outcome(StopReason.TURN_LIMIT, None, 1.0, RewardSource.ASSERTIONS)
    return Rollout(RolloutId("list-files", 0, member), "digest", tuple(turns), outcome)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of one step with two sound rollouts."""
    (tmp_path / "rollouts").mkdir()
    rollouts = [rollout_of(0), rollout_of(1)]
    write_step(
        tmp_path / "rollouts" / "rl-00000.parquet",
        rollouts,
        [trajectory for rollout in rollouts for trajectory in assemble(rollout.id, rollout.turns)],
    )
    return tmp_path


def spoil(run: Path) -> None:
    """A second step that trained one token which was not sampled."""
    rollout = rollout_of(2)
    (trajectory,) = assemble(rollout.id, rollout.turns)
    tokens = trajectory.tokens.copy()
    tokens[-2] += 1
    write_step(run / "rollouts" / "rl-00001.parquet", [rollout], [replace(trajectory, tokens=tokens)])


def test_a_sound_run_is_shown_as_a_table_and_exits_with_0(run, capsys):
    assert main(["audit", str(run)]) == 0
    shown = capsys.readouterr().out
    for line in ("turns by case", "strict", "drift inside loss region", "drift outside loss region", "findings"):
        assert line in shown
    assert shown.rstrip().endswith("sound: no errors")


def test_a_wrong_trained_token_exits_with_1_and_says_where(run, capsys):
    spoil(run)
    assert main(["audit", str(run)]) == 1
    shown = capsys.readouterr().out
    assert "rl-00001.parquet: error loss-drift list-files/0/2 turns [1]" in shown
    assert "docs/audit.md" in shown and shown.rstrip().endswith("unsound: 1 errors")


def test_json_holds_the_same_numbers(run, capsys):
    spoil(run)
    assert main(["audit", str(run), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["turns_by_case"] == {"open": 3, "strict": 3, "normalized": 0, "retokenized": 0, "split": 0}
    assert facts["completions_in_next_prompt"]["exact"] == 3
    assert (facts["drift_inside_loss_region"], facts["drift_outside_loss_region"]) == (1, 0)
    assert facts["findings"] == {"loss-drift": 1}


def test_a_damaged_file_is_one_line(run, capsys):
    path = run / "rollouts" / "rl-00000.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    assert main(["audit", str(run)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("t1: ") and "rl-00000.parquet" in error and error.count("\n") == 1
