"""PPO on token trajectories: score, advantages, a few minibatch updates of a policy and of its critic.

Boundary: rewarded trajectories in, better weights and metrics out. The maths is `t1.ppo`; where rollouts come from and
who gets the new weights is the loop's business.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from t1.errors import RoutingError
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
from t1.routing.replay import replaying, routers
from t1.training.attention import attend_within_segments
from t1.training.batches import Batch, Rewarded
from t1.training.checkpoints import load_checkpoint, save_checkpoint
from t1.training.config import PPOConfig
from t1.training.critic import Critic
from t1.training.forward import action_logprobs, pack_limit
from t1.training.optimization import adamw, set_rate, take_step
from t1.training.packs import Pack


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """A batch, what the nets said about it before it changed them, and the credit that follows."""

    batch: Batch
    old_logprobs: Tensor
    """float32[A] of the policy that the update starts from, routes replayed."""
    values: Tensor
    """float32[A]"""
    advantages: Tensor
    """float32[A] for the policy, whitened where the config says so."""
    returns: Tensor
    """float32[A] targets of the critic."""
    logprobs: Tensor
    """float32[A] of the policy when it last learned from each action; the old ones until then."""


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
        self._replays = config.replay_routing and bool(routers(policy))
        self.temperature, self.normalizer = temperature, normalizer
        self.policy_optimizer = adamw(policy, lr=config.lr, weight_decay=config.weight_decay)
        self.critic_optimizer = adamw(critic, lr=config.critic_lr, weight_decay=config.weight_decay)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.num_steps = 0
        """Steps taken so far, critic warm-up included."""

    def step(self, rollouts: Sequence[Rewarded]) -> dict[str, float]:
        """Score → advantages → epochs × minibatches. Returns the step's metrics.

        The policy does not score the first minibatch beforehand: that one's own forward runs at the weights that the
        update starts from, so its log-probabilities are the old ones (see `_update_policy`).
        """
        started = time.perf_counter()
        batch = Batch.of(rollouts)
        self.critic.start_at(batch.mean_reward)
        minibatches = self._minibatches(batch)
        moves = self.num_steps >= self.config.critic_warmup_steps
        scored = self._credit(
            batch, self._logprobs(batch, minibatches[1:] if moves else minibatches), self._values(batch, minibatches)
        )
        halfway = time.perf_counter()
        updates = self._update(scored, minibatches, moves=moves)
        self.num_steps += 1
        return {
            **gap(scored.old_logprobs, batch.sampler_logprobs),
            **updates,
            "explained_variance": explained_variance(scored.values, scored.returns),
            "value_mean": float(scored.values.mean()),
            "return_mean": float(scored.returns.mean()),
            "num_rollouts": float(len(batch.segments)),
            "num_actions": float(batch.num_actions),
            "num_tokens": float(batch.num_tokens),
            "score_s": halfway - started,
            "update_s": time.perf_counter() - halfway,
        }

    def score(self, batch: Batch) -> Scored:
        """What the nets say about every action, and its credit; nothing is changed."""
        packs = batch.packs(range(len(batch.segments)), max_tokens=self._pack_limit)
        return self._credit(batch, self._logprobs(batch, [packs]), self._values(batch, [packs]))

    @torch.no_grad()
    def _logprobs(self, batch: Batch, minibatches: Sequence[Sequence[Pack]]) -> Tensor:
        """float32[A] by the policy with routes replayed; 0 where no pack has the action."""
        logprobs = torch.zeros(batch.num_actions)
        for part in self._on_device(pack for packs in minibatches for pack in packs):
            with self._replaying(part):
                logprobs[part.slots.cpu()] = action_logprobs(self.policy, part, temperature=self.temperature).cpu()
        return logprobs

    @torch.no_grad()
    def _values(self, batch: Batch, minibatches: Sequence[Sequence[Pack]]) -> Tensor:
        """float32[A] by the critic."""
        values = torch.zeros(batch.num_actions)
        for part in self._on_device(pack for packs in minibatches for pack in packs):
            values[part.slots.cpu()] = self.critic(part).cpu()
        return values

    def _credit(self, batch: Batch, old_logprobs: Tensor, values: Tensor) -> Scored:
        """Decoupled GAE: one λ for the policy's advantages, another for the critic's targets."""
        advantages, residuals = (
            self._gae(batch, values, lam) for lam in (self.config.lam_policy, self.config.lam_critic)
        )
        return Scored(
            batch=batch,
            old_logprobs=old_logprobs,
            values=values,
            advantages=whiten(advantages) if self.config.whiten else advantages,
            returns=residuals + values,
            logprobs=old_logprobs.clone(),
        )

    def _gae(self, batch: Batch, values: Tensor, lam: float) -> Tensor:
        """float32[A], by token or by turn as the config says."""
        gamma, lengths = self.config.gamma, batch.lengths
        if self.config.credit == "turn":
            return turn_gae(batch.rewards, values, batch.turns, gamma=gamma, lam=lam, lengths=lengths)
        return gae(batch.rewards, values, gamma=gamma, lam=lam, lengths=lengths)

    @property
    def _pack_limit(self) -> int:
        return pack_limit(self.policy, self.config.max_pack_tokens)

    def _minibatches(self, batch: Batch) -> list[list[Pack]]:
        """A fresh random split of the batch."""
        return batch.minibatches(self.config.num_minibatches, max_tokens=self._pack_limit, generator=self.generator)

    def _on_device(self, packs: Iterable[Pack]) -> Iterator[Pack]:
        """The packs, one at a time, where the policy is."""
        return (pack.to(self.policy.device) for pack in packs)

    def _replaying(self, part: Pack) -> AbstractContextManager[Any]:
        """A context, for forward *and* backward, in which the policy routes each token as its sampler did."""
        if not self._replays:
            return nullcontext()
        if part.routing is None:
            raise RoutingError("a Mixture-of-Experts policy learns from recorded routes; these trajectories have none")
        return replaying(self.policy, part.routing)

    def _update(self, scored: Scored, minibatches: list[list[Pack]], *, moves: bool) -> dict[str, float]:
        """Every epoch over every minibatch; unless it `moves`, the policy waits for the critic to warm up."""
        entries = []
        for epoch in range(self.config.epochs):
            for index, packs in enumerate(self._minibatches(scored.batch) if epoch else minibatches):
                entry = {"loss": 0.0, "grad_norm": 0.0}
                if moves:
                    entry = self._update_policy(packs, scored, untouched=epoch == index == 0)
                entries.append(entry | self._update_critic(packs, scored))
        means = {name: sum(entry[name] for entry in entries) / len(entries) for name in entries[0]}
        drift = policy_drift(
            scored.logprobs,
            scored.old_logprobs,
            scored.advantages,
            clip_low=self.config.clip_low,
            clip_high=self.config.clip_high,
        )
        return {**means, **drift, "policy_updates": float(len(entries) * moves)}

    def _update_policy(self, packs: Sequence[Pack], scored: Scored, *, untouched: bool) -> dict[str, float]:
        """One optimizer step of the policy on one minibatch; routes are replayed forward and backward.

        While the weights are `untouched`, what the policy says now is also what the update starts from.
        """
        num_actions, total = sum(p.num_actions for p in packs), 0.0
        for part in self._on_device(packs):
            slots = part.slots.cpu()
            with self._replaying(part):
                logprobs = action_logprobs(self.policy, part, temperature=self.temperature)
                scored.logprobs[slots] = logprobs.detach().cpu()
                if untouched:
                    scored.old_logprobs[slots] = scored.logprobs[slots]
                loss = token_mean(self._policy_loss(logprobs, slots, scored), num_actions=num_actions)
                torch.autograd.backward(loss)
            total += float(loss.detach())
        return {"loss": total, "grad_norm": take_step(self.policy_optimizer, grad_clip=self.config.grad_clip)}

    def _policy_loss(self, logprobs: Tensor, slots: Tensor, scored: Scored) -> Tensor:
        """The clipped loss [a] of the actions at `slots` int64[a], from their `logprobs` [a]."""
        config, old = self.config, scored.old_logprobs[slots].to(logprobs.device)
        weights = None
        if config.importance_cap is not None:
            sampled = scored.batch.sampler_logprobs[slots].to(logprobs.device)
            weights = importance_weights(old, sampled, cap=config.importance_cap)
        return policy_loss(
            logprobs,
            old,
            scored.advantages[slots].to(logprobs.device),
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            weights=weights,
        )

    def _update_critic(self, packs: Sequence[Pack], scored: Scored) -> dict[str, float]:
        """One optimizer step of the critic on one minibatch."""
        num_actions, total = sum(p.num_actions for p in packs), 0.0
        for part in self._on_device(packs):
            slots, values = part.slots.cpu(), self.critic(part)
            per_action = value_loss(
                values,
                scored.returns[slots].to(values.device),
                old_values=scored.values[slots].to(values.device),
                clip=self.config.value_clip,
            )
            loss = token_mean(per_action, num_actions=num_actions)
            torch.autograd.backward(loss)
            total += float(loss.detach())
        grad_norm = take_step(self.critic_optimizer, grad_clip=self.config.grad_clip)
        return {"value_loss": total, "critic_grad_norm": grad_norm}

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
        set_rate(self.policy_optimizer, self.config.lr)
        set_rate(self.critic_optimizer, self.config.critic_lr)

    @property
    def _optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {"policy": self.policy_optimizer, "critic": self.critic_optimizer}

    def weights(self) -> Mapping[str, Any]:
        """The policy's weights by name: live tensors, to be copied before the next step."""
        return {name: weight.detach() for name, weight in self.policy.state_dict().items()}
