"""A checkpoint goes on bit for bit, appears whole or not at all, and refuses what does not fit."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from t1.config import load_config
from t1.errors import CheckpointError, ConfigError
from t1.training.checkpoints import checkpoint_path, latest_checkpoint, policy_at, prune_checkpoints
from t1.training.config import PPOConfig, SFTConfig
from t1.training.critic import Critic
from t1.training.ppo import PPOTrainer
from t1.training.sft import SFTTrainer
from t1.types import Trajectory
from t1.workshop import model_path

Make = Callable[..., Trajectory]


def _ppo(policy: PreTrainedModel, **options: Any) -> PPOTrainer:
    config = PPOConfig(critic_warmup_steps=1, num_minibatches=2, lr=1e-3, replay_routing=False)
    return PPOTrainer(policy, Critic.from_policy(policy), config, **options)


def _fresh_like(model: PreTrainedModel) -> PreTrainedModel:
    """The same architecture with other weights."""
    torch.manual_seed(99)
    return type(model)(model.config)


def test_resume_is_bit_equal(moe: PreTrainedModel, make_trajectory: Make, tmp_path: Path) -> None:
    """Case P3: weights of both nets, both Adams, the random split into minibatches, the warm-up counter."""
    rollouts = [((make_trajectory(i),), float(i % 2)) for i in range(6)]
    straight = _ppo(moe)
    straight.step(rollouts)
    straight.step(rollouts)
    straight.save(tmp_path / "here")
    resumed = _ppo(_fresh_like(moe))
    resumed.load(tmp_path / "here")
    for _ in range(2):
        ours, theirs = resumed.step(rollouts), straight.step(rollouts)
        assert {k: v for k, v in ours.items() if k[-2:] != "_s"} == {k: v for k, v in theirs.items() if k[-2:] != "_s"}
    for net in ("policy", "critic"):
        ours_state, theirs_state = getattr(resumed, net).state_dict(), getattr(straight, net).state_dict()
        assert all(torch.equal(weight, theirs_state[name]) for name, weight in ours_state.items())


def test_sft_resumes_bit_equal_too(moe: PreTrainedModel, make_trajectory: Make, tmp_path: Path) -> None:
    demonstrations = [make_trajectory(i) for i in range(3)]
    straight = SFTTrainer(moe, SFTConfig())
    straight.step(demonstrations)
    straight.save(tmp_path / "here")
    resumed = SFTTrainer(_fresh_like(moe), SFTConfig())
    resumed.load(tmp_path / "here")
    assert resumed.num_steps == 1
    assert resumed.step(demonstrations)["loss"] == straight.step(demonstrations)["loss"]
    for (_, ours), (_, theirs) in zip(resumed.model.named_parameters(), moe.named_parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_policy_loads_with_transformers_and_has_its_tokenizer(
    moe: PreTrainedModel, make_trajectory: Make, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "tokenizer.json").write_text("{}")
    _ppo(moe).save(tmp_path / "here", tokenizer_from=tmp_path / "source")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "here")
    for name, weight in moe.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight)
    assert (tmp_path / "here" / "tokenizer.json").read_text() == "{}"


def test_a_checkpoint_of_another_shape_is_refused_with_both_shapes(moe: PreTrainedModel, tmp_path: Path) -> None:
    _ppo(moe).save(tmp_path / "here")
    config = type(moe.config)(**{**moe.config.to_dict(), "vocab_size": 50})
    larger = type(moe)(config)
    trainer = _ppo(larger)
    before = {name: weight.clone() for name, weight in larger.state_dict().items()}
    with pytest.raises(CheckpointError, match=r"embed_tokens.*expected \[50, 32\], got \[48, 32\]"):
        trainer.load(tmp_path / "here")
    assert all(torch.equal(weight, before[name]) for name, weight in larger.state_dict().items())


def test_a_checkpoint_of_another_architecture_is_refused(
    moe: PreTrainedModel, dense: PreTrainedModel, tmp_path: Path
) -> None:
    _ppo(moe).save(tmp_path / "here")
    with pytest.raises(CheckpointError, match="holds a qwen3_moe model, this run has qwen3"):
        _ppo(dense).load(tmp_path / "here")


def test_another_normalizer_is_refused(moe: PreTrainedModel, tmp_path: Path) -> None:
    """Design law 5: one number for the whole run."""
    _ppo(moe, normalizer=5.0).save(tmp_path / "here")
    with pytest.raises(CheckpointError, match=r"normalizer is 5\.0, this run has 6\.0"):
        _ppo(moe, normalizer=6.0).load(tmp_path / "here")


def test_ppo_does_not_resume_from_sft(moe: PreTrainedModel, tmp_path: Path) -> None:
    SFTTrainer(moe, SFTConfig()).save(tmp_path / "here")
    with pytest.raises(CheckpointError, match="holds no critic"):
        _ppo(moe).load(tmp_path / "here")


def test_the_latest_complete_checkpoint_is_found_after_a_kill(moe: PreTrainedModel, tmp_path: Path) -> None:
    trainer = _ppo(moe)
    for step in (1, 2, 3, 4):
        trainer.save(checkpoint_path(tmp_path, step))
    (checkpoint_path(tmp_path, 4) / "manifest.json").unlink()
    (checkpoint_path(tmp_path, 3) / "critic.safetensors").write_bytes(b"half")
    (tmp_path / ".step-000005.partial").mkdir()
    assert latest_checkpoint(tmp_path) == checkpoint_path(tmp_path, 2)
    with pytest.raises(CheckpointError, match=r"critic\.safetensors is not as it was written"):
        trainer.load(checkpoint_path(tmp_path, 3))
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        trainer.load(checkpoint_path(tmp_path, 4))


def test_a_run_stands_for_its_newest_policy_and_a_checkpoint_for_itself(moe: PreTrainedModel, tmp_path: Path) -> None:
    checkpoints = tmp_path / "run" / "checkpoints"
    sft, last = checkpoints / "sft", checkpoint_path(checkpoints / "rl", 2)
    SFTTrainer(moe, SFTConfig()).save(sft)
    assert policy_at(tmp_path / "run") == sft
    for step in (1, 2):
        _ppo(moe).save(checkpoint_path(checkpoints / "rl", step))
    assert {policy_at(path) for path in (tmp_path / "run", checkpoints, checkpoints / "rl", last)} == {last}
    assert policy_at(sft) == sft and policy_at(tmp_path / "no such") == tmp_path / "no such"


def test_a_model_path_names_one_checkpoint(moe: PreTrainedModel, tmp_path: Path) -> None:
    """It is kept in the run's configuration, and the newest of a folder is another one tomorrow."""
    _ppo(moe).save(checkpoint_path(tmp_path, 7))
    with pytest.raises(ConfigError, match=r"holds checkpoints, and it names one: .*step-000007"):
        model_path(load_config(None, [f"model.path={tmp_path}"]))


