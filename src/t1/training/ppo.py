"""PPO on token trajectories: score, advantages, a few minibatch updates of a policy and of its critic.

One process, or many: every rank runs this program over the same batch, reads its own packs of it, and has its own
shards of the nets (`ranks.py`, `sharding.py`); the numbers that a step returns are the same on all of them.

Boundary: rewarded trajectories in, better weights and metrics out. The maths is `t1.ppo`; where rollouts come from and
who gets the new weights is the loop's business.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from t1.errors import ConfigError, RoutingError
from t1.ppo import (
    explained_variance,
    gae,
    gap,
    group_advantages,
    importance_weights,
    policy_drift,
    policy_loss,
    token_mean,
    turn_gae,
    value_loss,
    whiten,
)
from t1.routing.replay import capturing, differ, replaying, routers
from t1.training.actor import Actor
from t1.training.attention import attend_within_segments
from t1.training.batches import Batch, Rewarded
from t1.training.checkpoints import load_checkpoint, save_checkpoint
from t1.training.config import PPOConfig
from t1.training.credit import Credit
from t1.training.critic import Critic
from t1.training.forward import pack_limit
from t1.training.gap.alarm import Evidence, lag_of, probe
from t1.training.nets import Net
from t1.training.packs import Pack, Packs
from t1.training.parallel.checkpoints import MODEL, SHARDS, load_sharded, save_sharded
from t1.training.parallel.ranks import ALONE, Ranks


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
    weighed: Tensor
    """bool[A] True where the policy's loss has an importance weight."""

    @property
    def credit(self) -> Credit:
        """What was said of every action, without the batch."""
        return Credit(self.batch.slots, self.old_logprobs, self.values, self.advantages, self.returns)


