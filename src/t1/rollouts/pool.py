"""Trials under way and trials that wait for admission: the moving part behind every source.

A pool launches trials from a stream, keeps as many out as its rule says, and hands over a batch once the rule finds
one. What is launched, finished, admitted or dropped stands in the ledger before the pool goes on. Boundary: one event
loop; which rollouts make a batch is `admission.py`, what one rollout is, `collect.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from t1.errors import InfrastructureError, RunError
from t1.rollouts.admission import Admission, Rule, Trial
from t1.rollouts.bias import BiasMeter
from t1.rollouts.cost import FREE, Prices, usage_of
from t1.rollouts.ledger import Admitted, Entry, Ledger
from t1.rollouts.store import unpack_rollout
from t1.types import Rollout, RolloutId, Task

CANCEL_TIMEOUT_S = 60.0
WATCH_EVERY_S = 5.0
Progress = Callable[[int, int], None]
"""(done, total)"""


class Collects(Protocol):
    """The part of a Collector that a pool needs."""

    @property
    def pending(self) -> Mapping[RolloutId, tuple[str, float]]:
        """Stage and start (monotonic seconds) of every attempt under way."""
        ...

    async def collect(self, task: Task, rollout: RolloutId, *, seed: int | None = None) -> Rollout: ...


@dataclass(frozen=True, slots=True)
class Launch:
    """One place in the stream of launches."""

    task: Task
    rollout: RolloutId
    seed: int | None


@dataclass(slots=True)
class _Out:
    """A trial that is neither admitted nor dropped."""

    launch: Launch
    version: int
    started: float
    running: asyncio.Task[None] | None = None
    rollout: Rollout | None = None
    order: int | None = None


class Pool:
    """Use from one event loop; `close` cancels what runs and confirms it."""

    def __init__(
        self,
        collector: Collects,
        launch_at: Callable[[int], Launch],
        rule: Rule,
        *,
        version: Callable[[], int],
        ahead: int = 0,
        first_position: int = 0,
        max_concurrent: int,
        watchdog_s: float,
        ledger: Ledger | None = None,
        stored: Callable[[int], Sequence[Rollout] | None] = lambda step: None,
        keep: Callable[[Rollout], Rollout] = lambda rollout: rollout,
        prices: Prices = FREE,
        progress: Progress | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`launch_at(position)`: the stream. `version()`: the sampler's weights now.

        `ahead`: batches that may be under way beyond the next one, while the trainer works. `first_position`: where a
        run begins that has no ledger of its past. `stored(step)`: rollouts of a batch whose content the ledger no
        longer holds. `keep`: makes of a finished rollout the equal one that waits here (see `Captures`).
        """
        self._collector, self._launch_at, self._rule = collector, launch_at, rule
        self._version, self._ahead, self._max_concurrent = version, ahead, max_concurrent
        self._watchdog_s, self._ledger, self._stored, self._keep = watchdog_s, ledger, stored, keep
        self._prices, self._progress, self._clock = prices, progress, clock
        self._out: dict[int, _Out] = {}
        self._position = (0 if ledger is None else ledger.next_position()) or first_position
        self._order = 0 if ledger is None else ledger.next_order()
        self._changed = asyncio.Event()
        self._broken: BaseException | None = None
        self._last_end = clock()
        self._waiting = False
        """A trainer waits for the next batch."""
        self._recovered = ledger is None
        self.bias = BiasMeter()
        self.lags: Counter[int] = Counter()
        """Lag → admitted rollouts of the last batch: weights version that learns, minus the one that began it."""

    async def next(self, step: int) -> list[Rollout]:
        """The batch of `step`. A batch that the ledger admitted before a crash is handed over as it was.

        Raises InfrastructureError, naming the oldest trial, when nothing ends for `watchdog_s` (case F6).
        """
        if self._ledger is not None and not self._recovered and (batch := self._ledger.batch(step)):
            return self._restore(step, batch)
        self._recover()
        self._last_end = self._clock()
        self._waiting = True
        try:
            self._fill()
            while (chosen := self._rule.choose(self._trials(), step)) is None:
                self._show()
                await self._one_more()
                self._fill()
        finally:
            self._waiting = False
        rollouts = await self._admit(step, [trial.position for trial in chosen])
        self._fill()
        return rollouts

    async def close(self) -> None:
        """Stop every trial and confirm it. The ledger keeps them as running: a resumed run launches them again."""
        await self._cancel(list(self._out.values()))
        self._out.clear()

    @property
    def num_running(self) -> int:
        """Trials under way."""
        return sum(out.rollout is None for out in self._out.values())

    @property
    def next_position(self) -> int:
        """The first place in the stream that was never launched."""
        return self._position

    def metrics(self) -> dict[str, float]:
        """What the pool has to say about the last batch."""
        lagged = sum(lag * count for lag, count in self.lags.items())
        return {
            "lag_mean": lagged / max(1, self.lags.total()),
            "lag_max": float(max(self.lags, default=0)),
            "carried": float(len(self._out)),
            **self.bias.metrics(),
        }

    # ----------------------------------------------------------------------------------------------------------------
    # Launching

    def _fill(self) -> None:
        """Launch until as many trials are out as the rule and the machine allow."""
        if self._broken is not None:
            raise self._broken
        # More would be too old by the time that their turn comes.
        allowed = max(self._rule.num_launched if self._waiting else 0, self._ahead * self._rule.num_needed)
        while len(self._out) < allowed and self.num_running < self._max_concurrent:
            self._launch(self._position, self._launch_at(self._position))
            self._position += 1

    def _launch(self, position: int, launch: Launch) -> None:
        out = _Out(launch, self._version(), self._clock())
        if self._ledger is not None:
            self._ledger.launched(Entry(position, launch.rollout, launch.seed, out.version, None))
        self._out[position] = out
        out.running = asyncio.create_task(self._run(position, out), name=f"trial {launch.rollout}")

    async def _run(self, position: int, out: _Out) -> None:
        """One trial to its end. Whatever is not a rollout breaks the pool: the next call raises it."""
        try:
            rollout = await self._collector.collect(out.launch.task, out.launch.rollout, seed=out.launch.seed)
            if self._ledger is not None:
                self._ledger.finished(position, rollout, usage_of(rollout, self._prices), order=self._order)
            out.rollout, out.order, out.running = self._keep(rollout), self._order, None
            self._order += 1
            self._last_end = self._clock()
            if self._ahead:
                self._fill()
        except BaseException as error:
            if position in self._out:  # else it was dropped and cancelled
                self._broken = self._broken or error
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._changed.set()

    async def _one_more(self) -> None:
        """Wait until a trial ends."""
        while not self._changed.is_set():
            try:
                await asyncio.wait_for(self._changed.wait(), min(WATCH_EVERY_S, self._watchdog_s))
            except TimeoutError:
                self._watch()
        self._changed.clear()

    def _watch(self) -> None:
        silent = self._clock() - self._last_end
        if silent <= self._watchdog_s:
            return
        pending = self._collector.pending
        what = "nothing is under way"
        if pending:
            oldest, (stage, since) = min(pending.items(), key=lambda item: item[1][1])
            what = f"the oldest, {oldest}, is in stage '{stage}' for {time.monotonic() - since:.0f} s"
        raise InfrastructureError(
            f"no rollout completed for {self._watchdog_s:g} s; {what} ({len(pending)} pending). "
            "Raise rollouts.watchdog_s if the tasks need longer"
        )

    # ----------------------------------------------------------------------------------------------------------------
    # Admitting

    def _trials(self) -> list[Trial]:
        return [Trial(position, out.version, out.order) for position, out in self._out.items()]

    def _show(self) -> None:
        if self._progress is not None:
            done = sum(out.rollout is not None for out in self._out.values())
            self._progress(min(done, self._rule.num_needed), self._rule.num_needed)

    async def _admit(self, step: int, positions: Sequence[int]) -> list[Rollout]:
        if self._ledger is not None:
            self._ledger.admitted(step, positions)
        admitted = [(out, out.rollout) for out in (self._out.pop(position) for position in positions)]
        rollouts = [rollout for _, rollout in admitted if rollout is not None]
        self.lags = Counter(step - out.version for out, _ in admitted)
        for rollout in rollouts:
            wall_s, turns = rollout.timings.wall_s, len(rollout.turns)
            self.bias.admitted(rollout.id.task, duration_s=wall_s, turns=turns, solved=rollout.outcome.solved)
        if self._rule.admission is Admission.FIRST:
            await self._drop(step)
        if self._progress is not None:
            self._progress(len(rollouts), self._rule.num_needed)
        return rollouts

    async def _drop(self, step: int) -> None:
        """Stop and forget everything that is still out: what `first` does to the slow."""
        left, self._out = self._out, {}
        ran_s = {}
        for position, out in sorted(left.items()):
            ran_s[position] = self._clock() - out.started if out.rollout is None else out.rollout.timings.wall_s
            solved = None if out.rollout is None else out.rollout.outcome.solved
            turns = None if out.rollout is None else len(out.rollout.turns)
            self.bias.dropped(out.launch.task.id, duration_s=ran_s[position], turns=turns, solved=solved)
        await self._cancel(list(left.values()))
        if self._ledger is not None:
            self._ledger.dropped(step, ran_s)

    async def _cancel(self, outs: Sequence[_Out]) -> None:
        """Cancel trials and confirm that they are gone (case F2)."""
        tasks = [out.running for out in outs if out.running is not None]
        for task in tasks:
            task.cancel()
        if not tasks:
            return
        _, alive = await asyncio.wait(tasks, timeout=CANCEL_TIMEOUT_S)
        if alive:
            raise InfrastructureError(
                f"{len(alive)} cancelled trials did not end within {CANCEL_TIMEOUT_S:.0f} s: "
                + ", ".join(sorted(task.get_name() for task in alive)[:5])
            )

    # ----------------------------------------------------------------------------------------------------------------
    # After a crash

    def _restore(self, step: int, batch: Sequence[Admitted]) -> list[Rollout]:
        """A batch that was admitted before the run was killed, from the ledger or from the step's file."""
        rollouts = [self._keep(unpack_rollout(trial.content)) for trial in batch if trial.content is not None]
        if len(rollouts) < len(batch):
            found = {rollout.id: rollout for rollout in self._stored(step) or ()}
            missing = [trial.rollout for trial in batch if trial.rollout not in found]
            if missing:
                raise RunError(f"step {step} admitted {len(batch)} rollouts, but {len(missing)} of them are not stored")
            rollouts = [found[trial.rollout] for trial in batch]
        self.lags = Counter(step - trial.version for trial in batch)
        self.recall(range(step, step + 1))
        return rollouts

    def recall(self, steps: range) -> None:
        """Let the bias meter know what the ledger says of earlier steps."""
        for trial in () if self._ledger is None else self._ledger.settled(steps):
            if trial.admitted:
                turns, solved = trial.turns or 0, bool(trial.solved)
                self.bias.admitted(trial.task, duration_s=trial.trial_s, turns=turns, solved=solved)
            else:
                self.bias.dropped(trial.task, duration_s=trial.trial_s, turns=trial.turns, solved=trial.solved)

    def _recover(self) -> None:
        """Finished trials wait for admission again; those that were running are launched again, same id and seed."""
        if self._ledger is None or self._recovered:
            return
        self._recovered = True
        for entry in self._ledger.unsettled():
            launch = self._launch_at(entry.position)
            if launch.rollout != entry.rollout:
                raise RunError(
                    f"position {entry.position} was {entry.rollout} and would now be {launch.rollout}: "
                    "the task pool or its order has changed since this run was started"
                )
            if entry.finished is None:
                self._launch(entry.position, Launch(launch.task, launch.rollout, entry.seed))
            else:
                content = self._keep(self._ledger.content(entry.position))
                self._out[entry.position] = _Out(
                    launch, entry.version, self._clock(), rollout=content, order=entry.finished
                )
