"""What a step said of its actions reaches the trajectory that each action belongs to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from transformers import PreTrainedModel

from t1.training.batches import Batch
from t1.training.config import PPOConfig
from t1.training.critic import Critic
from t1.training.ppo import PPOTrainer
from t1.types import Trajectory


def test_each_trajectory_gets_what_the_step_said_of_its_actions(
    dense: PreTrainedModel, make_trajectory: Callable[..., Trajectory]
) -> None:
    """Segments of one rollout share a chain of credit, and lie in it in time order."""
    config = PPOConfig(critic_warmup_steps=0, num_minibatches=2, replay_routing=False, whiten=False, lam_policy=1.0)
    trainer = PPOTrainer(dense, Critic.from_policy(dense), config)
    assert trainer.credit is None
    late, early = make_trajectory(0, first_turn=50), make_trajectory(1, length=33)
    other = make_trajectory(2, length=27, member=1)
    batch = [((late, early), 0.75), ((other,), 0.25)]
    trainer.step(batch)
    assert trainer.credit is not None
    told = list(trainer.credit.of([segments for segments, _ in batch]))
    assert [len(one.logprobs) for one in told] == [t.num_actions for t in (late, early, other)]
    for one, reward in zip(told, (0.75, 0.75, 0.25), strict=True):
        # With λ = 1 and γ = 1 a return is the reward, whatever the critic said; an advantage what it lacked.
        np.testing.assert_allclose(one.advantages + one.values, reward, atol=1e-5)
        np.testing.assert_allclose(one.returns, reward, atol=1e-5)
        assert np.isfinite(one.logprobs).all() and (one.logprobs < 0).all()


def test_log_probabilities_are_those_from_before_the_step(
    dense: PreTrainedModel, make_trajectory: Callable[..., Trajectory]
) -> None:
    config = PPOConfig(critic_warmup_steps=0, num_minibatches=2, epochs=2, lr=1e-2, replay_routing=False)
    trainer = PPOTrainer(dense, Critic.from_policy(dense), config)
    batch = [((make_trajectory(i, member=i),), float(i)) for i in range(4)]
    before = trainer.score(Batch.of(batch)).old_logprobs.numpy()
    trainer.step(batch)
    after = trainer.score(Batch.of(batch)).old_logprobs.numpy()
    assert trainer.credit is not None
    said = np.concatenate([one.logprobs for one in trainer.credit.of([segments for segments, _ in batch])])
    slots = np.concatenate([slots for places in trainer.credit.slots for slots in places])
    np.testing.assert_allclose(said, before[slots], atol=1e-5)
    assert np.abs(said - after[slots]).max() > 1e-2
