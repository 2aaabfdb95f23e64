"""Posts as Ray actors, placed by their needs; ranks of a trainer in a placement group. The only module that knows Ray.

Boundary: Ray starts processes, finds them by name and carries values between nodes; it restarts nothing. What is lost
is found out by a failed call or a missing pulse, and started anew by the roster that owns it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # an actor without a GPU keeps the environment's view
if (
    any(map(os.environ.get, ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")))
    or Path("~/.ray/auth_token").expanduser().is_file()
):
    # Ray's own rule; `ray.init` applies it too late to join a cluster, which then refuses it (2.60).
    os.environ.setdefault("RAY_AUTH_MODE", "token")

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from t1.cluster.hosting import CANCEL_S, Host, Reply, failed
from t1.cluster.posts import Needs, Place, Post, Recipe, Reservation, Shared
from t1.cluster.words import log_path, tail
from t1.errors import InfrastructureError, ProcessLost
from t1.rollouts.background import LoopThread

CALLS = 10_000
"""How many calls one actor may have under way."""
FIND_S = 30.0
"""For the cluster to say where an actor is."""


class _Actor:
    """The inside of an actor. Its object lives in a loop of its own, as in a local post."""

    def __init__(self, recipe: Recipe, log: Path | None) -> None:
        if log is not None and log.parent.is_dir():
            with log.open("ab") as file:
                os.dup2(file.fileno(), 2)
        self._runner = LoopThread("t1-post")
        self._host: Host | None = None
        try:
            self._host = Host(self._runner.run(recipe()))
            self._made = Reply()
        except Exception as error:
            self._made = failed(error)

    async def made(self) -> Reply:
        """What became of the recipe."""
        return self._made

    async def invoke(self, call: str, method: str, arguments: tuple[Any, ...]) -> Reply:
        """See `Host.invoke`."""
        assert self._host is not None
        return await asyncio.wrap_future(self._runner.start(self._host.invoke(call, method, arguments)))

    async def cancel(self, call: str) -> None:
        """See `Host.cancel`."""
        assert self._host is not None
        await asyncio.wrap_future(self._runner.start(self._host.cancel(call)))

    async def where(self) -> str:
        """The address of this node."""
        return str(ray.util.get_node_ip_address())

    async def close(self) -> None:
        """See `Host.close`."""
        if self._host is not None:
            await asyncio.wrap_future(self._runner.start(self._host.close()))


class RayPost:
    """See `posts.Post`. It looks its actor up by name, and again once that actor is lost."""

    def __init__(self, name: str, namespace: str, actor: Any = None) -> None:
        self.name, self._namespace = name, namespace
        self._actor = actor
        self._calling = secrets.token_hex(6)
        self._numbers = itertools.count()

    def __reduce__(self) -> tuple[type[RayPost], tuple[str, str]]:
        return RayPost, (self.name, self._namespace)

    async def call(self, method: str, *arguments: Any) -> Any:
        """See `posts.Post.call`."""
        call = f"{self._calling}-{next(self._numbers)}"
        actor = await self._found()
        asked = asyncio.ensure_future(_answer(actor.invoke.remote(call, method, arguments)))
        try:
            reply: Reply = await asyncio.shield(asked)
        except RayError as error:
            raise self._lost(error) from error
        except asyncio.CancelledError:
            with contextlib.suppress(RayError):
                await _answer(actor.cancel.remote(call))
            await asyncio.wait({asked}, timeout=CANCEL_S)
            if asked.done() and not asked.cancelled():
                asked.exception()  # seen
            raise
        return reply.unwrap()

    async def where(self) -> str:
        """See `posts.Post.where`."""
        actor = await self._found()
        try:
            return str(await _answer(actor.where.remote()))
        except RayError as error:
            raise self._lost(error) from error

    async def hang_up(self) -> None:
        """See `posts.Post.hang_up`."""
        self._actor = None

    async def end(self, timeout_s: float) -> None:
        """Close the actor's object within the bound, then kill the actor."""
        try:
            actor = await self._found()
            if timeout_s:
                await asyncio.wait_for(_answer(actor.close.remote()), timeout_s)
        except (ProcessLost, RayError, TimeoutError):
            pass
        if self._actor is not None:
            await asyncio.to_thread(ray.kill, self._actor)
        self._actor = None

    async def _found(self) -> Any:
        if self._actor is None:
            try:
                async with asyncio.timeout(FIND_S):
                    self._actor = await asyncio.to_thread(ray.get_actor, self.name, self._namespace)
            except (ValueError, RayError, TimeoutError) as error:
                raise ProcessLost(f"{self.name}: no actor has this name now: {error}") from error
        return self._actor

    def _lost(self, error: Exception) -> ProcessLost:
        self._actor = None
        return ProcessLost(f"{self.name}: its actor is gone: {_said(error)}")


class RayShared:
    """See `posts.Shared`: an object of Ray's store, which nodes fetch from one another."""

    def __init__(self, boxed: list[Any]) -> None:
        self._boxed = boxed

    async def load(self) -> Any:
        """See `posts.Shared.load`."""
        try:
            return await _answer(self._boxed[0])
        except RayError as error:
            raise ProcessLost(f"a shared value was lost with its node: {_said(error)}") from error

    async def forget(self) -> None:
        """See `posts.Shared.forget`."""
        self._boxed.clear()


class RayReservation:
    """See `posts.Reservation`: a placement group."""

    def __init__(self, group: Any) -> None:
        self.group = group

    async def release(self) -> None:
        """See `posts.Reservation.release`."""
        await asyncio.to_thread(remove_placement_group, self.group)


