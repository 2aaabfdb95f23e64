"""A trainer whose ranks are posts: one process group, one Trainer, and no rank that waits for a dead one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from t1.cluster.local import LocalCluster
from t1.cluster.posts import Cluster, Needs
from t1.cluster.ranks import RankedTrainer, open_ranks
from t1.errors import InfrastructureError
from t1.rollouts import LoopThread
from t1.testing.posts import adder


@contextmanager
def trainer_on(make: Any, *, num_ranks: int = 2, step_s: float = 60.0) -> Iterator[RankedTrainer]:
    """Ranks on the cluster that `make` makes, which lives in a loop thread as in a run."""
    runner = LoopThread()

    async def made() -> Cluster:
        cluster: Cluster = make()
        return cluster

    cluster = runner.run(made())
    opening = open_ranks(
        cluster, adder, num_ranks=num_ranks, needs=Needs(cpus=1), runner=runner, start_s=60, step_s=step_s
    )
    try:
        trainer = runner.run(opening)
        yield trainer
        trainer.close()
    finally:
        runner.run(cluster.close())
        runner.close()


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.ray)])
def make(request: pytest.FixtureRequest) -> Any:
    if request.param == "local":
        return LocalCluster
    request.getfixturevalue("nodes")
    from t1.cluster.ray import RayCluster

    return RayCluster


def test_ranks_learn_together_and_answer_as_one_trainer(make: Any, tmp_path: Path) -> None:
    with trainer_on(make) as trainer:
        assert trainer.step([((), 1.0), ((), 2.0)]) == {"total": 9.0, "world": 2.0}  # 1 × 3 + 2 × 3
        trainer.step([((), 1.0)])
        assert trainer.weights()["total"].tolist() == [12.0] and trainer.num_steps == 2
        trainer.save(tmp_path / "saved", tokenizer_from=tmp_path)
        trainer.step([((), 5.0)])
        trainer.load(tmp_path / "saved")
        assert trainer.weights()["total"].tolist() == [12.0] and trainer.num_steps == 2


def test_a_rank_that_dies_ends_the_others_and_says_how_to_go_on(make: Any) -> None:
    with trainer_on(make) as trainer:
        with pytest.raises(InfrastructureError, match=r"rank 1 of the trainer was lost during 'fall'.*--resume"):
            trainer.tell("fall", 1)
        with pytest.raises(InfrastructureError, match="have ended"):
            trainer.step([((), 1.0)])
