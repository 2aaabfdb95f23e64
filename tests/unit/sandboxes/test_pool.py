"""Bounded, paced, warm, leased: over the fake provider, without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from t1.errors import SandboxError, SandboxTimeout, SandboxUnavailable, SandboxVanished
from t1.sandboxes.pool import PoolLimits, SandboxPool, opened
from t1.testing.sandboxes import FakeSandboxProvider
from t1.types import Task


@pytest.fixture
def task(make_task: Callable[..., Task]) -> Task:
    return make_task()


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks work until the condition holds."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 (a fake has no events)
            await asyncio.sleep(0.001)


async def test_no_more_are_open_than_there_are_places(task: Task) -> None:
    fake = FakeSandboxProvider()
    pool = SandboxPool(fake, PoolLimits(max_open=2))
    first, second = await pool.open(task), await pool.open(task)
    third = asyncio.create_task(pool.open(task))
    await asyncio.sleep(0.01)
    assert len(fake.live) == 2
    await first.close()
    await first.close()
    assert (await third).id in fake.live
    assert len(fake.live) == 2
    await second.close()
    await pool.close()
    assert not fake.live


async def test_a_place_that_does_not_come_free_is_an_infrastructure_failure(task: Task) -> None:
    pool = SandboxPool(FakeSandboxProvider(), PoolLimits(max_open=1, wait_s=0.01))
    await pool.open(task)
    with pytest.raises(SandboxTimeout, match="1 of 1"):
        await pool.open(task)
    await pool.close()


async def test_the_verifier_never_waits_for_a_place_that_its_agent_holds(task: Task) -> None:
    pool = SandboxPool(FakeSandboxProvider(), PoolLimits(max_open=1, wait_s=0.01))
    sandbox = await pool.open(task)
    pristine = await pool.open_pristine(task, await sandbox.stop())
    assert pool.num_open == 2
    await pristine.close()
    await sandbox.close()
    assert pool.num_open == 0
    await pool.close()


async def test_an_open_that_fails_or_is_cancelled_gives_its_place_back(task: Task) -> None:
    pool = SandboxPool(FakeSandboxProvider(failures=[SandboxError("down")]), PoolLimits(max_open=1, wait_s=1.0))
    with pytest.raises(SandboxError, match="down"):
        await pool.open(task)
    held = await pool.open(task)
    waiting = asyncio.create_task(pool.open(task))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await held.close()
    await (await pool.open(task)).close()
    await pool.close()


async def test_warm_sandboxes_wait_ready_and_are_replaced_when_taken(task: Task) -> None:
    fake = FakeSandboxProvider()
    pool = SandboxPool(fake, PoolLimits(max_open=8, num_warm=2))
    await pool.warm(task)
    ready = set(fake.live)
    assert len(ready) == 2
    assert (await pool.open(task)).id in ready
    await until(lambda: len(fake.live) == 3)
    await pool.close()
    assert not fake.live


async def test_warming_takes_no_more_places_than_there_are_and_its_failures_are_the_next_opens(task: Task) -> None:
    fake = FakeSandboxProvider()
    pool = SandboxPool(fake, PoolLimits(max_open=1, num_warm=3))
    await pool.warm(task)
    assert len(fake.live) == 1
    await (await pool.open(task)).close()
    await pool.close()


async def test_opens_keep_the_pace(task: Task) -> None:
    fake = FakeSandboxProvider()
    pool = SandboxPool(fake, PoolLimits(opens_per_s=0.001))
    await pool.open(task)
    second = asyncio.create_task(pool.open(task))
    await asyncio.sleep(0.01)
    assert not second.done()
    assert len(fake.live) == 1
    second.cancel()
    await asyncio.wait([second])
    await pool.close()


async def test_a_task_that_was_opened_stays_warm_until_nobody_wants_it(task: Task) -> None:
    fake = FakeSandboxProvider()
    pool = SandboxPool(fake, PoolLimits(max_open=None, num_warm=1, ready_s=0.05))
    first = await pool.open(task)
    await until(lambda: len(fake.live) == 2)
    (ready,) = set(fake.live) - {first.id}
    second = await pool.open(task)
    assert second.id == ready
    await until(lambda: len(fake.live) == 3)
    await until(lambda: len(fake.live) == 2)
    await asyncio.sleep(0.1)
    assert set(fake.live) == {first.id, second.id}
    await second.run("true", timeout_s=1)
    await pool.close()
    assert not fake.live


async def test_a_ready_sandbox_makes_way_for_another_task(task: Task) -> None:
    fake = FakeSandboxProvider()
    pool = SandboxPool(fake, PoolLimits(max_open=1, num_warm=1, wait_s=1.0))
    await pool.warm(task)
    other = replace(task, digest="f" * 64)
    opened_id = (await pool.open(other)).id
    assert set(fake.live) == {opened_id}
    await pool.close()


async def test_a_lease_that_is_over_ends_the_sandbox_and_frees_its_place(task: Task) -> None:
    """Case F3: nobody closed it."""
    fake = FakeSandboxProvider()
    pool = SandboxPool(fake, PoolLimits(max_open=1, lease_s=0.01))
    forgotten = await pool.open(task)
    await until(lambda: not fake.live)
    with pytest.raises(SandboxVanished, match="lease is over"):
        await forgotten.run("true", timeout_s=1)
    assert (await pool.open(task)).id in fake.live
    await pool.close()


async def test_a_closed_pool_opens_nothing(task: Task) -> None:
    pool = SandboxPool(FakeSandboxProvider())
    await pool.close()
    with pytest.raises(SandboxUnavailable):
        await pool.open(task)


async def test_opened_closes_whatever_happens(task: Task) -> None:
    fake = FakeSandboxProvider()
    with pytest.raises(ValueError):
        async with opened(fake, task) as sandbox:
            assert sandbox.id in fake.live
            raise ValueError
    assert not fake.live
