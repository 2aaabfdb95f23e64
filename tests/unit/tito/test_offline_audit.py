"""The audit of a run directory: what it counts, what it reports, what it refuses."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from t1.errors import RunError
from t1.rollouts.store import write_step
from t1.tito import assemble
from t1.training.offline_audit import audit_run
from t1.types import RolloutId


@pytest.fixture
def run(tmp_path, chat):
    """A run of two steps: one strict rollout, one with a split, one that was never trained."""
    (tmp_path / "rollouts").mkdir()
    exchanges = chat.exchanges("ls", "done")
    strict = chat.rollout(chat.turns(exchanges, starts=chat.deltas(exchanges)))
    prompt = chat.opening()
    split = chat.rollout(chat.turns([(prompt, chat.said("ls")), (prompt, chat.said("done"))], starts=[0, 0]))
    unused = replace(strict, id=RolloutId("task", 1, 3))
    write_step(tmp_path / "rollouts" / "rl-00000.parquet", [strict, unused], assemble(strict.id, strict.turns))
    write_step(tmp_path / "rollouts" / "rl-00001.parquet", [split], assemble(split.id, split.turns))
    return tmp_path


def corrupt_second_step(run, chat):
    """One trained id of the second step is not what was sampled."""
    prompt = chat.opening()
    rollout = chat.rollout(chat.turns([(prompt, chat.said("ls"))]))
    (trajectory,) = assemble(rollout.id, rollout.turns)
    tokens = trajectory.tokens.copy()
    tokens[-1] += 1
    write_step(run / "rollouts" / "rl-00001.parquet", [rollout], [replace(trajectory, tokens=tokens)])


def test_a_sound_run_is_counted_by_case_and_exits_with_0(run):
    report = audit_run(run)
    assert report.exit_code == 0
    facts = report.as_dict()
    assert facts["turns_by_case"] == {"open": 2, "strict": 1, "normalized": 0, "retokenized": 0, "split": 1}
    assert (facts["steps"], facts["rollouts"], facts["untrained_rollouts"], facts["segments"]) == (2, 3, 1, 3)
    assert facts["drift_inside_loss_region"] == facts["drift_outside_loss_region"] == facts["errors"] == 0
    assert json.loads(json.dumps(facts)) == facts
    assert "sound: no errors" in str(report)


def test_an_unsound_run_names_file_rule_and_turn_and_exits_with_1(run, chat):
    corrupt_second_step(run, chat)
    report = audit_run(run)
    assert report.exit_code == 1
    assert report.as_dict()["drift_inside_loss_region"] == 1
    assert report.as_dict()["findings"] == {"loss-drift": 1}
    assert "rl-00001.parquet: error loss-drift task/1/2 turns [0]" in str(report)


def test_ranges_come_from_the_policy_of_the_run(run):
    checkpoint = run / "checkpoints" / "rl" / "step-00001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text(json.dumps({"vocab_size": 400, "num_experts": 2}))
    assert set(audit_run(run).as_dict()["findings"]) == {"routing-range"}
    assert audit_run(run, num_experts=8).exit_code == 0
    assert set(audit_run(run / "rollouts" / "rl-00000.parquet").as_dict()["findings"]) == {"routing-range"}


def test_texts_are_compared_where_the_run_holds_the_policy_s_tokenizer(run, chat):
    """A completion that came back through other ids: unverified without a tokenizer, the same text with it."""
    prompt, odd = chat.opening(), np.concatenate([chat.letters("echo hello"), [chat.end]]).astype(np.int32)
    again = np.concatenate([prompt, chat.said("echo hello"), chat.observed()])
    rollout = chat.rollout(chat.turns([(prompt, odd), (again, chat.said("done"))]))
    trajectories = assemble(rollout.id, rollout.turns, boundary_ids=chat.boundary_ids, decode=chat.decode)
    write_step(run / "rollouts" / "rl-00002.parquet", [rollout], trajectories)
    assert audit_run(run).as_dict()["completions_in_next_prompt"]["unverified"] == 2
    checkpoint = run / "checkpoints" / "rl"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text(json.dumps({"vocab_size": 400, "num_experts": 8}))
    chat.tokenizer.save(str(checkpoint / "tokenizer.json"))
    report = audit_run(run)
    places = report.as_dict()["completions_in_next_prompt"]
    assert (places["same_text"], places["gone"], places["unverified"]) == (1, 1, 0)
    assert report.as_dict()["drift_outside_loss_region"] > 0 == report.as_dict()["drift_inside_loss_region"]
    assert not report.findings


def test_a_folder_without_rollouts_is_refused(tmp_path):
    with pytest.raises(RunError, match="holds no rollouts"):
        audit_run(tmp_path)
    with pytest.raises(RunError, match="holds no rollouts"):
        audit_run(tmp_path / "nowhere")


def test_the_audit_needs_no_torch(run):
    script = (
        "import sys; from pathlib import Path; from t1.training.offline_audit import audit_run\n"
        f"audit_run(Path({str(run)!r})); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_finding_beyond_the_first_twenty_is_counted_not_printed(run, chat):
    prompt = chat.opening()
    broken = []
    for member in range(25):
        rollout = replace(chat.rollout(chat.turns([(prompt, chat.said("ls"))])), id=RolloutId("task", 0, member))
        (trajectory,) = assemble(rollout.id, rollout.turns)
        broken.append((rollout, replace(trajectory, logprobs=np.zeros_like(trajectory.logprobs))))
    write_step(run / "rollouts" / "rl-00002.parquet", *map(list, zip(*broken, strict=True)))
    report = audit_run(run)
    assert report.num_errors == 25
    assert "… and 5 more" in str(report)
