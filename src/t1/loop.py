"""The loop. Everything else in this package is one of the parts that it calls, in this order.

source.next     task → harness × sandbox × sampler → verified, rewarded rollouts        t1.rollouts, t1.harness
prepare         rollouts → token trajectories, audited; what is unsound stays out       t1.training.experience, t1.tito
trainer.step    score (routes replayed) → GAE → clipped policy and value updates        t1.training.ppo, t1.ppo
publish         the new weights become the next version of the sampler                  t1.inference
record          metrics, raw turns and trajectories, checkpoint                         t1.stages
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from t1.protocols import Source, Trainer
from t1.training.experience import Experience
from t1.types import Rollout


def train(
    *,
    source: Source,
    prepare: Callable[[Sequence[Rollout]], Experience],
    trainer: Trainer,
    publish: Callable[[Mapping[str, Any], int], None],
    record: Callable[[int, Sequence[Rollout], Experience, Mapping[str, float]], None],
    steps: Iterable[int],
) -> None:
    """PPO: collect with version n, learn from it, publish version n + 1."""
    for step in steps:
        rollouts = source.next(step)
        experience = prepare(rollouts)
        stats = trainer.step(experience.rewarded)
        publish(trainer.weights(), step + 1)
        record(step, rollouts, experience, stats)
