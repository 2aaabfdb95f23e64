"""Ranks that begin with a directory: the same trainer as from a whole model, in a fraction of its memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from t1.errors import InfrastructureError
from t1.inference.models import load_model
from t1.testing.loading import learn, plan
from t1.testing.ranked import policy, trajectory
from t1.training.critic import Critic
from t1.training.parallel.launch import on_ranks
from t1.training.ppo import PPOTrainer

TIMEOUT_S = 300.0
SAME = ("loss", "value_loss", "grad_norm", "critic_grad_norm", "gap", "explained_variance")
STEPS = 2


def alone(path: Path) -> list[dict[str, float]]:
    """What one process that loads the whole model makes of the same rollouts."""
    torch.set_num_threads(1)
    model = load_model(path)
    trainer = PPOTrainer(model, Critic.from_policy(model), plan(path, path, world=1).ppo)
    rollouts = [((trajectory(i, length=length),), float(i % 3)) for i, length in enumerate((18, 21, 24, 27, 30))]
    return [trainer.step(rollouts) for _ in range(STEPS)]


@pytest.mark.parametrize(("family", "how"), [("moe", {}), ("hybrid", {"experts": 2}), ("moe", {"apart": 1})], ids=str)
def test_ranks_learn_from_a_directory_what_one_process_learns(tmp_path: Path, family: str, how: dict[str, Any]) -> None:
    saved, published_in = tmp_path / "saved", tmp_path / "published"
    policy(family).save_pretrained(saved)
    plans = plan(saved, published_in, world=2, **how)
    reports = on_ranks(2 + how.get("apart", 0), learn, plans, STEPS, timeout_s=TIMEOUT_S)
    reference = alone(saved)
    for metrics, _ in reports:
        for ours, theirs in zip(metrics, reference, strict=True):
            for name in SAME:
                assert ours[name] == pytest.approx(theirs[name], rel=1e-3, abs=1e-5), name
    published = reports[0][1]
    for name, weight in load_model(saved).state_dict().items():
        np.testing.assert_array_equal(published[f"before.{name}"], weight.numpy(), err_msg=name)
        assert not (published[f"after.{name}"] == weight.numpy()).all(), f"{name} did not move"
    assert sorted(path.name for path in published_in.iterdir()) == ["v0", f"v{STEPS}"]


def test_a_file_without_a_weight_is_refused_by_name(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    policy("moe").save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    weights.pop("model.layers.1.self_attn.q_proj.weight")
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(InfrastructureError, match=r"CheckpointError.*no weights for 1 .*layers\.1\.self_attn\.q_proj"):
        on_ranks(2, learn, plan(tmp_path, tmp_path, world=2), 1, timeout_s=TIMEOUT_S)
