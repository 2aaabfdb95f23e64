"""Where the loop's rollouts come from. Asynchrony lives here, behind `Source`.

`TaskStream` says which task comes when, as a pure function of (seed, position): a resumed run asks for the same tasks
without any state. `Lockstep` launches at each step what the step needs, `Lookahead` goes on launching while the trainer
works; which of the trials make the batch is `admission.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from t1.errors import InfrastructureError, RunError
from t1.rollouts.admission import Rule
from t1.rollouts.background import LoopThread
from t1.rollouts.cost import FREE, Prices
from t1.rollouts.demotions import Demotions
from t1.rollouts.ledger import Ledger
from t1.rollouts.pool import Collects, Launch, Pool, Progress
from t1.types import Rollout, RolloutId, Task


class TaskStream:
    """An endless stream over a pool of tasks: each epoch is a fresh permutation."""

    def __init__(self, tasks: Sequence[Task], *, seed: int) -> None:
        if not tasks:
            raise RunError("the task pool is empty: nothing to train or evaluate on")
        self._tasks = tuple(tasks)
        self._seed = seed

    def at(self, position: int) -> Task:
        """The task at `position` ≥ 0."""
        epoch, index = divmod(position, len(self._tasks))
        return self._tasks[int(np.random.default_rng([self._seed, epoch]).permutation(len(self._tasks))[index])]

    def fit(self, position: int, demotions: Demotions) -> Task:
        """The task at `position`, or the next one of the stream that is not out. Raises RunError where none is left."""
        for ahead in range(2 * len(self._tasks)):  # every task is once in a whole epoch
            task = self.at(position + ahead)
            if not demotions.is_out(task.id, position):
                return task
        reasons = "; ".join(f"{task}: {demotion.reason}" for task, demotion in list(demotions.out.items())[:3])
        raise RunError(f"every task of the pool was taken out of training ({reasons}): mend them or train on others")

    def step(self, step: int, num_tasks: int) -> list[Task]:
        """The tasks of one step."""
        return [self.at(step * num_tasks + i) for i in range(num_tasks)]


async def collect_all(
    collector: Collects,
    launches: Sequence[tuple[Task, RolloutId, int | None]],
    *,
    max_concurrent: int,
    progress: Progress | None = None,
    watchdog_s: float = 300.0,
) -> list[Rollout]:
    """Collect every launch (task, id, seed), at most `max_concurrent` at once; results in launch order.

    Raises InfrastructureError, naming the oldest pending attempt, when nothing completes for `watchdog_s` (case F6).
    """
    gate = asyncio.Semaphore(max_concurrent)
    done = 0
    last = time.monotonic()

    async def one(task: Task, rollout: RolloutId, seed: int | None) -> Rollout:
        nonlocal done, last
        async with gate:
            result = await collector.collect(task, rollout, seed=seed)
        done, last = done + 1, time.monotonic()
        if progress is not None:
            progress(done, len(launches))
        return result

    async def watch() -> None:
        while True:
            await asyncio.sleep(min(5.0, watchdog_s))
            if time.monotonic() - last > watchdog_s:
                oldest, (stage, since) = min(collector.pending.items(), key=lambda item: item[1][1])
                waited = time.monotonic() - since
                raise InfrastructureError(
                    f"no rollout completed for {watchdog_s:g} s; the oldest, {oldest}, is in stage "
                    f"'{stage}' for {waited:.0f} s ({len(collector.pending)} pending)"
                )

    try:
        async with asyncio.TaskGroup() as group:
            watchdog = group.create_task(watch())
            pending = [group.create_task(one(*launch)) for launch in launches]
            results = [await task for task in pending]
            watchdog.cancel()
        return results
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first leaf of an exception group: siblings were only cancelled because of it."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class Scheduled:
    """A source over a pool of trials that runs in an event loop of its own: what Lockstep and Lookahead share."""

    def __init__(
        self,
        collector: Collects,
        tasks: TaskStream,
        *,
        runner: LoopThread,
        rule: Rule,
        ahead: int,
        num_tasks: int,
        group_size: int,
        max_concurrent: int,
        seed: int,
        version: Callable[[], int],
        watchdog_s: float,
        first_step: int = 0,
        ledger: Ledger | None = None,
        stored: Callable[[int], Sequence[Rollout] | None] = lambda step: None,
        keep: Callable[[Rollout], Rollout] = lambda rollout: rollout,
        prices: Prices = FREE,
        progress: Progress | None = None,
        demotions: Demotions | None = None,
    ) -> None:
        """`num_tasks` × `group_size` rollouts a step; see `Pool` for the rest."""
        self.demotions = Demotions() if demotions is None else demotions
        self.left: tuple[str, ...] = ()
        """Tasks that left the pool because of the last batch."""
        self._tasks, self._num_tasks, self._group_size, self._seed = tasks, num_tasks, group_size, seed
        self._runner = runner

        async def make() -> Pool:
            return Pool(
                collector,
                self.launch_at,
                rule,
                version=version,
                ahead=ahead,
                first_position=first_step * num_tasks * group_size,
                max_concurrent=max_concurrent,
                watchdog_s=watchdog_s,
                ledger=ledger,
                stored=stored,
                keep=keep,
                prices=prices,
                progress=progress,
            )

        self.pool = runner.run(make())

    def launch_at(self, position: int) -> Launch:
        """The launch at `position`: a pure function of the seed, so that a resumed run asks for the same."""
        draw, member = divmod(position, self._group_size)
        task = self._tasks.fit(draw, self.demotions)
        step, index = divmod(draw, self._num_tasks)
        seed = int(np.random.SeedSequence([self._seed, step, index, member]).generate_state(1)[0])
        return Launch(task, RolloutId(task.id, draw, member), seed)

    def next(self, step: int) -> Sequence[Rollout]:
        """The batch of `step`, failures included."""
        return self._runner.run(self._next(step))

    async def _next(self, step: int) -> Sequence[Rollout]:
        """Admit and count in the pool's own loop, so that nothing is launched between the count and its effect."""
        rollouts = await self.pool.next(step)
        # What is launched already stays; the first group that is not begun is the first to get another task.
        next_draw = -(-self.pool.next_position // self._group_size)
        self.left = tuple(self.demotions.count(step, rollouts, next_draw=next_draw))
        return rollouts

    def metrics(self) -> Mapping[str, float]:
        """Lag and bias of what was admitted, and how many tasks are out."""
        return {**self.pool.metrics(), **self.demotions.metrics()}

    def close(self) -> None:
        """Stop what is still under way, and confirm it."""
        self._runner.run(self.pool.close())


class Lockstep(Scheduled):
    """Launches a step's trials when the step begins. On-policy while nothing is carried."""

    def __init__(self, collector: Collects, tasks: TaskStream, *, rule: Rule, **options: Any) -> None:
        """Options: those of `Scheduled`."""
        super().__init__(collector, tasks, rule=rule, ahead=0, **options)


class Lookahead(Scheduled):
    """Launches on while the trainer works: at most `rule.max_lag` steps ahead of the weights that will learn."""

    def __init__(self, collector: Collects, tasks: TaskStream, *, rule: Rule, **options: Any) -> None:
        """Options: those of `Scheduled`. Raises ValueError where no lag is allowed: that is Lockstep."""
        if rule.max_lag < 1:
            raise ValueError(
                "Lookahead needs max_lag ≥ 1: with 0 every rollout comes from the latest weights (Lockstep)"
            )
        super().__init__(collector, tasks, rule=rule, ahead=rule.max_lag, **options)
