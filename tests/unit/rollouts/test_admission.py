"""Admission: who makes a batch, what it does to the batch, and the meter that shows it."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1.rollouts.admission import Admission, Rule, Trial
from t1.rollouts.bias import BiasMeter
from t1.rollouts.pool import Launch, Pool
from t1.testing.clocks import simulate
from t1.testing.collectors import Fate, TimedCollector
from t1.testing.tasks import example_task
from t1.types import Rollout, RolloutId

TASKS = [example_task(f"t{index:02d}") for index in range(40)]


def trials(*finished: int | None, version: int = 0) -> list[Trial]:
    return [Trial(position, version, order) for position, order in enumerate(finished)]


def test_first_takes_whoever_is_done_first() -> None:
    chosen = Rule(Admission.FIRST, 2, 0).choose(trials(3, None, 0, 1), 0)
    assert chosen is not None and [t.position for t in chosen] == [2, 3]


def test_all_waits_for_everyone() -> None:
    rule = Rule(Admission.ALL, 2, 0, oversample=2.0)
    assert rule.choose(trials(3, None, 0, 1), 0) is None
    assert rule.choose(trials(3, 2, 0, 1), 0) == trials(3, 2, 0, 1)


def test_carry_waits_for_those_that_would_be_too_old_for_the_next_step() -> None:
    rule = Rule(Admission.CARRY, 2, 1)
    old, new = Trial(0, 4), [Trial(1, 5, 0), Trial(2, 5, 1)]
    assert rule.choose([old, *new], 5) is None
    finished = Trial(0, 4, 2)
    assert rule.choose([finished, *new], 5) == [finished, new[0]]


def test_carry_without_lag_is_on_policy() -> None:
    rule = Rule(Admission.CARRY, 2, 0)
    assert rule.choose(trials(0, 1, None), 0) is None
    assert rule.choose(trials(0, 1, 2), 0) == trials(0, 1, 2)


@pytest.mark.parametrize("bad", [{"num_needed": 0}, {"max_lag": -1}, {"oversample": 0.5}, {"oversample": float("nan")}])
def test_senseless_numbers_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="num_needed ≥ 1"):
        Rule(Admission.CARRY, **({"num_needed": 1, "max_lag": 0} | bad))  # type: ignore[arg-type]


def hardness_of(task: str) -> float:
    """0 to 1: tasks of this suite are known."""
    return int(task[1:]) / len(TASKS)


def fate_of(rollout: RolloutId) -> Fate:
    """Hard tasks take longer and fail more often; the draw is the same for every policy."""
    rng = np.random.default_rng([7, rollout.group])
    hard = hardness_of(rollout.task)
    return Fate(float(rng.gamma(4.0, 2.0 + 10.0 * hard)), solved=bool(rng.random() > hard))


class Outcome:
    """What a simulated run of an admission policy came to."""

    def __init__(self, admission: Admission, *, max_lag: int = 2, oversample: float = 1.5, num_steps: int = 40) -> None:
        self.collector = TimedCollector(fate_of)
        self.batches: list[list[Rollout]] = []
        self.lags: list[int] = []
        self.version = 0
        rule = Rule(admission, num_needed=32, max_lag=max_lag, oversample=oversample)
        self.metrics, self.seconds = simulate(self._run(rule, num_steps))

    async def _run(self, rule: Rule, num_steps: int) -> dict[str, float]:
        pool = Pool(
            self.collector,
            lambda p: Launch(TASKS[p * 17 % len(TASKS)], RolloutId(TASKS[p * 17 % len(TASKS)].id, p, 0), p),
            rule,
            version=lambda: self.version,
            max_concurrent=64,
            watchdog_s=1e9,
            clock=asyncio.get_running_loop().time,
        )
        for step in range(num_steps):
            self.batches.append(await pool.next(step))
            self.lags += list(pool.lags.elements())
            await asyncio.sleep(20.0)  # the trainer
            self.version = step + 1
        metrics = pool.metrics()
        await pool.close()
        return metrics

    @property
    def hardness(self) -> float:
        """Mean over the admitted."""
        return float(np.mean([hardness_of(r.id.task) for batch in self.batches for r in batch]))

    @property
    def rate(self) -> float:
        """Admitted rollouts a second."""
        return sum(map(len, self.batches)) / self.seconds


def test_first_is_biased_and_carry_is_not_at_the_same_throughput() -> None:
    """Case B2: a suite of known hardness, mean 0.49."""
    first, carry = Outcome(Admission.FIRST), Outcome(Admission.CARRY)
    started = float(np.mean([hardness_of(rollout.task) for rollout in first.collector.started]))
    assert first.hardness < 0.9 * started, (first.hardness, started)
    assert carry.hardness == pytest.approx(started, abs=0.01)
    assert carry.rate > 0.95 * first.rate, (carry.rate, first.rate)
    assert first.metrics["bias_duration"] < -0.1 and first.metrics["bias_task"] < -0.02
    assert first.metrics["admitted_share"] < 0.75
    assert carry.metrics["bias_duration"] == carry.metrics["bias_task"] == carry.metrics["bias_outcome"] == 0.0
    assert carry.metrics["admitted_share"] == 1.0


def test_carry_admits_every_trial_once_and_within_its_lag() -> None:
    run = Outcome(Admission.CARRY, max_lag=2)
    admitted = [rollout.id for batch in run.batches for rollout in batch]
    assert len(set(admitted)) == len(admitted)
    assert len(run.collector.started) - len(admitted) <= 48, "only what was still out at the end"
    assert not set(run.collector.cancelled) & set(admitted)
    assert max(run.lags) <= 2 and min(run.lags) >= 0


@given(
    admission=st.sampled_from([Admission.CARRY, Admission.FIRST]),
    num_needed=st.integers(1, 6),
    max_lag=st.integers(0, 3),
    oversample=st.floats(1, 3),
    seed=st.integers(0, 99),
)
def test_whatever_the_numbers_no_trial_is_admitted_twice_or_too_late(
    admission: Admission, num_needed: int, max_lag: int, oversample: float, seed: int
) -> None:
    collector = TimedCollector(lambda r: Fate(float(np.random.default_rng([seed, r.group]).exponential(10.0))))
    rule = Rule(admission, num_needed, max_lag, oversample)

    async def run() -> None:
        version, seen = 0, set()
        pool = Pool(
            collector, lambda p: Launch(TASKS[0], RolloutId("t00", p, 0), None), rule, version=lambda: version,
            max_concurrent=8, watchdog_s=1e9, clock=asyncio.get_running_loop().time,
        )  # fmt: skip
        for step in range(6):
            version = step
            batch = {rollout.id for rollout in await pool.next(step)}
            assert len(batch) >= num_needed and not batch & seen
            seen |= batch
            if admission is Admission.CARRY:
                assert all(0 <= lag <= max_lag for lag in pool.lags)
        await pool.close()

    simulate(run())


def test_the_meter_is_silent_where_nothing_was_dropped() -> None:
    meter = BiasMeter()
    for seconds in (1.0, 9.0):
        meter.admitted("a", duration_s=seconds, turns=3, solved=True)
    assert meter.metrics() == {
        "admitted_share": 1.0,
        "bias_duration": 0.0,
        "bias_turns": 0.0,
        "bias_task": 0.0,
        "bias_outcome": 0.0,
    }


def test_the_meter_counts_a_dropped_trial_by_what_it_had_run_and_what_its_task_had_shown() -> None:
    meter = BiasMeter()
    meter.admitted("easy", duration_s=1.0, turns=2, solved=True)
    meter.admitted("hard", duration_s=3.0, turns=6, solved=False)
    meter.admitted("easy", duration_s=1.0, turns=2, solved=True)
    meter.dropped("hard", duration_s=7.0, turns=12)
    found = meter.metrics()
    assert found["admitted_share"] == 0.75
    assert found["bias_duration"] == pytest.approx((5 / 3) / 3 - 1)
    assert found["bias_turns"] == pytest.approx((10 / 3) / (22 / 4) - 1)
    assert found["bias_task"] == pytest.approx(0.0 - 0.5)  # known before: easy 0, hard 1
    assert found["bias_outcome"] == 0.0  # nobody knows how the dropped one would have ended
    meter.dropped("hard", duration_s=7.0)
    assert meter.metrics()["bias_turns"] == found["bias_turns"]  # nor how many turns it would have taken
