"""From a configuration to the trainer of a run: in its own process, or as ranks on its cluster. The loop cannot tell.

Ranks make their shards from the policy's directory, write checkpoints into the run, and publish by writing a version
where the engines read it: policy, run and `engine.weights_dir` lie at the same path on every machine.
Boundary: it opens and closes a trainer; what a trainer does is `t1.training`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from t1.cluster.local import LocalCluster
from t1.cluster.posts import Cluster, Needs
from t1.cluster.ranks import RankedTrainer, open_ranks
from t1.config import RunConfig
from t1.inference import load_model
from t1.inference.published import forget_old
from t1.protocols import Trainer
from t1.rollouts import LoopThread
from t1.training.credit import Credit
from t1.training.critic import Critic
from t1.training.gap.alarm import Evidence
from t1.training.parallel.layout import Layout
from t1.training.parallel.rank import RankPlan
from t1.training.ppo import PPOTrainer


class Learner(Trainer, Protocol):
    """What a run asks of its trainer, beyond what the loop does."""

    @property
    def num_steps(self) -> int:
        """Steps that it took."""
        ...

    @property
    def gap_evidence(self) -> Evidence | None:
        """See `PPOTrainer.gap_evidence`."""
        ...

    @property
    def credit(self) -> Credit | None:
        """See `PPOTrainer.credit`."""
        ...

    def save(self, path: Path, *, tokenizer_from: Path | None = None) -> None:
        """See `PPOTrainer.save`."""
        ...


@contextmanager
def open_learner(
    config: RunConfig,
    start: Path,
    *,
    normalizer: float | None,
    folder: Path,
    runner: LoopThread,
    cluster: Cluster | None = None,
) -> Iterator[Learner]:
    """The trainer of the policy at `start`, while this is open.

    `folder`: the run's own, where ranks log and publish. `cluster`: of a spread run; None = this machine.
    """
    temperature = config.harness.sampling.temperature
    if config.trainer.alone:
        policy = load_model(start)
        critic = Critic.from_policy(policy) if config.ppo.baseline == "critic" else None
        yield PPOTrainer(policy, critic, config.ppo, temperature=temperature, normalizer=normalizer)
        return
    plan = rank_plan(config, start, normalizer=normalizer, folder=folder)
    with _machine(cluster, runner, folder / "logs") as place:
        section = config.trainer
        trainer: RankedTrainer = runner.run(
            open_ranks(
                place,
                plan,
                num_ranks=section.ranks + section.critic_ranks,
                needs=Needs(cpus=section.cpus, memory_mb=section.memory_mb, gpus=section.gpus),
                runner=runner,
                device_type=plan.device_type,
                start_s=section.start_s,
                step_s=section.step_s,
            )
        )
        try:
            yield trainer
        finally:
            trainer.close()
            forget_old(plan.directory, keep=1)


def rank_plan(config: RunConfig, start: Path, *, normalizer: float | None, folder: Path) -> RankPlan:
    """What each rank makes its share of the trainer from."""
    section = config.trainer
    directory = Path(config.engine.weights_dir) if config.engine.weights_dir else folder / "weights"
    return RankPlan(
        path=start.absolute(),
        ppo=config.ppo,
        temperature=config.harness.sampling.temperature,
        normalizer=normalizer,
        policy=Layout(section.ranks, section.experts, section.context),
        critic=Layout(section.critic_ranks) if section.critic_ranks else None,
        directory=directory.absolute(),
        device_type="cuda" if section.gpus else "cpu",
        num_threads=max(1, int(section.cpus)),
    )


@contextmanager
def _machine(cluster: Cluster | None, runner: LoopThread, logs: Path) -> Iterator[Cluster]:
    """The run's cluster, or one of this machine for the trainer alone."""
    if cluster is not None:
        yield cluster
        return

    async def made() -> Cluster:
        return LocalCluster(logs=logs)

    own: Any = runner.run(made())
    try:
        yield own
    finally:
        runner.run(own.close())
