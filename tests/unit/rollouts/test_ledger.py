"""The ledger: through a crash at any instant, every launch is made, every rollout admitted and learned from, once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from t1.errors import RunError
from t1.rollouts.admission import Admission, Rule
from t1.rollouts.cost import Prices, Usage, total, usage_of
from t1.rollouts.ledger import Entry, Ledger
from t1.rollouts.pool import Launch, Pool
from t1.testing.clocks import simulate
from t1.testing.collectors import Fate, TimedCollector
from t1.testing.tasks import example_task
from t1.types import Rollout, RolloutId

TASKS = [example_task(name) for name in "abc"]
NUM_NEEDED, NUM_STEPS = 4, 5


def launch_at(position: int) -> Launch:
    task = TASKS[position % 3]
    return Launch(task, RolloutId(task.id, position, 0), position)


def fate_of(rollout: RolloutId) -> Fate:
    return Fate(float(np.random.default_rng(rollout.group).exponential(10.0)), solved=rollout.group % 2 == 0)


class Killed(Exception):
    """The process died here."""


async def run(folder: Path, admission: Admission, *, seconds: float, learned: dict[int, list[RolloutId]]) -> None:
    """A run that starts or goes on, and dies after so many seconds. `learned`: what the weights on disk have seen."""
    version = len(learned)
    stored: dict[int, list[Rollout]] = {}
    with closing(Ledger(folder / "ledger.sqlite")) as ledger:
        ledger.rewind(version)
        pool = Pool(
            TimedCollector(fate_of), launch_at, Rule(admission, NUM_NEEDED, 2, 1.5), version=lambda: version,
            ledger=ledger, max_concurrent=5, watchdog_s=1e9, stored=stored.get, clock=asyncio.get_running_loop().time,
        )  # fmt: skip
        try:
            async with asyncio.timeout(seconds):
                for step in range(version, NUM_STEPS):
                    rollouts = await pool.next(step)
                    await asyncio.sleep(3.0)  # the trainer; a checkpoint follows at once
                    learned[step] = [rollout.id for rollout in rollouts]
                    version = step + 1
        except TimeoutError:
            raise Killed from None
        finally:
            for out in pool._out.values():  # a killed process closes nothing, and says nothing to the ledger
                if out.running is not None:
                    out.running.cancel()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(admission=st.sampled_from(list(Admission)), kills=st.lists(st.floats(0.1, 40.0), max_size=6))
def test_killed_anywhere_every_rollout_is_consumed_once(
    tmp_path_factory: pytest.TempPathFactory, admission: Admission, kills: list[float]
) -> None:
    """Case B1."""
    folder = tmp_path_factory.mktemp("run")
    learned: dict[int, list[RolloutId]] = {}
    for seconds in [*kills, 1e6]:
        try:
            simulate(run(folder, admission, seconds=seconds, learned=learned))
        except Killed:
            continue
    consumed = Counter(rollout for batch in learned.values() for rollout in batch)
    assert len(learned) == NUM_STEPS and set(consumed.values()) == {1}
    with closing(Ledger(folder / "ledger.sqlite")) as ledger:
        counts = ledger.counts()
        assert counts["admitted"] == consumed.total()
        assert ledger.next_position() == sum(counts.values()), "no position was left out"
        if admission is not Admission.FIRST:
            assert "dropped" not in counts


def a_rollout(position: int = 0) -> Rollout:
    result, _ = simulate(TimedCollector(fate_of).collect(TASKS[0], launch_at(position).rollout))
    return result


@pytest.fixture
def ledger(tmp_path: Path):
    with closing(Ledger(tmp_path / "ledger.sqlite")) as made:
        yield made


def finish(ledger: Ledger, position: int) -> Rollout:
    rollout = a_rollout(position)
    ledger.launched(Entry(position, rollout.id, position, 0, None))
    ledger.finished(position, rollout, usage_of(rollout), order=position)
    return rollout


def test_what_was_never_finished_cannot_be_admitted(ledger: Ledger) -> None:
    finish(ledger, 0)
    ledger.launched(Entry(1, launch_at(1).rollout, None, 0, None))
    with pytest.raises(RunError, match="position 1 was not free"):
        ledger.admitted(0, [0, 1])
    assert ledger.batch(0) == [], "all of a batch or nothing of it"


def test_what_was_admitted_cannot_be_admitted_again(ledger: Ledger) -> None:
    finish(ledger, 0)
    ledger.admitted(0, [0])
    with pytest.raises(RunError, match="disagree"):
        ledger.admitted(1, [0])


def test_a_content_is_kept_until_the_update_that_used_it_is_on_record(ledger: Ledger) -> None:
    rollout = finish(ledger, 0)
    assert ledger.content(0) == rollout
    ledger.admitted(0, [0])
    assert [trial.content is None for trial in ledger.batch(0)] == [False]
    ledger.updated(0, 1)
    assert [trial.content is None for trial in ledger.batch(0)] == [True]


def test_a_ledger_of_another_format_or_no_ledger_at_all_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be taken for one" * 50)
    with pytest.raises(RunError, match="cannot be opened as a ledger"):
        Ledger(tmp_path / "text")
    with closing(sqlite3.connect(tmp_path / "later")) as database:
        database.execute("PRAGMA user_version=99")
    with pytest.raises(RunError, match="format 99"):
        Ledger(tmp_path / "later")


def test_a_changed_pool_is_refused_and_not_trained_under_another_name(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
        ledger.launched(Entry(0, RolloutId("gone", 0, 0), 1, 0, None))

        async def go_on() -> None:
            pool = Pool(
                TimedCollector(fate_of), launch_at, Rule(Admission.ALL, 1, 0), version=lambda: 0, ledger=ledger,
                max_concurrent=1, watchdog_s=1e9,
            )  # fmt: skip
            await pool.next(0)

        with pytest.raises(RunError, match="the task pool or its order has changed"):
            simulate(go_on())


def test_money_is_what_the_price_table_says() -> None:
    rollout = a_rollout()
    assert usage_of(rollout).money == 0
    prices = Prices(sandbox_per_hour=3600.0)
    assert usage_of(rollout, prices).money == pytest.approx(rollout.timings.wall_s)
    assert total([usage_of(rollout, prices)] * 3).money == pytest.approx(3 * rollout.timings.wall_s)
    assert total([]) == Usage()
