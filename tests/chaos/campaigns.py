"""A run of a few steps without a model: a pool with its ledger, over whatever collects, and what it trained on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from t1.rollouts import Admission, Ledger, Rule
from t1.rollouts.pool import Collects, Launch, Pool
from t1.types import Rollout, RolloutId, Task

STEP_S = 120.0
"""A step that takes longer hangs."""


@dataclass(slots=True)
class Campaign:
    """`num_steps` batches of `batch` rollouts, all waited for, so that what should be trained on is known."""

    tasks: list[Task]
    num_steps: int = 3
    batch: int = 6
    trained: list[RolloutId] = field(default_factory=list)
    rollouts: list[Rollout] = field(default_factory=list)

    def launch_at(self, position: int) -> Launch:
        """The stream of launches."""
        task = self.tasks[position % len(self.tasks)]
        return Launch(task, RolloutId(task.id, position // len(self.tasks), 0), position)

    @property
    def expected(self) -> list[RolloutId]:
        """Everything that is launched."""
        return [self.launch_at(position).rollout for position in range(self.num_steps * self.batch)]

    @property
    def relaunched(self) -> int:
        """Launches beyond the first."""
        return sum(rollout.attempts - 1 for rollout in self.rollouts)

    async def run(
        self,
        collector: Collects,
        ledger_path: Path,
        *,
        version: Callable[[], int] = lambda: 0,
        during: Callable[[int], Awaitable[None]] | None = None,
        after: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """`during(step)`: what happens while the step's batch is collected; `after(step)`: once it is trained on."""
        rule = Rule(Admission.ALL, num_needed=self.batch, max_lag=0)
        with closing(Ledger(ledger_path)) as ledger:
            pool = Pool(
                collector, self.launch_at, rule, version=version, max_concurrent=self.batch, watchdog_s=60.0,
                ledger=ledger,
            )  # fmt: skip
            for step in range(self.num_steps):
                batch = asyncio.create_task(pool.next(step))
                await asyncio.sleep(0)
                if during is not None:
                    await during(step)
                rollouts = await asyncio.wait_for(batch, STEP_S)
                self.rollouts += rollouts
                self.trained += [rollout.id for rollout in rollouts if rollout.outcome.failure is None]
                ledger.updated(step, len(rollouts))
                if after is not None:
                    await after(step)
            await pool.close()
            assert ledger.counts() == {"admitted": len(self.rollouts)}
