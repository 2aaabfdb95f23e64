"""Work for ranks that make their trainer from a directory: what they learn, and how much memory making it took.

Importable by the processes that `t1.training.parallel.launch.on_ranks` starts; everything is a function of its
arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from t1.testing.memory import private_bytes, watching
from t1.testing.ranked import trajectory


def plan(path: Path, directory: Path, *, world: int, apart: int = 0, experts: int = 1, **ppo: Any) -> Any:
    """A RankPlan with small packs that never warms the critic up alone."""
    from t1.training.config import PPOConfig
    from t1.training.parallel.layout import Layout
    from t1.training.parallel.rank import RankPlan

    defaults: dict[str, Any] = {"critic_warmup_steps": 0, "num_minibatches": 1, "max_pack_tokens": 60, "gap_alarm": 1e9}
    return RankPlan(
        path,
        PPOConfig(**{**defaults, **ppo}),
        temperature=1.0,
        normalizer=None,
        policy=Layout(world, experts),
        critic=Layout(apart) if apart else None,
        directory=directory,
    )


def learn(rank_plan: Any, steps: int) -> tuple[list[dict[str, float]], Mapping[str, npt.NDArray[Any]]]:
    """The metrics of a few steps on made-up rollouts, and the weights as published before and after them."""
    import torch.distributed as dist

    trainer = rank_plan(dist.get_rank(), dist.get_world_size())
    published = {"before": trainer.weights()}
    rollouts = [((trajectory(i, length=length),), float(i % 3)) for i, length in enumerate((18, 21, 24, 27, 30))]
    metrics = [trainer.step(rollouts) for _ in range(steps)]
    published["after"] = trainer.weights()
    if dist.get_rank() > 0:  # the others may be done before the leading one has written
        return metrics, {}
    return metrics, {
        f"{when}.{name}": np.array(weight) for when, some in published.items() for name, weight in some.items()
    }


def peaks(path: Path, world: int, *, empty: bool) -> dict[str, int]:
    """Private bytes of this rank: before anything, with its trainer made, and at most in between.

    `empty`: as `RankPlan` makes it; otherwise the whole model is loaded first, and sharded then.
    """
    with watching() as seen:
        trainer = _made(path, world, empty=empty)
    held = sum(sum(net.num_bytes().values()) for net in trainer.nets.values())
    return {"before": seen.before, "peak": seen.peak, "after": private_bytes(), "shards": held // 4}


def _made(path: Path, world: int, *, empty: bool) -> Any:
    import torch.distributed as dist

    if empty:
        return plan(path, path, world=world)(dist.get_rank(), world)
    from t1.inference.models import load_model
    from t1.training.critic import Critic
    from t1.training.parallel.layout import Layout
    from t1.training.parallel.ranks import Ranks
    from t1.training.ppo import PPOTrainer

    policy = load_model(path)
    config = plan(path, path, world=world).ppo
    return PPOTrainer(policy, Critic.from_policy(policy), config, ranks=Ranks.open(Layout(world)))