class RayCluster:
    """See `posts.Cluster`. Actors end with the driver."""

    def __init__(self, *, address: str = "", namespace: str = "", logs: Path | None = None) -> None:
        """Join the Ray cluster at `address`; empty = the one that RAY_ADDRESS names, or one of this machine alone.

        `logs`: where each actor's standard error is kept, on machines that see this directory; None = Ray's own logs.
        """
        self._logs = logs
        self._namespace = namespace or f"t1-{secrets.token_hex(6)}"
        self._posts: dict[str, RayPost] = {}
        self._owner = not ray.is_initialized()
        if self._owner:
            options: dict[str, Any] = {"address": address or None}
            if not address and "RAY_ADDRESS" not in os.environ:
                # Without "local" Ray would join whatever cluster it finds on this machine.
                options = {"address": "local", "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
            try:
                ray.init(
                    namespace=self._namespace,
                    log_to_driver=False,
                    configure_logging=False,
                    **options,
                )
            except Exception as error:  # Ray's own are of no common class
                where = f"the Ray cluster at {address}" if address else "a Ray cluster"
                raise InfrastructureError(f"{where} cannot be joined or started: {_said(error)}") from error

    def room(self, needs: Needs) -> int:
        """See `posts.Cluster.room`: node by node, since a process does not span nodes."""
        return sum(_fits(node.get("Resources", {}), needs) for node in ray.nodes() if node["Alive"])

    async def reserve(self, number: int, needs: Needs, *, timeout_s: float) -> Reservation:
        """See `posts.Cluster.reserve`. Neighbours where possible: ranks talk to one another."""
        bundle = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory_mb * 2**20}
        bundle = {kind: amount for kind, amount in bundle.items() if amount}
        group = await asyncio.to_thread(placement_group, [bundle] * number, strategy="PACK")
        try:
            async with asyncio.timeout(timeout_s):
                await _answer(group.ready())
        except (TimeoutError, RayError) as error:
            await asyncio.to_thread(remove_placement_group, group)
            raise InfrastructureError(
                f"the Ray cluster has no room for {number} processes of {bundle} within {timeout_s:g} s: it has "
                f"{ray.cluster_resources()}"
            ) from error
        return RayReservation(group)

    async def start(
        self,
        name: str,
        recipe: Recipe,
        needs: Needs,
        *,
        timeout_s: float,
        within: Place | None = None,
    ) -> Post:
        """See `posts.Cluster.start`. Processes outside reservations are spread over the nodes."""
        strategy: Any = "SPREAD"
        if within is not None:
            reservation, place = within
            assert isinstance(reservation, RayReservation)
            strategy = PlacementGroupSchedulingStrategy(reservation.group, placement_group_bundle_index=place)
        options = {
            "name": name,
            "namespace": self._namespace,
            "num_cpus": needs.cpus,
            "num_gpus": needs.gpus,
            "memory": needs.memory_mb * 2**20 or None,
            "max_concurrency": CALLS,
            "max_restarts": 0,
            "scheduling_strategy": strategy,
        }
        post: RayPost | None = None
        try:
            async with asyncio.timeout(timeout_s):
                actor = await self._named(name, options, recipe)
                post = self._posts[name] = RayPost(name, self._namespace, actor)
                reply: Reply = await _answer(actor.made.remote())
        except BaseException as error:
            if post is not None:
                await post.end(0.0)
            if isinstance(error, TimeoutError):
                raise ProcessLost(
                    f"{name}: no node had room for {needs}, or it took longer than {timeout_s:g} s"
                ) from None
            if isinstance(error, RayError):
                raise ProcessLost(f"{name}: died while it started: {_said(error)}") from error
            raise
        if reply.error is not None:
            await post.end(0.0)
        reply.unwrap()
        return post

    async def _named(self, name: str, options: dict[str, Any], recipe: Recipe) -> Any:
        """A new actor of this name, once an earlier one has given it back."""
        if (earlier := self._posts.pop(name, None)) is not None:
            await earlier.end(0.0)
        make = ray.remote(_Actor).options(**options)
        while True:
            try:
                return await asyncio.to_thread(make.remote, recipe, self._log(name))
            except ValueError:  # the name is taken: an earlier one is about to end
                await RayPost(name, self._namespace).end(0.0)
                await asyncio.sleep(0.2)

    def post(self, name: str) -> Post:
        """See `posts.Cluster.post`."""
        return RayPost(name, self._namespace)

    async def stop(self, post: Post, *, timeout_s: float) -> None:
        """See `posts.Cluster.stop`."""
        assert isinstance(post, RayPost)
        if self._posts.get(post.name) is post:
            del self._posts[post.name]
        await post.end(timeout_s)

    async def last_words(self, post: Post) -> str:
        """See `posts.Cluster.last_words`."""
        log = self._log(post.name)
        return "" if log is None else await asyncio.to_thread(tail, log)

    def _log(self, name: str) -> Path | None:
        return None if self._logs is None else log_path(self._logs.absolute(), name)

    async def share(self, value: Any) -> Shared:
        """See `posts.Cluster.share`."""
        return RayShared([await asyncio.to_thread(ray.put, value)])

    async def close(self) -> None:
        """See `posts.Cluster.close`. Ray itself is left only where it was joined here."""
        posts, self._posts = list(self._posts.values()), {}
        await asyncio.gather(*(post.end(CANCEL_S) for post in posts))
        if self._owner and ray.is_initialized():
            await asyncio.to_thread(ray.shutdown)


def _said(error: Exception) -> str:
    """Ray's complaint in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


async def _answer(reference: Any) -> Any:
    """What an object reference stands for."""
    return await reference


def _fits(resources: dict[str, float], needs: Needs) -> int:
    """How many processes fit on an empty node."""
    wanted = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": float(needs.memory_mb * 2**20)}
    return min((int(resources.get(kind, 0.0) / amount) for kind, amount in wanted.items() if amount), default=1)
