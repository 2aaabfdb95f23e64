"""The trainer in each process of several: made from a directory alone, and speaking to engines through the disk.

Boundary: one rank's share of a trainer; who starts the ranks and calls them together is the cluster's business.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from t1.errors import InfrastructureError
from t1.inference.models import empty_model, use_threads
from t1.inference.published import PublishedWeights, forget_old, version_path
from t1.training.checkpoints import copy_tokenizer
from t1.training.config import PPOConfig
from t1.training.critic import Critic
from t1.training.parallel.checkpoints import export
from t1.training.parallel.layout import Layout
from t1.training.parallel.loading import load_nets
from t1.training.parallel.ranks import Ranks
from t1.training.ppo import PPOTrainer

KEPT = 2
"""Published versions on the disk: the newest, and the one that an engine may still be reading."""


class PPORank(PPOTrainer):
    """PPO on this rank. Its weights leave it as a directory: no process needs to hold all of them."""

    directory: Path
    """Where versions are published: seen by all ranks and engines under this path."""
    tokenizer_from: Path

    def weights(self) -> Mapping[str, Any]:
        """Write the policy for the engines; every rank calls it, and all get the reference."""
        path = version_path(self.directory, self.num_steps)
        partial = path.with_name(f".{path.name}.partial")
        if self.policy is not None:
            try:
                self._write(partial, path)
            except (OSError, SafetensorError) as error:
                raise InfrastructureError(f"{path}: weights for the engines could not be written: {error}") from error
        return PublishedWeights(path)

    def _write(self, partial: Path, path: Path) -> None:
        """The group's weights, whole or not there at all."""
        assert self.policy is not None
        leads = self.ranks.leads
        if leads:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        export(partial, self.policy, self.nets["policy"])
        if leads:
            copy_tokenizer(self.tokenizer_from, partial)
            shutil.rmtree(path, ignore_errors=True)
            partial.rename(path)
            forget_old(self.directory, keep=KEPT)


@dataclass(frozen=True, slots=True)
class RankPlan:
    """Makes each rank's trainer, inside the open process group. Can be sent to other machines."""

    path: Path
    """Hugging Face directory that policy and critic begin with; seen by every rank."""
    ppo: PPOConfig
    temperature: float
    normalizer: float | None
    policy: Layout
    critic: Layout | None
    """Of the critic's own ranks, which follow the policy's; None = it shares theirs."""
    directory: Path
    """Where the policy is published."""
    device_type: str = "cpu"
    num_threads: int = 1

    def __call__(self, rank: int, world: int) -> PPORank:
        """The trainer of this rank. No process ever holds more than its shards and one layer."""
        use_threads(self.num_threads)
        ranks, has_policy, has_critic = self._open()
        model = empty_model(self.path)
        critic = Critic.from_policy(model) if has_critic and self.ppo.baseline == "critic" else None
        policy: Any = empty_model(self.path) if has_policy else None
        trainer = PPORank(
            policy, critic, self.ppo, temperature=self.temperature, normalizer=self.normalizer, ranks=ranks
        )
        trainer.directory, trainer.tokenizer_from = self.directory, self.path
        load_nets(self.path, model, trainer.nets)
        if policy is not None:  # how its names came to be, for its way back
            policy._weight_conversions = getattr(model, "_weight_conversions", None)
        return trainer

    def _open(self) -> tuple[Ranks, bool, bool]:
        """This rank's group, whether it has the policy, whether it has the critic."""
        if self.critic is None:
            return Ranks.open(self.policy, device_type=self.device_type), True, True
        ranks, is_policy = Ranks.open_apart(policy=self.policy, critic=self.critic, device_type=self.device_type)
        return ranks, is_policy, not is_policy
