"""FSDP over NCCL on real devices learns what one process learns on the CPU, in float32 and in half precision.

One GPU is a group of one rank, which still shards, gathers and speaks NCCL; with two or more there are two ranks.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from t1.inference.models import load_model
from t1.testing.loading import learn, plan
from t1.testing.ranked import policy, trajectory
from t1.training.critic import Critic
from t1.training.parallel.launch import on_ranks
from t1.training.ppo import PPOTrainer

pytestmark = pytest.mark.gpu
SAME = ("loss", "value_loss", "grad_norm", "critic_grad_norm", "gap", "explained_variance")
WORLD = min(2, max(1, torch.cuda.device_count()))
TIMEOUT_S = 300.0


def on_devices(saved: Path, published: Path, **how: Any) -> list[Any]:
    """What each rank reports after two steps on its GPU."""
    cuda = replace(plan(saved, published, world=WORLD, **how), device_type="cuda")
    return on_ranks(WORLD, learn, cuda, 2, timeout_s=TIMEOUT_S, device_type="cuda")


def on_the_cpu(saved: Path) -> list[dict[str, float]]:
    """The same steps of one process."""
    model = load_model(saved)
    trainer = PPOTrainer(model, Critic.from_policy(model), plan(saved, saved, world=1).ppo)
    rollouts = [((trajectory(i, length=length),), float(i % 3)) for i, length in enumerate((18, 21, 24, 27, 30))]
    return [trainer.step(rollouts) for _ in range(2)]


@pytest.mark.parametrize("experts", [1, WORLD])
def test_ranks_on_gpus_learn_what_one_process_learns(tmp_path: Path, experts: int) -> None:
    saved = tmp_path / "saved"
    policy("moe").save_pretrained(saved)
    reports = on_devices(saved, tmp_path / "published", experts=experts)
    for ours, theirs in zip(reports[0][0], on_the_cpu(saved), strict=True):
        for name in SAME:
            assert ours[name] == pytest.approx(theirs[name], rel=1e-2, abs=1e-4), name
    for name, weight in load_model(saved).state_dict().items():
        np.testing.assert_array_equal(reports[0][1][f"before.{name}"], weight.numpy(), err_msg=name)


def test_half_precision_stays_near_and_keeps_full_weights(tmp_path: Path) -> None:
    """The gap between bfloat16 and float32 on this device, at the same weights and routes, is below 0.05 nats."""
    saved = tmp_path / "saved"
    policy("moe").save_pretrained(saved)
    half = on_devices(saved, tmp_path / "half", compute_dtype="bfloat16")
    full = on_devices(saved, tmp_path / "full")
    assert half[0][0][0]["gap"] != full[0][0][0]["gap"], "nothing was computed in half precision"
    assert half[0][0][0]["gap"] == pytest.approx(full[0][0][0]["gap"], abs=0.05)
    assert {array.dtype for array in half[0][1].values()} == {np.dtype(np.float32)}
