"""A trainer whose ranks are posts: one process group over the cluster, spoken to as one Trainer.

Every call goes to all ranks at once, since each rank's part of it waits for the others'. A rank that is lost, raises or
is late ends all of them: what is left of a process group cannot go on, the run goes on from its last checkpoint.
Boundary: processes and calls; the maths, and what is sharded how, is the trainer's in each rank.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from t1.cluster.posts import Cluster, Needs, Post, Reservation
from t1.cluster.words import quoted
from t1.errors import InfrastructureError, ProcessLost
from t1.rollouts.background import LoopThread
from t1.types import Trajectory

Build: TypeAlias = Callable[[int, int], Any]
"""(rank, world) → the rank's trainer, made inside the open process group. Importable and picklable."""


CLOSE_S = 30.0
"""For the ranks to leave their group in order."""


GRACE_S = 2.0
"""After the first rank failed, for the cause to be known."""


@dataclass(frozen=True, slots=True)
class Gathering:
    """Where and as what a rank joins its group."""

    rank: int
    world: int
    address: str
    """tcp://host:port of rank 0."""
    device_type: str
    timeout_s: float


class RankSeat:
    """The object of a rank's post. All that it does happens in one thread, as devices and groups want it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="t1-rank")
        self._open = contextlib.ExitStack()
        self._trainer: Any = None

    async def free_port(self) -> int:
        """A port of this machine that nobody listens on."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            port: int = probe.getsockname()[1]
            return port

    async def join(self, gathering: Gathering, build: Build) -> None:
        """Open the group, and make the trainer in it."""
        await self._in_thread(self._join, gathering, build)

    async def ask(self, method: str, given: tuple[tuple[Any, ...], dict[str, Any]], answers: bool) -> Any:
        """A method (or an attribute) of the trainer; what it gives comes back from the rank that `answers`."""
        found = await self._in_thread(self._ask, method, *given)
        return found if answers else None

    async def pulse(self) -> bool:
        """Whether there is a trainer."""
        return self._trainer is not None

    async def aclose(self) -> None:
        """Leave the group."""
        self._trainer = None
        await self._in_thread(self._open.close)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _join(self, gathering: Gathering, build: Build) -> None:
        from t1.training.parallel.launch import group

        if "//127." in gathering.address:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self._open.enter_context(
            group(
                gathering.rank,
                gathering.world,
                gathering.address,
                device_type=gathering.device_type,
                timeout_s=gathering.timeout_s,
            )
        )
        self._trainer = build(gathering.rank, gathering.world)

    def _ask(self, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        found = getattr(self._trainer, method)
        return found(*arguments, **options) if callable(found) else found


async def seat() -> RankSeat:
    """The recipe of a rank's post."""
    return RankSeat()


class RankedTrainer:
    """A Trainer over ranks. Every call is bounded by `step_s`."""

    def __init__(
        self,
        cluster: Cluster,
        posts: Sequence[Post],
        reservation: Reservation,
        *,
        runner: LoopThread,
        step_s: float,
    ) -> None:
        """Use `open_ranks`."""
        self._cluster, self._posts, self._reservation = cluster, tuple(posts), reservation
        self._runner, self._step_s = runner, step_s

    @property
    def num_steps(self) -> int:
        """Steps that it took."""
        return int(self.tell("num_steps"))

    @property
    def gap_evidence(self) -> Any:
        """See `PPOTrainer.gap_evidence`."""
        return self.tell("gap_evidence")

    @property
    def credit(self) -> Any:
        """See `PPOTrainer.credit`."""
        return self.tell("credit")

    def step(self, rollouts: Sequence[tuple[Sequence[Trajectory], float]]) -> Mapping[str, float]:
        """See `protocols.Trainer.step`. Stored rollouts travel as a path, and each rank reads its own packs."""
        stats: Mapping[str, float] = self.tell("step", rollouts)
        return stats

    def save(self, path: Path, *, tokenizer_from: Path | None = None) -> None:
        """See `PPOTrainer.save`. The ranks' machines must see both paths."""
        source = None if tokenizer_from is None else tokenizer_from.absolute()
        self.tell("save", path.absolute(), tokenizer_from=source)

    def load(self, path: Path) -> None:
        """See `protocols.Trainer.load`."""
        self.tell("load", path.absolute())

    def weights(self) -> Mapping[str, Any]:
        """See `protocols.Trainer.weights`."""
        weights: Mapping[str, Any] = self.tell("weights")
        return weights

    def close(self) -> None:
        """End the ranks. Safe to call twice."""
        self._runner.run(self._end(CLOSE_S))

    def tell(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of every rank's trainer, or ask for an attribute; rank 0's answer."""
        return self._runner.run(self._together(method, (arguments, options)))

    async def _together(self, method: str, given: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        """One call on every rank; rank 0's answer. The first that fails ends all."""
        if not self._posts:
            raise InfrastructureError("the trainer's ranks have ended; go on from the last checkpoint with --resume")
        shared = await self._cluster.share(given)
        try:
            calls = [
                asyncio.create_task(post.call("ask", method, shared, rank == 0))
                for rank, post in enumerate(self._posts)
            ]
            return (await self._all_or_none(method, calls))[0]
        finally:
            await shared.forget()

    async def _all_or_none(self, what: str, calls: Sequence[asyncio.Task[Any]]) -> list[Any]:
        """The results by rank. A rank that fails or is late ends every rank, and its reason is raised."""
        done, late = await asyncio.wait(calls, timeout=self._step_s, return_when=asyncio.FIRST_EXCEPTION)
        if not late and not any(call.exception() for call in calls):
            return [call.result() for call in calls]
        if any(call.exception() for call in done) and late:  # a lost rank is known by its peers' complaints first
            done |= (await asyncio.wait(late, timeout=GRACE_S))[0]
        broken = [(rank, call.exception()) for rank, call in enumerate(calls) if call in done and call.exception()]
        broken.sort(key=lambda one: not isinstance(one[1], ProcessLost))
        posts = self._posts
        await self._end()  # before the others are cancelled: they wait in collectives and would not hear of it
        await asyncio.gather(*calls, return_exceptions=True)
        if not broken:
            ranks = [rank for rank, call in enumerate(calls) if call in late]
            raise InfrastructureError(f"ranks {ranks} were not done with '{what}' after {self._step_s:g} s")
        rank, error = broken[0]
        if isinstance(error, ProcessLost):
            words = quoted(await self._cluster.last_words(posts[rank]))
            raise InfrastructureError(
                f"rank {rank} of the trainer was lost during '{what}': {error}. Go on from the last checkpoint with "
                f"--resume{words}"
            ) from error
        assert error is not None
        raise error

    async def _end(self, timeout_s: float = 0.0) -> None:
        posts, self._posts = self._posts, ()
        await asyncio.gather(*(self._cluster.stop(post, timeout_s=timeout_s) for post in posts))
        await self._reservation.release()


async def _cause(cluster: Cluster, posts: Sequence[Post], group: ExceptionGroup[Exception]) -> Exception:
    """Why ranks did not meet: what a rank said, or how one was lost; peers only complain of each other."""
    lost = [error for error in group.exceptions if isinstance(error, ProcessLost)]
    if not lost:
        return group.exceptions[0]
    said = [quoted(await cluster.last_words(post)) for post in posts]
    return InfrastructureError(f"a rank of the trainer was lost before it was made: {lost[0]}{max(said, key=len)}")


async def open_ranks(
    cluster: Cluster,
    build: Build,
    *,
    num_ranks: int,
    needs: Needs,
    runner: LoopThread,
    device_type: str = "cpu",
    start_s: float = 600.0,
    step_s: float = 7200.0,
    name: str = "trainer",
) -> RankedTrainer:
    """Start the ranks in one reservation, let them meet at rank 0, and make a trainer in each.

    Run it in `runner`, which the trainer is called through afterwards. InfrastructureError, with nothing left behind,
    when some rank does not come.
    """
    reservation = await cluster.reserve(num_ranks, needs, timeout_s=start_s)
    posts: list[Post] = []
    try:
        async with asyncio.timeout(start_s):
            for rank in range(num_ranks):
                place = (reservation, rank)
                posts.append(await cluster.start(f"{name}-{rank}", seat, needs, timeout_s=start_s, within=place))
            address = f"tcp://{await posts[0].where()}:{await posts[0].call('free_port')}"
            async with asyncio.TaskGroup() as group:
                for rank, post in enumerate(posts):
                    meet = Gathering(rank, num_ranks, address, device_type, step_s)
                    group.create_task(post.call("join", meet, build))
    except BaseException as error:
        await asyncio.gather(*(cluster.stop(post, timeout_s=0.0) for post in posts))
        await reservation.release()
        if isinstance(error, TimeoutError):
            raise InfrastructureError(f"the trainer's {num_ranks} ranks did not meet within {start_s:g} s") from None
        if isinstance(error, ExceptionGroup):
            error = await _cause(cluster, posts, error)
        raise error
    return RankedTrainer(cluster, posts, reservation, runner=runner, step_s=step_s)
