"""Each kind of mismatch, brought about for real between an engine and a trainer, is named by its alarm."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from t1.errors import EngineError
from t1.inference.core import EngineCore, Request
from t1.tito import assemble
from t1.training.config import PPOConfig
from t1.training.critic import Critic
from t1.training.gap.alarm import Diagnosis, Evidence, Mismatch, Probes, diagnose
from t1.training.ppo import PPOTrainer
from t1.types import (
    Outcome,
    RewardSource,
    Rollout,
    RolloutId,
    Sample,
    SamplingParams,
    StopReason,
    Trajectory,
    Turn,
    Verdict,
)

COUNT = 24


class Conversations:
    """Rollouts of a few turns each, all sessions in step, on an engine that a test may tamper with between turns."""

    def __init__(self, model: PreTrainedModel, params: SamplingParams | None = None) -> None:
        self.core = EngineCore(model, max_context=128, max_rows=2 * COUNT, version=0, max_step_tokens=4096)
        self.params = params or SamplingParams(max_tokens=12)
        self.turns: list[list[Turn]] = [[] for _ in range(COUNT)]

    def turn(self, members: Sequence[int] = range(COUNT)) -> None:
        """One more turn of these members."""
        found: dict[int, Sample] = {}

        def keep(member: int, sample: Sample | EngineError) -> None:
            assert isinstance(sample, Sample)
            found[member] = sample

        for member in members:
            held, prompt = 0, np.array([3, 4, 5 + member], dtype=np.int32)
            if self.turns[member]:
                last = self.turns[member][-1]
                held = len(last.prompt) + len(last.completion) - 1
                prompt = np.concatenate([last.prompt, last.completion, np.array([7, 8], dtype=np.int32)])
            self.core.submit(
                Request(
                    prompt,
                    self.params,
                    str(member),
                    held,
                    100 * member + len(prompt),
                    lambda s, m=member: found.update({m: s}),
                )
            )
        while self.core.has_work:
            self.core.step()
        for member, s in found.items():
            self.turns[member].append(
                Turn(
                    s.prompt,
                    s.completion,
                    s.logprobs,
                    s.versions,
                    s.finish,
                    s.routing,
                    s.routing_start,
                    timings=s.timings,
                )
            )

    @property
    def rollouts(self) -> list[Rollout]:
        """With rewards that differ."""
        return [
            Rollout(
                RolloutId("made-up", 0, member),
                "",
                tuple(turns),
                Outcome(
                    stop=StopReason.SUBMITTED,
                    reward=member % 5 / 4,
                    reward_source=RewardSource.ASSERTIONS,
                    verdict=Verdict((), False),
                ),
            )
            for member, turns in enumerate(self.turns)
        ]


def copy_of(model: PreTrainedModel, noise: float = 0.0) -> PreTrainedModel:
    """The same weights in a module of its own, or others nearby."""
    twin = type(model)(copy.deepcopy(model.config))
    twin.load_state_dict(model.state_dict())
    for weight in twin.parameters():
        weight.data += noise * weight.data.std() * torch.randn_like(weight) if weight.ndim > 1 else 0.0
    return twin


def learn(
    policy: PreTrainedModel, rollouts: Sequence[Rollout], *, temperature: float = 1.0, version: int = 0, **config: float
) -> tuple[dict[str, float], Diagnosis | None, PPOTrainer]:
    """One step of the trainer at `version`: its metrics, and what its alarm says."""
    settings = PPOConfig(critic_warmup_steps=0, max_pack_tokens=300, **config)
    policy = copy_of(policy)
    trainer = PPOTrainer(policy, Critic.from_policy(policy), settings, temperature=temperature)
    trainer.num_steps = version
    rewarded = [(segments_of(r), float(r.outcome.reward or 0.0)) for r in rollouts]
    metrics = trainer.step(rewarded)
    evidence = trainer.gap_evidence
    return metrics, None if evidence is None else diagnose(evidence, evidence.cached(rollouts)), trainer


def segments_of(rollout: Rollout) -> tuple[Trajectory, ...]:
    return assemble(rollout.id, rollout.turns)


def talk(model: PreTrainedModel, params: SamplingParams | None = None, *, turns: int = 2) -> list[Rollout]:
    conversations = Conversations(model, params)
    for _ in range(turns):
        conversations.turn()
    return conversations.rollouts


def test_an_engine_that_is_right_raises_no_alarm(moe: PreTrainedModel) -> None:
    metrics, found, _ = learn(moe, talk(copy_of(moe)))
    assert metrics["gap"] < 1e-5 and metrics["gap_flipped"] == 0
    assert found is None


def test_half_precision_raises_none_either(moe: PreTrainedModel) -> None:
    metrics, found, _ = learn(moe, talk(copy_of(moe).to(torch.bfloat16)))
    assert 1e-4 < metrics["gap"] < 0.05 and found is None


def test_another_temperature_is_found_with_its_value(moe: PreTrainedModel) -> None:
    _, found, _ = learn(moe, talk(copy_of(moe), SamplingParams(0.6, max_tokens=12)))
    assert found is not None and found.kind is Mismatch.TEMPERATURE
    assert "at temperature 1 tokens differ" in found.message and "at 0.6" in found.message


def test_raw_log_probabilities_are_told_from_another_temperature(moe: PreTrainedModel) -> None:
    """Case L2: sampled at 0.6, reported as if at 1."""
    rollouts = talk(copy_of(moe), SamplingParams(1.0, max_tokens=12))
    _, found, _ = learn(moe, rollouts, temperature=0.6)
    assert found is not None and found.kind is Mismatch.TEMPERATURE
    assert "--logprobs-mode processed_logprobs" in found.message


@pytest.mark.parametrize("params", [SamplingParams(top_p=0.7, max_tokens=12), SamplingParams(top_k=5, max_tokens=12)])
def test_a_tail_that_was_cut_off_is_found(moe: PreTrainedModel, params: SamplingParams) -> None:
    """Case L3: the sampler's distribution is renormalised over what it kept."""
    _, found, _ = learn(moe, talk(copy_of(moe), params))
    assert found is not None and found.kind is Mismatch.TRUNCATION
    assert "set top_p=1" in found.message


