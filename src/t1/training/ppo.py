"""PPO on token trajectories: score, advantages, a few minibatch updates of a policy and of its critic.

Boundary: rewarded trajectories in, better weights and metrics out. The maths is `t1.ppo`; where rollouts come from and
who gets the new weights is the loop's business.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from t1.ppo import (
    explained_variance,
    gae,
    gap,
    importance_weights,
    policy_drift,
    policy_loss,
    token_mean,
    turn_gae,
    value_loss,
    whiten,
)
from t1.training.attention import attend_within_segments
from t1.training.batches import Batch, Rewarded
from t1.training.checkpoints import load_checkpoint, save_checkpoint
from t1.training.config import PPOConfig
from t1.training.critic import Critic
from t1.training.forward import action_logprobs, pack_limit, replay
from t1.training.optimization import adamw, take_step
from t1.training.packs import Pack


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What the nets said about a batch before it changed them."""

    old_logprobs: Tensor
    """float32[A] of the policy that the update starts from, routes replayed."""
    values: Tensor
    """float32[A]"""


@dataclass(frozen=True, slots=True, eq=False)
class Credit:
    """What each action is told."""

    advantages: Tensor
    """float32[A] for the policy, whitened where the config says so."""
    returns: Tensor
    """float32[A] targets of the critic."""


