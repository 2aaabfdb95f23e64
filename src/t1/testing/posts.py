"""Workers, engines and trainers for posts, with their recipes: what tests of those who use a cluster start.

All of it is a function of what it is given, so that a result tells where it came from and how often it was made.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t1.cluster.engines import Engines, EngineSeat
from t1.cluster.worker import Parts, RolloutWorker
from t1.errors import SandboxUnavailable
from t1.rollouts import Bounds
from t1.testing.harnesses import ScriptedHarness
from t1.testing.samplers import ScriptedSampler
from t1.testing.sandboxes import FakeSandbox, FakeSandboxProvider
from t1.testing.verifiers import FakeVerifier
from t1.types import CommandResult, RewardSource, Verdict


def full_score(verdict: Verdict) -> tuple[float, RewardSource]:
    """1 for a solved task."""
    return float(verdict.solved), RewardSource.ASSERTIONS


async def scripted_worker(
    *,
    engines: Engines | None = None,
    trial_s: float = 0.0,
    marks: Path | None = None,
    turns: int = 1,
    max_attempts: int = 2,
) -> RolloutWorker:
    """A rollout worker whose sandboxes are in memory. Each trial takes `trial_s` and leaves a mark when it starts."""

    class Slow(FakeVerifier):
        async def verify(self, task: Any, sandbox: Any) -> Verdict:
            if marks is not None:
                with (marks / "trials").open("a", encoding="utf-8") as file:  # appends are whole
                    file.write(f"{task.id} {os.getpid()}\n")
            await asyncio.sleep(trial_s)
            return await super().verify(task, sandbox)

    def run(sandbox: FakeSandbox, command: str) -> CommandResult | str | None:
        return None

    parts = Parts(
        harness=ScriptedHarness(("true",) * turns),
        provider=FakeSandboxProvider(run),
        verifier=Slow(),
        sampler=engines or ScriptedSampler(lambda prompt: [5, 1]),
        scorer=full_score,
        bounds=Bounds(max_attempts=max_attempts, backoff_s=0.05, max_backoff_s=0.5),
    )
    return RolloutWorker(parts)


async def unfit_worker() -> RolloutWorker:
    """A rollout worker whose machine cannot open sandboxes."""
    worker = await scripted_worker()
    parts = Parts(
        harness=ScriptedHarness(),
        provider=FakeSandboxProvider(failures=[SandboxUnavailable("no user namespaces here")] * 1000),
        verifier=FakeVerifier(),
        sampler=ScriptedSampler(lambda prompt: [5, 1]),
        scorer=full_score,
    )
    await worker.aclose()
    return RolloutWorker(parts)


async def scripted_engine(*, version: int = 0, delay_s: float = 0.0, load_s: float = 0.0) -> EngineSeat:
    """An engine that says 5 and stops; its version is what was published, which takes `load_s`."""

    class Loads(ScriptedSampler):
        async def publish(self, weights: Mapping[str, Any], version: int) -> None:
            await asyncio.sleep(load_s)
            await super().publish(weights, version)

    return EngineSeat(Loads(lambda prompt: [5, 1], version=version, delay_s=delay_s))


EVERY = -1


class Adder:
    """A trainer in a process group: its weight is a sum over the ranks of what each was given."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world, self.num_steps = rank, world, 0
        self.total = 0.0

    def step(self, rollouts: Any) -> dict[str, float]:
        """Add up, over the ranks, rank times the rewards."""
        import torch
        import torch.distributed as dist

        mine = torch.tensor([(self.rank + 1) * sum(reward for _, reward in rollouts)], dtype=torch.float64)
        dist.all_reduce(mine)
        self.num_steps += 1
        self.total += float(mine)
        return {"total": self.total, "world": float(dist.get_world_size())}

    def weights(self) -> dict[str, Any]:
        """Its total."""
        return {"total": np.array([self.total])}

    def save(self, path: Path, *, tokenizer_from: Path | None = None) -> None:
        """Rank 0 writes."""
        if self.rank == 0:
            path.write_text(f"{self.total} {self.num_steps}", encoding="utf-8")

    def load(self, path: Path) -> None:
        """What `save` wrote."""
        total, steps = path.read_text(encoding="utf-8").split()
        self.total, self.num_steps = float(total), int(steps)

    def fall(self, rank: int) -> None:
        """That rank dies; the others wait for it."""
        import torch.distributed as dist

        if self.rank == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()

    def disagree(self, rank: int) -> None:
        """That rank raises; the others wait for it."""
        import torch.distributed as dist

        if self.rank == rank:
            raise ValueError(f"rank {rank} disagrees")
        dist.barrier()

    def linger(self, rank: int, seconds: float = 60.0) -> None:
        """That rank takes long; the others wait for it."""
        import torch.distributed as dist

        if rank in (self.rank, EVERY):
            time.sleep(seconds)
        dist.barrier()


def adder(rank: int, world: int) -> Adder:
    """Builds an Adder."""
    return Adder(rank, world)
