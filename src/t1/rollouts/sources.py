"""Where the loop's rollouts come from. Asynchrony lives here, behind `Source`.

`TaskStream` says which task comes when, as a pure function of (seed, position): a resumed run asks for the same tasks
without any state. `Lockstep` launches one step's rollouts, waits for all of them and loses none: no rollout is left
out because it was slow, so the batch has no bias towards easy tasks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import numpy as np

from t1.errors import InfrastructureError, RunError
from t1.rollouts.collect import Collector
from t1.types import Rollout, RolloutId, Task

Progress = Callable[[int, int], None]
"""(done, total)"""


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

    def step(self, step: int, num_tasks: int) -> list[Task]:
        """The tasks of one step."""
        return [self.at(step * num_tasks + i) for i in range(num_tasks)]


async def collect_all(
    collector: Collector,
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


class Lockstep:
    """On-policy: all rollouts of a step come from the weights that the step will update."""

    def __init__(
        self,
        collector: Collector,
        tasks: TaskStream,
        *,
        runner: asyncio.Runner,
        num_tasks: int,
        group_size: int,
        max_concurrent: int,
        seed: int,
        progress: Progress | None = None,
        watchdog_s: float = 300.0,
    ) -> None:
        self._collector = collector
        self._tasks = tasks
        self._runner = runner
        self._num_tasks = num_tasks
        self._group_size = group_size
        self._max_concurrent = max_concurrent
        self._seed = seed
        self._progress = progress
        self._watchdog_s = watchdog_s

    def next(self, step: int) -> Sequence[Rollout]:
        """The rollouts of `step`: `num_tasks` × `group_size`, failures included."""
        launches = []
        for index, task in enumerate(self._tasks.step(step, self._num_tasks)):
            for member in range(self._group_size):
                seed = int(np.random.SeedSequence([self._seed, step, index, member]).generate_state(1)[0])
                launches.append((task, RolloutId(task.id, step * self._num_tasks + index, member), seed))
        return self._runner.run(
            collect_all(
                self._collector,
                launches,
                max_concurrent=self._max_concurrent,
                progress=self._progress,
                watchdog_s=self._watchdog_s,
            )
        )

    def close(self) -> None:
        """Nothing is kept between steps."""