def test_other_weights_under_the_right_version_are_found(moe: PreTrainedModel) -> None:
    _, found, _ = learn(moe, talk(copy_of(moe, noise=0.3)))
    assert found is not None and found.kind is Mismatch.WRONG_WEIGHTS
    assert "publish again" in found.message


def test_older_weights_that_say_so_are_lag(moe: PreTrainedModel) -> None:
    rollouts = talk(copy_of(moe, noise=0.3))
    _, found, _ = learn(moe, rollouts, version=2)
    assert found is not None and found.kind is Mismatch.LAG
    assert "up to 2 versions ago" in found.message


def test_a_cache_that_outlived_its_weights_is_found(moe: PreTrainedModel) -> None:
    """Case L1: weights are changed under the engine between two turns, and its keys and values stay.

    The second turn is of the new version and reads the old keys and values; fresh sessions of that version are right.
    """
    conversations = Conversations(copy_of(moe, noise=0.5))
    conversations.turn(range(COUNT // 2))
    with torch.no_grad():
        for target, source in zip(conversations.core.model.parameters(), moe.parameters(), strict=True):
            target.copy_(source)
    conversations.core.version = 1
    conversations.turn()
    _, found, _ = learn(moe, conversations.rollouts, version=1)
    assert found is not None and found.kind is Mismatch.STALE_CACHE
    assert "keys and values of older weights" in found.message


def test_the_same_change_of_weights_through_publish_raises_no_alarm_about_the_cache(moe: PreTrainedModel) -> None:
    """What `publish` does beyond copying: the cache is dropped. What is left is lag, of the first turns."""
    conversations = Conversations(copy_of(moe, noise=0.5))
    conversations.turn(range(COUNT // 2))
    conversations.core.publish(moe.state_dict(), 1)
    conversations.turn()
    _, found, _ = learn(moe, conversations.rollouts, version=1)
    assert found is not None and found.kind is Mismatch.LAG
    later = [dataclasses.replace(r, turns=r.turns[-1:]) for r in conversations.rollouts[COUNT // 2 :]]
    assert learn(moe, later, version=1)[1] is None


def test_routes_of_other_tokens_are_found(moe: PreTrainedModel) -> None:
    """Case R8: rows that fit in shape and belong one token further on."""

    def shifted(turn: Turn) -> Turn:
        assert turn.routing is not None
        return dataclasses.replace(turn, routing=np.roll(turn.routing, 1, axis=0))

    rollouts = [dataclasses.replace(r, turns=tuple(map(shifted, r.turns))) for r in talk(copy_of(moe))]
    metrics, found, _ = learn(moe, rollouts)
    assert metrics["gap_flipped"] > 0.5
    assert found is not None and found.kind is Mismatch.ROUTING
    assert "the engine's capture belongs to other tokens" in found.message


def test_flips_that_replay_would_prevent_are_found_when_it_is_off(moe: PreTrainedModel) -> None:
    """The engine routes by its own lights, and its capture says so."""
    twin = copy_of(moe)
    routes = np.random.default_rng(0)
    core = Conversations(twin)
    for router in (m for m in twin.modules() if type(m).__name__.endswith("TopKRouter")):
        bias = torch.from_numpy(routes.normal(size=4)).float()

        def swayed(module, inputs, output, bias=bias):  # type: ignore[no-untyped-def]
            ids = (output[0] + bias).topk(2).indices
            scores = output[0].softmax(-1).gather(1, ids)
            return output[0], scores / scores.sum(-1, keepdim=True), ids

        router.register_forward_hook(swayed, prepend=True)
    core.turn()
    core.turn()
    metrics, found, _ = learn(moe, core.rollouts, replay_routing=False, gap_alarm=0.005, lr=1e-8)
    assert metrics["gap_flipped"] > 0.1
    assert found is not None and found.kind is Mismatch.ROUTING
    assert "set ppo.replay_routing" in found.message
    assert learn(moe, core.rollouts, gap_alarm=0.005)[1] is None


def test_a_dense_policy_has_alarms_too(dense: PreTrainedModel) -> None:
    metrics, found, _ = learn(dense, talk(copy_of(dense), SamplingParams(0.5, max_tokens=12)))
    assert metrics["gap_flipped"] == 0
    assert found is not None and found.kind is Mismatch.TEMPERATURE


def test_at_learning_rate_zero_the_gap_stays_flat_over_fifty_publishes(moe: PreTrainedModel) -> None:
    """Case L4: whatever a publish or a cache got wrong would add up."""
    settings = PPOConfig(critic_warmup_steps=0, num_minibatches=1, lr=1e-30)
    trainer = PPOTrainer(copy_of(moe), Critic.from_policy(moe), settings)
    conversations, gaps = Conversations(copy_of(moe)), []
    for version in range(1, 51):
        conversations.core.publish(trainer.weights(), version)
        conversations.turns = [[] for _ in range(COUNT)]
        conversations.turn(range(version % 4, COUNT, 12))
        rewarded = [(segments_of(r), 0.0) for r in conversations.rollouts if r.turns]
        gaps.append(trainer.step(rewarded)["gap"])
    assert max(gaps) < 1e-5
    assert np.mean(gaps[-10:]) < 3 * np.mean(gaps[:10])


def test_the_alarm_changes_neither_weights_nor_metrics(moe: PreTrainedModel) -> None:
    rollouts = talk(copy_of(moe, noise=0.3))
    results = []
    for bound in (1e-9, 1e9):
        metrics, found, trainer = learn(moe, rollouts, gap_alarm=bound)
        assert (found is None) == (bound > 1)
        kept = {name: value for name, value in metrics.items() if not name.endswith("_s")}
        results.append((kept, [w.clone() for w in trainer.weights().values()]))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(one, other) for one, other in zip(results[0][1], results[1][1], strict=True))


def evidence(differences: object, probes: Probes | None = None) -> Evidence:
    values = np.asarray(differences, dtype=np.float64)
    zeros = np.zeros(len(values), dtype=np.int64)
    return Evidence(values, zeros, zeros, np.array([len(values)]), 0.05, 1.0, probes)


def test_without_probes_the_marks_on_the_tokens_still_speak() -> None:
    """Nets in shards are not probed."""
    rng = np.random.default_rng(0)
    assert diagnose(evidence(-rng.random(100) * 0.3)).kind is Mismatch.TRUNCATION
    both = rng.normal(size=100)
    assert diagnose(evidence(both)).kind is Mismatch.WRONG_WEIGHTS
    cached = np.arange(100) >= 50
    assert diagnose(evidence(np.where(cached, both, both / 100)), cached).kind is Mismatch.STALE_CACHE
    all_cached = diagnose(evidence(both), np.ones(100, dtype=np.bool_))
    assert all_cached.kind is Mismatch.WRONG_WEIGHTS and "cache that outlived" in all_cached.message


def test_evidence_of_other_rollouts_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 1 rollouts, got 0"):
        evidence([0.1]).cached([])