class PPOTrainer:
    """Owns both optimizers. The nets are changed in place and attend within segments from now on."""

    def __init__(
        self,
        policy: PreTrainedModel | None,
        critic: Critic | None,
        config: PPOConfig,
        *,
        temperature: float = 1.0,
        normalizer: float | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        """`temperature`: that of sampling. `normalizer`: of the run's rewards; a checkpoint of another is refused.

        `ranks`: those that share the nets. Where policy and critic have groups of their own (`Ranks.apart`), a rank
        has the net of its group, and None for the other.
        """
        bodies: list[Any] = [policy, *([critic.body] if critic is not None else [])]
        for body in (body for body in bodies if body is not None):
            attend_within_segments(body)
            if config.activation_checkpointing:
                body.activation_checkpointing_enable({"use_reentrant": False})
        if config.baseline == "group" and critic is not None:
            raise ConfigError("ppo.baseline is group: a critic would learn and nobody would ask it; give none")
        if (policy is None or (critic is None and config.baseline == "critic")) and not ranks.apart:
            raise ConfigError("ppo: policy and critic are both needed, unless their ranks stand in groups apart")
        ranks = ranks.training(next(body for body in bodies if body is not None))
        self.policy, self.critic, self.config, self.ranks = policy, critic, config, ranks
        self._replays = config.replay_routing and policy is not None and bool(routers(policy))
        self._pack_limit = pack_limit(next(body for body in bodies if body is not None), config.max_pack_tokens)
        self.temperature, self.normalizer = temperature, normalizer
        self._actor = None if policy is None else Actor(policy, temperature=temperature).train()
        compute = getattr(torch, config.compute_dtype)
        self.nets = {
            name: Net.of(module.train(), ranks, lr=lr, weight_decay=config.weight_decay, compute=compute)
            for name, module, lr in (("policy", self._actor, config.lr), ("critic", critic, config.critic_lr))
            if module is not None
        }
        self.generator = torch.Generator().manual_seed(config.seed)
        self.num_steps = 0
        """Steps taken so far, critic warm-up included: the version of the weights that the next step begins with."""
        self.gap_evidence: Evidence | None = None
        """What the last step found out about its gap, where that was above `gap_alarm`: see `gap.alarm.diagnose`."""
        self.credit: Credit | None = None
        """What the last step said of every action before it learned."""
        self._flips: list[Tensor] = []
        """bool[M] of each pack of this step: tokens that the policy's own router sends elsewhere than was recorded."""

    def step(self, rollouts: Sequence[Rewarded]) -> dict[str, float]:
        """Score → advantages → epochs × minibatches. Returns the step's metrics.

        The policy does not score the first minibatch beforehand: that one's own forward runs at the weights that the
        update starts from, so its log-probabilities are the old ones (see `_update_policy`).
        """
        started = time.perf_counter()
        self._flips.clear()
        batch = Batch.of(rollouts)
        if self.critic is not None:
            self.critic.start_at(batch.mean_reward)
        minibatches = self._minibatches(batch)
        learned = self.config.baseline == "critic"
        moves = not learned or self.num_steps >= self.config.critic_warmup_steps
        scored = self._credit(
            batch, self._logprobs(batch, minibatches[1:] if moves else minibatches), self._values(batch, minibatches)
        )
        halfway = time.perf_counter()
        updates = self._update(scored, minibatches, moves=moves)
        gaps = gap(scored.old_logprobs, batch.sampler_logprobs) | {"gap_flipped": self._flipped_share()}
        alarming = gaps["gap"] > self.config.gap_alarm
        self.gap_evidence = self._look_into(scored, minibatches) if alarming else None
        self.credit = scored.credit
        self.num_steps += 1
        return {
            **gaps,
            **updates,
            **({"explained_variance": explained_variance(scored.values, scored.returns)} if learned else {}),
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
        packs = batch.packs(range(len(batch.segments)), max_tokens=self._pack_limit, ranks=self.ranks)
        return self._credit(batch, self._logprobs(batch, [packs]), self._values(batch, [packs]))

    @torch.no_grad()
    def _logprobs(self, batch: Batch, minibatches: Sequence[Sequence[Pack]]) -> Tensor:
        """float32[A] by the policy with routes replayed; 0 where no pack has the action."""
        logprobs = torch.zeros(batch.num_actions)
        slots: list[Tensor] = []
        if self._actor is not None:
            for part in self._on_device(pack for packs in minibatches for pack in packs):
                slots.append(part.slots.cpu())
                with self._replaying(part, counts=True):
                    logprobs[slots[-1]] = self._actor(part).cpu()
        self.ranks.spread(logprobs, slots)
        return logprobs

    @torch.no_grad()
    def _values(self, batch: Batch, minibatches: Sequence[Sequence[Pack]]) -> Tensor:
        """float32[A] by the critic."""
        values = torch.zeros(batch.num_actions)
        slots: list[Tensor] = []
        if self.critic is not None:
            for part in self._on_device(pack for packs in minibatches for pack in packs):
                slots.append(part.slots.cpu())
                values[slots[-1]] = self.critic(part).cpu()
        self.ranks.spread(values, slots)
        return values

    def _credit(self, batch: Batch, old_logprobs: Tensor, values: Tensor) -> Scored:
        """Decoupled GAE: one λ for the policy's advantages, another for the critic's targets.

        With the group's mean for a baseline, every action of a rollout gets the rollout's advantage; values are 0.
        """
        if self.config.baseline == "group":
            advantages = group_advantages(batch.returns, batch.groups).repeat_interleave(batch.lengths)
            residuals = batch.returns.repeat_interleave(batch.lengths)
        else:
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
            weighed=self._weighed(batch),
        )

    def _weighed(self, batch: Batch) -> Tensor:
        """bool[A] which actions get an importance weight: those that earlier weights sampled, unless all or none do."""
        which = self.config.importance_weights
        if which == "lagging":
            return torch.from_numpy(lag_of(batch, self.num_steps) > 0)
        return torch.full((batch.num_actions,), which == "all")

    def _gae(self, batch: Batch, values: Tensor, lam: float) -> Tensor:
        """float32[A], by token or by turn as the config says."""
        gamma, lengths = self.config.gamma, batch.lengths
        if self.config.credit == "turn":
            return turn_gae(batch.rewards, values, batch.turns, gamma=gamma, lam=lam, lengths=lengths)
        return gae(batch.rewards, values, gamma=gamma, lam=lam, lengths=lengths)

    def _minibatches(self, batch: Batch) -> list[Packs]:
        """A fresh random split of the batch."""
        return batch.minibatches(
            self.config.num_minibatches, max_tokens=self._pack_limit, generator=self.generator, ranks=self.ranks
        )

    def _on_device(self, packs: Iterable[Pack]) -> Iterator[Pack]:
        """The packs, one at a time, where this rank's nets are."""
        device = next(next(iter(self.nets.values())).module.parameters()).device
        return (pack.to(device) for pack in packs)

    @contextmanager
    def _replaying(self, part: Pack, *, counts: bool = False) -> Iterator[None]:
        """A context, for forward *and* backward, in which the policy routes each token as its sampler did.

        `counts`: remember which tokens that kept from going another way.
        """
        if not self._replays:
            with self._watching(part) if counts else nullcontext():
                yield
            return
        if part.routing is None:
            raise RoutingError("a Mixture-of-Experts policy learns from recorded routes; these trajectories have none")
        assert self.policy is not None
        with replaying(self.policy, part.routing) as replay:
            yield
        if counts and part.num_actions:
            self._flips.append(replay.flipped)

    @contextmanager
    def _watching(self, part: Pack) -> Iterator[None]:
        """A context in which the policy routes by itself, and tokens that it sends another way are counted."""
        if part.routing is None or self.policy is None or not routers(self.policy):
            yield
            return
        with capturing(self.policy) as captured:
            yield
        if part.num_actions:
            self._flips.append(differ(part.routing.long(), captured.routing().long()).any(dim=-1))

    def _flipped_share(self) -> float:
        """Of the tokens that this step scored: those that the policy's own router sent, or would send, another way."""
        flipped = torch.cat(self._flips) if self._flips else torch.zeros(0)
        count, total = self.ranks.total(float(flipped.sum()), float(len(flipped)))
        return self.ranks.agree({"share": count / max(total, 1.0)})["share"]

    def _look_into(self, scored: Scored, minibatches: Sequence[Sequence[Pack]]) -> Evidence:
        """What can be found out about a gap that is too large. Nets in shards are not probed."""
        probes = None
        if self.policy is not None and self.ranks.meshes is None:
            packs = self._on_device(part for packs in minibatches for part in packs)
            probes = probe(
                self.policy,
                packs,
                scored.batch.sampler_logprobs,
                lag_of(scored.batch, self.num_steps) == 0,
                temperature=self.temperature,
                as_trained=self._replaying,
                replays=self._replays,
            )
        return Evidence.of(
            scored.batch,
            scored.old_logprobs,
            bound=self.config.gap_alarm,
            version=self.num_steps,
            temperature=self.temperature,
            probes=probes,
        )

    def _update(self, scored: Scored, minibatches: list[Packs], *, moves: bool) -> dict[str, float]:
        """Every epoch over every minibatch; unless it `moves`, the policy waits for the critic to warm up."""
        entries = []
        for epoch in range(self.config.epochs):
            for index, packs in enumerate(self._minibatches(scored.batch) if epoch else minibatches):
                entry = dict.fromkeys(("loss", "grad_norm", "value_loss", "critic_grad_norm"), 0.0)
                if moves:
                    entry |= self._update_policy(packs, scored, untouched=epoch == index == 0)
                entries.append(self.ranks.agree(entry | self._update_critic(packs, scored)))
        means = {name: sum(entry[name] for entry in entries) / len(entries) for name in entries[0]}
        drift = policy_drift(
            scored.logprobs,
            scored.old_logprobs,
            scored.advantages,
            clip_low=self.config.clip_low,
            clip_high=self.config.clip_high,
        )
        return {**means, **drift, "policy_updates": float(len(entries) * moves)}

    def _update_policy(self, packs: Packs, scored: Scored, *, untouched: bool) -> dict[str, float]:
        """One optimizer step of the policy on one minibatch; routes are replayed forward and backward.

        While the weights are `untouched`, what the policy says now is also what the update starts from.
        """
        slots, total, metrics = [], 0.0, {}  # type: list[Tensor], float, dict[str, float]
        if self._actor is not None:
            num_actions = packs.num_actions
            for part in self._on_device(packs):
                slots.append(part.slots.cpu())
                with self._replaying(part, counts=untouched):
                    logprobs = self._actor(part)
                    scored.logprobs[slots[-1]] = logprobs.detach().cpu()
                    if untouched:
                        scored.old_logprobs[slots[-1]] = scored.logprobs[slots[-1]]
                    loss = token_mean(self._policy_loss(logprobs, slots[-1], scored), num_actions=num_actions)
                    torch.autograd.backward(loss)
                total += float(loss.detach())
            norm = self.nets["policy"].step(grad_clip=self.config.grad_clip)
            metrics = {"loss": self.ranks.total(total)[0], "grad_norm": norm}
        self.ranks.spread(scored.logprobs, slots)
        if untouched:
            self.ranks.spread(scored.old_logprobs, slots)
        return metrics

    def _policy_loss(self, logprobs: Tensor, slots: Tensor, scored: Scored) -> Tensor:
        """The clipped loss [a] of the actions at `slots` int64[a], from their `logprobs` [a]."""
        config, old = self.config, scored.old_logprobs[slots].to(logprobs.device)
        weights, weighed = None, scored.weighed[slots]
        if weighed.any():
            sampled = scored.batch.sampler_logprobs[slots].to(logprobs.device)
            weights = importance_weights(old, sampled, cap=config.importance_cap)
            weights = weights.where(weighed.to(logprobs.device), 1.0)
        return policy_loss(
            logprobs,
            old,
            scored.advantages[slots].to(logprobs.device),
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            weights=weights,
        )

    def _update_critic(self, packs: Packs, scored: Scored) -> dict[str, float]:
        """One optimizer step of the critic on one minibatch."""
        if self.critic is None:
            return {}
        num_actions, total = packs.num_actions, 0.0
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
        grad_norm = self.nets["critic"].step(grad_clip=self.config.grad_clip)
        return {"value_loss": self.ranks.total(total)[0], "critic_grad_norm": grad_norm}

    def save(self, path: Path, *, tokenizer_from: Path | None = None) -> None:
        """Write everything that going on needs to `path`, all or nothing. Called by every rank."""
        progress = {"num_steps": self.num_steps, "normalizer": self.normalizer}
        generators = {"minibatches": self.generator}
        if self.ranks.meshes is not None:
            save_sharded(
                path,
                self.nets,
                policy=self.policy,
                generators=generators,
                progress=progress,
                tokenizer_from=tokenizer_from,
            )
            return
        assert self.policy is not None
        save_checkpoint(
            path,
            policy=self.policy,
            critic=self.critic,
            optimizers=self._optimizers,
            generators=generators,
            progress=progress,
            tokenizer_from=tokenizer_from,
        )

    def load(self, path: Path) -> None:
        """Go on where `save` was called, bit for bit under the same layout.

        Raises CheckpointError, with nothing changed, if it cannot be. Called by every rank.
        """
        generators, expect = {"minibatches": self.generator}, {"normalizer": self.normalizer}
        if self.ranks.meshes is not None or (path / SHARDS).is_dir():
            progress = load_sharded(path, self.nets, generators=generators, expect=expect)
        else:
            assert self.policy is not None
            progress = load_checkpoint(
                path,
                policy=self.policy,
                critic=self.critic,
                optimizers=self._optimizers,
                generators=generators,
                expect=expect,
            )
        self.num_steps = progress["num_steps"]
        for name, lr in (("policy", self.config.lr), ("critic", self.config.critic_lr)):
            if name in self.nets:
                self.nets[name].set_rate(lr)

    @property
    def policy_optimizer(self) -> torch.optim.Optimizer:
        """AdamW of the policy."""
        return self.nets["policy"].optimizer

    @property
    def critic_optimizer(self) -> torch.optim.Optimizer:
        """AdamW of the critic."""
        return self.nets["critic"].optimizer

    @property
    def _optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {name: net.optimizer for name, net in self.nets.items()}

    def weights(self) -> Mapping[str, Any]:
        """The policy's whole weights by name: live tensors, to be copied before the next step.

        Of sharded nets every rank calls it, and the leading one gets them, in its host's memory (see `stream`).
        """
        if self.policy is not None and self.ranks.meshes is None:
            return {name: weight.detach() for name, weight in self.policy.state_dict().items()}
        return {name: weight.cpu() for name, weight in self.stream() if self.ranks.leads}

    def stream(self) -> Iterator[tuple[str, Tensor]]:
        """The policy's whole weights, one by one, each gathered on every rank of its group when its turn comes."""
        for name, weight in self.nets["policy"].full_weights() if self.policy is not None else ():
            yield name.removeprefix(MODEL), weight
