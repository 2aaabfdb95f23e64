"""The PPO trainer moves the policy towards what was rewarded, and packing, splitting and observations do not matter."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from t1.errors import ConfigError, RoutingError
from t1.training.batches import Batch
from t1.training.config import PPOConfig
from t1.training.critic import Critic
from t1.training.ppo import PPOTrainer
from t1.types import RolloutId, Trajectory

Make = Callable[..., Trajectory]


def _trainer(policy: PreTrainedModel, **changes: Any) -> PPOTrainer:
    defaults = {"critic_warmup_steps": 0, "num_minibatches": 1, "replay_routing": False}
    config = PPOConfig(**{**defaults, **changes})
    return PPOTrainer(policy, Critic.from_policy(policy), config)


def _gradients(
    policy: PreTrainedModel, rollouts: list[Any], **changes: Any
) -> tuple[Mapping[str, float], list[Tensor]]:
    """Metrics of one step, and the first moments that Adam keeps of both nets (0.1 × the gradients)."""
    start = {name: weight.clone() for name, weight in policy.state_dict().items()}
    trainer = _trainer(policy, grad_clip=1e9, **changes)
    with torch.no_grad():
        trainer.critic.head.weight.normal_(generator=torch.Generator().manual_seed(3))
    metrics = trainer.step(rollouts)
    policy.load_state_dict(start)
    optimizers = (trainer.policy_optimizer, trainer.critic_optimizer)
    moments = [state["exp_avg"] for optimizer in optimizers for state in optimizer.state.values()]
    return metrics, moments


def _assert_same(
    one: tuple[Mapping[str, float], list[Tensor]], other: tuple[Mapping[str, float], list[Tensor]]
) -> None:
    for name in ("loss", "value_loss", "grad_norm", "critic_grad_norm", "gap", "num_actions"):
        assert one[0][name] == pytest.approx(other[0][name], rel=1e-4, abs=1e-6), name
    for ours, theirs in zip(one[1], other[1], strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)


def test_loss_and_gradients_are_the_same_for_one_pack_or_four(moe: PreTrainedModel, make_trajectory: Make) -> None:
    """Case P5."""
    rollouts = [((make_trajectory(i, length=20 + i),), float(i % 3)) for i in range(8)]
    _assert_same(_gradients(moe, rollouts, max_pack_tokens=10_000), _gradients(moe, rollouts, max_pack_tokens=50))


def test_a_rollout_in_two_segments_weighs_what_its_actions_weigh(moe: PreTrainedModel, make_trajectory: Make) -> None:
    """Case P4: a fork repeats context, not credit; a loss is Σ over actions / all actions of the minibatch."""
    first, second, other = make_trajectory(0), make_trajectory(1, first_turn=50), make_trajectory(2, length=33)
    forked, whole = first.num_actions + second.num_actions, other.num_actions
    trainer = _trainer(moe, whiten=False, lam_policy=1.0)
    rollouts = [((first, second), 1.0), ((other,), 0.0)]
    scored = trainer.score(Batch.of(rollouts))
    assert scored.advantages.tolist() == [1.0] * forked + [0.0] * whole
    metrics = trainer.step(rollouts)
    mean = forked / (forked + whole)
    expected = (forked * (1 - mean) ** 2 + whole * mean**2) / 2 / (forked + whole)
    assert metrics["value_loss"] == pytest.approx(expected, rel=1e-5)
    assert metrics["num_actions"] == forked + whole


def test_tool_output_does_not_change_advantages(moe: PreTrainedModel, make_trajectory: Make) -> None:
    """Case P1: three hundred observation tokens between two actions neither decay the reward nor have a value."""
    short = make_trajectory(0, length=10)
    at = int(np.flatnonzero(~short.mask[1:])[-1]) + 1
    long = _with_observation(short, at, 300)
    trainer = _trainer(moe, whiten=False, gamma=0.9, lam_policy=0.9)
    ours, theirs = (trainer.score(Batch.of([((t,), 1.0)])) for t in (short, long))
    torch.testing.assert_close(ours.advantages, theirs.advantages)
    torch.testing.assert_close(ours.returns, theirs.returns)


def test_turn_credit_gives_each_turn_one_advantage(moe: PreTrainedModel, make_trajectory: Make) -> None:
    trainer = _trainer(moe, credit="turn", whiten=False)
    with torch.no_grad():
        trainer.critic.head.weight.normal_()
    batch = Batch.of([((make_trajectory(4, length=40),), 1.0)])
    advantages = trainer.score(batch).advantages
    assert int(batch.turns.max()) > 1
    for turn in batch.turns.unique():
        assert len(advantages[batch.turns == turn].unique()) == 1


@pytest.mark.parametrize(
    ("which", "weighed"), [("lagging", [False, True]), ("all", [True, True]), ("off", [False, False])]
)
def test_what_earlier_weights_sampled_counts_by_what_it_is_worth_now(
    dense: PreTrainedModel, make_trajectory: Make, which: str, weighed: list[bool]
) -> None:
    """Until the first update ρ is 1 and the loss −Σ w Â / A; w = min(π / π_sampler, cap) where one is due, else 1."""
    trainer = _trainer(dense, importance_weights=which, importance_cap=0.5, whiten=False)
    trainer.num_steps = 3
    now, before = (
        dataclasses.replace(t, version=np.full_like(t.version, version))
        for t, version in ((make_trajectory(1), 3), (make_trajectory(2, member=1), 2))
    )
    rollouts = [((now,), 1.0), ((before,), 3.0)]
    batch = Batch.of(rollouts)
    trainer.critic.start_at(batch.mean_reward)
    scored = trainer.score(batch)
    lengths = scored.batch.lengths.tolist()
    assert scored.weighed.tolist() == [due for due, length in zip(weighed, lengths, strict=True) for _ in range(length)]
    worth = (scored.old_logprobs - scored.batch.sampler_logprobs).exp().clamp(max=0.5)
    assert 0 < (worth == 0.5).float().mean() < 1
    weights = torch.where(scored.weighed, worth, torch.ones(()))
    expected = -(weights * scored.advantages).mean()
    assert trainer.step(rollouts)["loss"] == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_ppo_raises_the_probability_of_a_rewarded_action(
    kind: str, make_trajectory: Make, request: pytest.FixtureRequest
) -> None:
    """A bandit: of the actions 1 and 2 after the same context, only 1 is rewarded."""
    policy: PreTrainedModel = request.getfixturevalue(kind)
    trainer = _trainer(policy, lr=3e-3, num_minibatches=2, epochs=2)
    rollouts = [((_bandit(make_trajectory, action=1 + i % 2, member=i),), float(i % 2 == 0)) for i in range(8)]
    before = trainer.score(Batch.of(rollouts)).old_logprobs
    for _ in range(15):
        trainer.step(rollouts)
    after = trainer.score(Batch.of(rollouts)).old_logprobs
    assert float(after[0].exp()) > float(before[0].exp()) + 0.05
    assert float(after[1]) < float(before[1])


def test_the_critic_learns_the_reward_while_the_policy_waits(moe: PreTrainedModel, make_trajectory: Make) -> None:
    trainer = _trainer(moe, critic_warmup_steps=30, critic_lr=5e-3)
    start = {name: weight.clone() for name, weight in moe.state_dict().items()}
    rollouts = [((make_trajectory(i),), float(i % 2)) for i in range(4)]
    first = trainer.step(rollouts)
    for _ in range(29):
        metrics = trainer.step(rollouts)
    assert metrics["policy_updates"] == 0 and metrics["loss"] == 0
    assert metrics["explained_variance"] > 0.8 > first["explained_variance"]
    assert all(torch.equal(weight, start[name]) for name, weight in moe.state_dict().items())
    assert trainer.step(rollouts)["policy_updates"] == 1
    assert not all(torch.equal(weight, start[name]) for name, weight in moe.state_dict().items())


def test_the_critic_starts_at_the_mean_reward_and_is_never_set_back(
    moe: PreTrainedModel, make_trajectory: Make
) -> None:
    trainer = _trainer(moe, critic_warmup_steps=9)
    rollouts = [((make_trajectory(0),), 3.0), ((make_trajectory(0),), 1.0)]
    assert trainer.step(rollouts)["value_mean"] == pytest.approx(2.0)
    learned = trainer.critic.head.bias.clone()
    trainer.critic.start_at(7.0)
    assert torch.equal(trainer.critic.head.bias, learned)


def test_the_gap_is_measured_against_the_sampler(moe: PreTrainedModel, make_trajectory: Make) -> None:
    trainer = _trainer(moe, lr=1e-9)
    trajectory = make_trajectory(0)
    scored = trainer.score(Batch.of([((trajectory,), 0.0)])).old_logprobs.numpy()
    exact = trajectory.logprobs.copy()
    exact[trajectory.mask] = scored
    faithful = dataclasses.replace(trajectory, logprobs=exact)
    shifted = dataclasses.replace(trajectory, logprobs=np.where(trajectory.mask, exact - 0.25, 0).astype(np.float32))
    assert trainer.step([((faithful,), 1.0)])["gap"] == pytest.approx(0.0, abs=1e-5)
    assert trainer.step([((shifted,), 1.0)])["gap"] == pytest.approx(0.25, abs=1e-3)


def test_old_log_probabilities_are_those_of_the_weights_that_the_step_began_with(
    moe: PreTrainedModel, make_trajectory: Make
) -> None:
    """Also those of the first minibatch, whose own forward provides them: the gap is that of a pass over everything."""
    rollouts = [((make_trajectory(i),), float(i % 2)) for i in range(6)]
    trainer = _trainer(moe, lr=1e-2, num_minibatches=3, epochs=2)
    batch = Batch.of(rollouts)
    expected = (trainer.score(batch).old_logprobs - batch.sampler_logprobs).abs().mean()
    metrics = trainer.step(rollouts)
    assert metrics["gap"] == pytest.approx(float(expected), rel=1e-5)
    assert metrics["approx_kl"] > 1e-4


def test_activation_checkpointing_changes_no_gradient(moe: PreTrainedModel, make_trajectory: Make) -> None:
    rollouts = [((make_trajectory(i, routed=True),), float(i)) for i in range(3)]
    checkpointed = _gradients(moe, rollouts, replay_routing=True, activation_checkpointing=True)
    moe.activation_checkpointing_disable()
    _assert_same(_gradients(moe, rollouts, replay_routing=True), checkpointed)


def test_replayed_routes_train_the_router(moe: PreTrainedModel, make_trajectory: Make) -> None:
    trainer = _trainer(moe, replay_routing=True)
    gates = {n: w.detach().clone() for n, w in moe.named_parameters() if "mlp.gate" in n}
    trainer.step([((make_trajectory(i, routed=True),), float(i)) for i in range(3)])
    for name, weight in moe.named_parameters():
        if name in gates:
            assert not torch.equal(weight, gates[name]), name


def test_scoring_follows_the_recorded_routes(moe: PreTrainedModel, make_trajectory: Make) -> None:
    """The same tokens by other routes are other probabilities; without replay the routes do not matter."""
    one, other = (Batch.of([((make_trajectory(0, routed=True, routes=seed),), 1.0)]) for seed in (1, 2))
    replayed = _trainer(moe, replay_routing=True)
    assert (replayed.score(one).old_logprobs - replayed.score(other).old_logprobs).abs().max() > 1e-3
    plain = _trainer(moe, replay_routing=False)
    assert torch.equal(plain.score(one).old_logprobs, plain.score(other).old_logprobs)


def test_one_pack_or_four_by_recorded_routes_too(moe: PreTrainedModel, make_trajectory: Make) -> None:
    """Case P5: the rows stay with their tokens, however these are packed."""
    rollouts = [((make_trajectory(i, length=20 + i, routed=True),), float(i % 3)) for i in range(8)]
    wide, narrow = (_gradients(moe, rollouts, replay_routing=True, max_pack_tokens=n) for n in (10_000, 50))
    _assert_same(wide, narrow)


def test_a_missing_capture_is_never_trained_on_silently(moe: PreTrainedModel, make_trajectory: Make) -> None:
    """Case R1."""
    with pytest.raises(RoutingError, match="these trajectories have none"):
        _trainer(moe, replay_routing=True).step([((make_trajectory(0),), 1.0)])


def test_the_weights_carry_the_policy_s_own_names(moe: PreTrainedModel) -> None:
    assert set(_trainer(moe).weights()) == set(moe.state_dict())


def _bandit(make_trajectory: Make, *, action: int, member: int) -> Trajectory:
    """Three tokens of context and one action."""
    base = make_trajectory(0, length=4, member=member)
    mask = np.array([False, False, False, True])
    logprobs = np.array([0, 0, 0, -3.0], np.float32)
    return dataclasses.replace(
        base, tokens=np.array([5, 6, 7, action], np.int32), mask=mask, logprobs=logprobs, turn=np.zeros(4, np.int32)
    )


def _with_observation(trajectory: Trajectory, at: int, size: int) -> Trajectory:
    """The trajectory with `size` more context tokens after index `at`, itself a context token."""
    columns = {
        name: np.insert(getattr(trajectory, name), at + 1, np.full(size, getattr(trajectory, name)[at]))
        for name in ("tokens", "mask", "logprobs", "turn", "version")
    }
    return dataclasses.replace(trajectory, **columns)


def test_without_a_critic_every_action_gets_its_rollout_s_advantage_over_its_group(
    moe: PreTrainedModel, make_trajectory: Make
) -> None:
    """Two tasks, two rollouts each; a group's mean is its own, the policy moves at once and no critic is asked."""
    rollouts = [
        ((dataclasses.replace(make_trajectory(i, member=i % 2), rollout=RolloutId(f"t{i // 2}", 0, i % 2)),), reward)
        for i, reward in enumerate([1.0, 0.0, 0.5, 0.25])
    ]
    config = PPOConfig(baseline="group", whiten=False, replay_routing=False, num_minibatches=1)
    trainer = PPOTrainer(moe, None, config)
    before = {name: weight.clone() for name, weight in moe.state_dict().items()}
    scored = trainer.score(Batch.of(rollouts))
    expected = [0.5] * scored.batch.lengths[0] + [-0.5] * scored.batch.lengths[1]
    expected += [0.125] * scored.batch.lengths[2] + [-0.125] * scored.batch.lengths[3]
    assert scored.advantages.tolist() == pytest.approx(expected)
    metrics = trainer.step(rollouts)
    assert metrics["policy_updates"] == 1, "critic_warmup_steps is 2, and there is nothing to warm up"
    assert "explained_variance" not in metrics
    assert any(not torch.equal(weight, before[name]) for name, weight in moe.state_dict().items())


def test_a_critic_that_nobody_would_ask_is_refused_and_so_is_none_where_one_is_needed(moe: PreTrainedModel) -> None:
    with pytest.raises(ConfigError, match="nobody would ask it"):
        PPOTrainer(moe, Critic.from_policy(moe), PPOConfig(baseline="group"))
    with pytest.raises(ConfigError, match="both needed"):
        PPOTrainer(moe, None, PPOConfig())


def test_training_without_a_critic_goes_on_from_its_checkpoint(
    moe: PreTrainedModel, make_trajectory: Make, tmp_path: Path
) -> None:
    config = PPOConfig(baseline="group", replay_routing=False)
    rollouts = [((make_trajectory(i),), float(i % 2)) for i in range(4)]
    trainer = PPOTrainer(moe, None, config)
    trainer.step(rollouts)
    trainer.save(tmp_path / "checkpoint")
    again = PPOTrainer(copy.deepcopy(moe), None, config)
    again.load(tmp_path / "checkpoint")
    assert again.step(rollouts)["loss"] == trainer.step(rollouts)["loss"]