class PPOTrainer:
    """Owns both optimizers. The nets are changed in place and attend within segments from now on."""

    def __init__(
        self,
        policy: PreTrainedModel,
        critic: Critic,
        config: PPOConfig,
        *,
        temperature: float = 1.0,
        normalizer: float | None = None,
    ) -> None:
        """`temperature`: that of sampling. `normalizer`: of the run's rewards; a checkpoint of another is refused."""
        attend_within_segments(policy)
        attend_within_segments(critic.body)
        if config.activation_checkpointing:
            nets: tuple[Any, ...] = (policy, critic.body)
            for net in nets:
                net.activation_checkpointing_enable({"use_reentrant": False})
        self.policy, self.critic, self.config = policy.train(), critic.train(), config
        self.temperature, self.normalizer = temperature, normalizer
        self.policy_optimizer = adamw(policy, lr=config.lr, weight_decay=config.weight_decay)
        self.critic_optimizer = adamw(critic, lr=config.critic_lr, weight_decay=config.weight_decay)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.num_steps = 0
        """Steps taken so far, critic warm-up included."""

    def step(self, rollouts: Sequence[Rewarded]) -> dict[str, float]:
        """Score → advantages → epochs × minibatches. Returns the step's metrics."""
        started = time.perf_counter()
        batch = Batch.of(rollouts)
        minibatches = self._minibatches(batch)
        scores = self.score(batch, [p for packs in minibatches for p in packs])
        credit = self.credit(batch, scores)
        scored = time.perf_counter()
        updates = self._update(batch, scores, credit, minibatches)
        self.num_steps += 1
        return {
            **gap(scores.old_logprobs, batch.sampler_logprobs),
            **updates,
            "explained_variance": explained_variance(scores.values, credit.returns),
            "value_mean": float(scores.values.mean()),
            "return_mean": float(credit.returns.mean()),
            "num_rollouts": float(len(batch.segments)),
            "num_actions": float(batch.num_actions),
            "num_tokens": float(batch.num_tokens),
            "score_s": scored - started,
            "update_s": time.perf_counter() - scored,
        }

    @torch.no_grad()
    def score(self, batch: Batch, packs: Sequence[Pack] | None = None) -> Scores:
        """Old log-probabilities and values of every action, from `packs` that cover the batch (default: fresh ones)."""
        if packs is None:
            packs = batch.packs(range(len(batch.segments)), max_tokens=self._pack_limit)
        old_logprobs, values = torch.zeros(batch.num_actions), torch.zeros(batch.num_actions)
        for part in packs:
            part = part.to(self.policy.device)
            with replay(self.policy, part):
                logprobs = action_logprobs(self.policy, part, temperature=self.temperature)
            old_logprobs[part.slots.cpu()] = logprobs.cpu()
            values[part.slots.cpu()] = self.critic(part).cpu()
        return Scores(old_logprobs, values)

    def credit(self, batch: Batch, scores: Scores) -> Credit:
        """Decoupled GAE: one λ for the policy's advantages, another for the critic's targets."""
        config, values = self.config, scores.values
        advantages, targets = (
            gae(batch.rewards, values, gamma=config.gamma, lam=lam, lengths=batch.lengths)
            if config.credit == "token"
            else turn_gae(batch.rewards, values, batch.turns, gamma=config.gamma, lam=lam, lengths=batch.lengths)
            for lam in (config.lam_policy, config.lam_critic)
        )
        return Credit(whiten(advantages) if config.whiten else advantages, targets + values)

    @property
    def _pack_limit(self) -> int:
        return pack_limit(self.policy, self.config.max_pack_tokens)

    def _minibatches(self, batch: Batch) -> list[list[Pack]]:
        """A fresh random split of the batch."""
        return batch.minibatches(self.config.num_minibatches, max_tokens=self._pack_limit, generator=self.generator)

    def _update(self, batch: Batch, scores: Scores, credit: Credit, minibatches: list[list[Pack]]) -> dict[str, float]:
        """Every epoch over every minibatch; the policy stays where it is while the critic warms up."""
        moves = self.num_steps >= self.config.critic_warmup_steps
        logprobs, losses = scores.old_logprobs.clone(), []
        for epoch in range(self.config.epochs):
            for packs in self._minibatches(batch) if epoch else minibatches:
                losses.append(self._update_on(packs, batch, scores, credit, logprobs, moves=moves))
        means = {name: sum(entry[name] for entry in losses) / len(losses) for name in losses[0]}
        drift = policy_drift(
            logprobs,
            scores.old_logprobs,
            credit.advantages,
            clip_low=self.config.clip_low,
            clip_high=self.config.clip_high,
        )
        return {**means, **drift, "policy_updates": float(len(losses) * moves)}

    def _update_on(
        self, packs: list[Pack], batch: Batch, scores: Scores, credit: Credit, logprobs: Tensor, *, moves: bool
    ) -> dict[str, float]:
        """One optimizer step of each net on one minibatch; writes the policy's log-probabilities to `logprobs` [A]."""
        num_actions = sum(p.num_actions for p in packs)
        policy_total = value_total = 0.0
        for part in packs:
            part = part.to(self.policy.device)
            if moves:
                policy_total += self._policy_backward(part, batch, scores, credit, logprobs, num_actions)
            value_total += self._critic_backward(part, scores, credit, num_actions)
        grad_clip = self.config.grad_clip
        return {
            "loss": policy_total,
            "value_loss": value_total,
            "grad_norm": take_step(self.policy_optimizer, grad_clip=grad_clip) if moves else 0.0,
            "critic_grad_norm": take_step(self.critic_optimizer, grad_clip=grad_clip),
        }

    def _policy_backward(
        self, part: Pack, batch: Batch, scores: Scores, credit: Credit, logprobs: Tensor, num_actions: int
    ) -> float:
        """Add the policy's gradient of one pack; routes are replayed forward and backward."""
        config, slots, device = self.config, part.slots.cpu(), self.policy.device
        old = scores.old_logprobs[slots]
        weights = None
        if config.importance_cap is not None:
            weights = importance_weights(old, batch.sampler_logprobs[slots], cap=config.importance_cap).to(device)
        with replay(self.policy, part):
            new = action_logprobs(self.policy, part, temperature=self.temperature)
            per_action = policy_loss(
                new,
                old.to(device),
                credit.advantages[slots].to(device),
                clip_low=config.clip_low,
                clip_high=config.clip_high,
                weights=weights,
            )
            loss = token_mean(per_action, num_actions=num_actions)
            torch.autograd.backward(loss)
        logprobs[slots] = new.detach().cpu()
        return float(loss.detach())

    def _critic_backward(self, part: Pack, scores: Scores, credit: Credit, num_actions: int) -> float:
        """Add the critic's gradient of one pack."""
        slots, device = part.slots.cpu(), self.policy.device
        per_action = value_loss(
            self.critic(part),
            credit.returns[slots].to(device),
            old_values=scores.values[slots].to(device),
            clip=self.config.value_clip,
        )
        loss = token_mean(per_action, num_actions=num_actions)
        torch.autograd.backward(loss)
        return float(loss.detach())

    def save(self, path: Path, *, tokenizer_from: Path | None = None) -> None:
        """Write everything that going on needs to `path`, all or nothing."""
        save_checkpoint(
            path,
            policy=self.policy,
            critic=self.critic,
            optimizers=self._optimizers,
            generators={"minibatches": self.generator},
            progress={"num_steps": self.num_steps, "normalizer": self.normalizer},
            tokenizer_from=tokenizer_from,
        )

    def load(self, path: Path) -> None:
        """Go on bit for bit where `save` was called. Raises CheckpointError, with nothing changed, if it cannot be."""
        progress = load_checkpoint(
            path,
            policy=self.policy,
            critic=self.critic,
            optimizers=self._optimizers,
            generators={"minibatches": self.generator},
            expect={"normalizer": self.normalizer},
        )
        self.num_steps = progress["num_steps"]

    @property
    def _optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {"policy": self.policy_optimizer, "critic": self.critic_optimizer}

    def weights(self) -> Mapping[str, Any]:
        """The policy's weights by name: live tensors, to be copied before the next step."""
        return {name: weight.detach() for name, weight in self.policy.state_dict().items()}
