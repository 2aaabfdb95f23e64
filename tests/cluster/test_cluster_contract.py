"""What every cluster promises, held by subprocesses and by Ray's actors alike."""

from __future__ import annotations

import asyncio
import contextlib
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from t1.cluster.posts import Cluster, Needs
from t1.errors import ProcessLost, SandboxUnavailable, TaskError
from t1.testing.echo import echo, refuse

NEEDS = Needs(cpus=1)
BOUND_S = 60.0


async def test_a_post_answers_from_a_process_of_its_own(cluster: Cluster) -> None:
    post = await cluster.start("one", echo, NEEDS, timeout_s=BOUND_S)
    assert await post.call("say", {"a": (1, 2)}) == {"a": (1, 2)}
    assert await post.call("pid") != os.getpid()
    assert await post.where()
    await post.hang_up()


async def test_an_error_arrives_as_what_it_was(cluster: Cluster) -> None:
    post = await cluster.start("one", echo, NEEDS, timeout_s=BOUND_S)
    with pytest.raises(TaskError) as caught:
        await post.call("complain", Path("task.toml"))
    assert (caught.value.path, caught.value.key) == (Path("task.toml"), "some.key")
    assert "in complain" in "".join(caught.value.__notes__)
    with pytest.raises(AttributeError, match="public"):
        await post.call("_mark", "x")
    await post.hang_up()


async def test_a_recipe_that_fails_says_why_and_leaves_nothing(cluster: Cluster) -> None:
    with pytest.raises(SandboxUnavailable, match="no sandboxes here"):
        await cluster.start("one", refuse, NEEDS, timeout_s=BOUND_S)
    with pytest.raises(ProcessLost):
        await cluster.post("one").call("say", 1)


async def test_a_cancelled_call_is_cancelled_there_before_the_caller_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    """Case F2."""
    post = await cluster.start("one", partial(echo, tmp_path), NEEDS, timeout_s=BOUND_S)
    call = asyncio.create_task(post.call("wait", 60.0, "it"))
    assert await post.call("say", 1) == 1  # it has begun
    await asyncio.sleep(0.2)
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call
    assert (tmp_path / "it was cancelled").exists()
    await post.hang_up()


async def test_every_call_of_a_process_that_dies_ends_with_process_lost(cluster: Cluster) -> None:
    post = await cluster.start("one", echo, NEEDS, timeout_s=BOUND_S)
    calls = [asyncio.create_task(post.call("wait", 600.0, "it")) for _ in range(5)]
    await post.call("say", 1)
    with pytest.raises(ProcessLost):
        await post.call("die")
    results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), BOUND_S)
    assert [type(error) for error in results] == [ProcessLost] * 5


async def test_a_name_finds_the_process_that_was_started_anew(cluster: Cluster) -> None:
    first = await cluster.start("one", echo, NEEDS, timeout_s=BOUND_S)
    elsewhere = cluster.post("one")
    before = await elsewhere.call("pid")
    with contextlib.suppress(ProcessLost):
        await first.call("die")
    with contextlib.suppress(ProcessLost):
        await elsewhere.call("say", 1)
    again = await cluster.start("one", echo, NEEDS, timeout_s=BOUND_S)
    assert await elsewhere.call("pid") == await again.call("pid") != before
    for post in (first, elsewhere, again):
        await post.hang_up()


async def test_a_post_that_was_sent_to_another_post_works_there(cluster: Cluster) -> None:
    one = await cluster.start("one", echo, NEEDS, timeout_s=BOUND_S)
    two = await cluster.start("two", echo, NEEDS, timeout_s=BOUND_S)
    back = await two.call("say", one)
    assert await back.call("pid") == await one.call("pid") != await two.call("pid")
    for post in (one, two, back):
        await post.hang_up()


async def test_a_shared_value_arrives_as_itself(cluster: Cluster) -> None:
    post = await cluster.start("one", echo, NEEDS, timeout_s=BOUND_S)
    shared = await cluster.share({"a": np.ones((300, 300)), "b": np.ones(5)})
    assert await post.call("total", shared) == 90_005.0
    await shared.forget()
    await shared.forget()
    await post.hang_up()


async def test_what_a_process_said_last_is_known_when_it_is_gone(cluster: Cluster) -> None:
    post = await cluster.start("one", echo, NEEDS, timeout_s=BOUND_S)
    with pytest.raises(ProcessLost):
        await post.call("die", "first\nand last\n")
    assert (await cluster.last_words(post)).endswith("first\nand last")
    assert await cluster.last_words(cluster.post("nobody")) == ""
    await post.hang_up()


async def test_stopping_closes_the_object_and_ends_the_process(cluster: Cluster, tmp_path: Path) -> None:
    post = await cluster.start("one", partial(echo, tmp_path), NEEDS, timeout_s=BOUND_S)
    await cluster.stop(post, timeout_s=BOUND_S)
    assert (tmp_path / "closed").exists()
    with pytest.raises(ProcessLost):
        await cluster.post("one").call("say", 1)


async def test_a_reservation_has_room_for_all_of_its_processes(cluster: Cluster) -> None:
    reservation = await cluster.reserve(2, NEEDS, timeout_s=BOUND_S)
    posts = [
        await cluster.start(f"rank-{place}", echo, NEEDS, timeout_s=BOUND_S, within=(reservation, place))
        for place in range(2)
    ]
    assert len({await post.call("pid") for post in posts}) == 2
    for post in posts:
        await cluster.stop(post, timeout_s=BOUND_S)
    await reservation.release()


async def test_room_is_counted_in_whole_processes(cluster: Cluster) -> None:
    one, big = cluster.room(Needs(cpus=1)), cluster.room(Needs(cpus=3))
    assert one >= 4 and 1 <= big < one
