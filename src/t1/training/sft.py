"""Supervised fine-tuning: mean negative log-likelihood of the action tokens of demonstrations.

Boundary: trajectories in, metrics out. Sampler log-probabilities and routes are not looked at: nobody sampled a
demonstration, and the model routes it itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from t1.ppo import token_mean
from t1.training.attention import attend_within_segments
from t1.training.checkpoints import load_checkpoint, save_checkpoint
from t1.training.config import SFTConfig
from t1.training.forward import action_logprobs, pack_limit
from t1.training.optimization import adamw, set_rate, take_step
from t1.training.packs import pack
from t1.types import Trajectory


class SFTTrainer:
    """Owns the model's optimizer. The model is changed in place and attends within segments from now on."""

    def __init__(self, model: PreTrainedModel, config: SFTConfig) -> None:
        attend_within_segments(model)
        self.model, self.config = model.train(), config
        self.optimizer = adamw(model, lr=config.lr, weight_decay=config.weight_decay)
        self.num_steps = 0
        """Steps taken so far."""

    def step(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """One update on all of these trajectories: L = −Σ log π(action) / num_actions, however they are packed."""
        started = time.perf_counter()
        packs = pack(trajectories, max_tokens=pack_limit(self.model, self.config.max_pack_tokens))
        num_actions = sum(p.num_actions for p in packs)
        if num_actions == 0:
            raise ValueError("sft: expected at least one trajectory, got none")
        total = 0.0
        for part in packs:
            part = part.to(self.model.device)
            loss = token_mean(-action_logprobs(self.model, part), num_actions=num_actions)
            torch.autograd.backward(loss)
            total += float(loss.detach())
        grad_norm = take_step(self.optimizer, grad_clip=self.config.grad_clip)
        self.num_steps += 1
        return {
            "loss": total,
            "grad_norm": grad_norm,
            "num_actions": float(num_actions),
            "num_tokens": float(sum(p.num_tokens for p in packs)),
            "update_s": time.perf_counter() - started,
        }

    @torch.no_grad()
    def loss(self, trajectories: Sequence[Trajectory]) -> float:
        """The same mean negative log-likelihood, without an update: for held-out demonstrations."""
        packs = pack(trajectories, max_tokens=pack_limit(self.model, self.config.max_pack_tokens))
        total = sum(float(action_logprobs(self.model, p.to(self.model.device)).sum()) for p in packs)
        return -total / sum(p.num_actions for p in packs)

    def save(self, path: Path, *, tokenizer_from: Path | None = None) -> None:
        """Write everything that going on needs to `path`, all or nothing."""
        save_checkpoint(
            path,
            policy=self.model,
            optimizers={"policy": self.optimizer},
            progress={"num_steps": self.num_steps},
            tokenizer_from=tokenizer_from,
        )

    def load(self, path: Path) -> None:
        """Go on bit for bit where `save` was called. Raises CheckpointError, with nothing changed, if it cannot be."""
        progress = load_checkpoint(path, policy=self.model, optimizers={"policy": self.optimizer})
        self.num_steps = progress["num_steps"]
        set_rate(self.optimizer, self.config.lr)

    def weights(self) -> Mapping[str, Any]:
        """The model's weights by name: live tensors, to be copied before the next step."""
        return {name: weight.detach() for name, weight in self.model.state_dict().items()}