def test_an_empty_directory_has_no_checkpoint(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "missing") is None


@pytest.mark.parametrize("room", [2_000, 100_000])
def test_a_disk_that_is_full_leaves_the_earlier_checkpoint_and_nothing_else(
    room: int, moe: PreTrainedModel, make_trajectory: Make, tmp_path: Path
) -> None:
    """The kernel refuses to let a file grow past `room` bytes: in the weights, or in the optimizers after them."""
    trainer = _ppo(moe)
    trainer.step([((make_trajectory(0),), 1.0)])
    trainer.save(tmp_path / "here")
    digest = (tmp_path / "here" / "manifest.json").read_text()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with pytest.raises(CheckpointError, match="earlier checkpoints are untouched"):
            trainer.save(tmp_path / "here")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "here" / "manifest.json").read_text() == digest
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_saving_again_replaces(moe: PreTrainedModel, make_trajectory: Make, tmp_path: Path) -> None:
    trainer = _ppo(moe)
    trainer.save(tmp_path / "here")
    trainer.step([((make_trajectory(0),), 1.0)])
    trainer.save(tmp_path / "here")
    assert json.loads((tmp_path / "here" / "progress.json").read_text())["num_steps"] == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["here"]


def test_pruning_keeps_the_newest(moe: PreTrainedModel, tmp_path: Path) -> None:
    for step in (1, 9, 10):
        SFTTrainer(moe, SFTConfig()).save(checkpoint_path(tmp_path, step))
    prune_checkpoints(tmp_path, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000009", "step-000010"]
