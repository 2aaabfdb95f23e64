"""Engines that live in posts: an engine placed on the cluster, or the one client of an engine that was found by URL.

Every rollout worker samples through its own `Engines`; the driver's publishes. A session goes to the engine that its
name picks among those alive, from whichever process, so its cache is where it was. One client an engine, and that
client's gate, keep what `inference/` promises: each token has one version, and a publish meets no half-sampled token.
Boundary: it chooses posts and carries requests; what a request is, the engine in the post knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from t1.cluster.posts import Cluster, Needs, Post, Recipe, Shared
from t1.cluster.roster import Care, Member, Roster
from t1.errors import ConfigError, EngineError, EngineUnavailable, ProcessLost
from t1.inference.checkpoints import CheckpointWriter
from t1.inference.fleet import ReadsDisk
from t1.protocols import Sampler
from t1.types import IntArray, Sample, SamplingParams


class EngineSeat:
    """The object of an engine's post. It samples nothing until its weights are known to be the run's."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._admitted = False
        self._changing = asyncio.Lock()

    async def admit(self) -> tuple[int, int]:
        """Sample with the weights that it was made with; returns (version, longest context)."""
        self._admitted = True
        return self._sampler.version, self._sampler.max_context

    async def sample(self, prompt: IntArray, params: SamplingParams, session: str, routing_start: int) -> Sample:
        """See `Sampler.sample`."""
        if not self._admitted:
            raise EngineUnavailable("this engine was started anew and waits for the run's weights")
        return await self._sampler.sample(prompt, params, session=session, routing_start=routing_start)

    async def close_session(self, session: str) -> None:
        """See `Sampler.close_session`."""
        await self._sampler.close_session(session)

    async def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """See `Sampler.publish`. A publish that was overtaken by a newer one changes nothing."""
        await self._change(version, lambda: self._sampler.publish(weights, version))

    async def load(self, path: Path, version: int) -> None:
        """Have an engine that reads disks load the checkpoint at `path`; as `publish` otherwise."""
        if not isinstance(self._sampler, ReadsDisk):
            raise ConfigError("this engine cannot read weights from a disk: publish them")
        reader = self._sampler
        await self._change(version, lambda: reader.load(path, version))

    async def _change(self, version: int, change: Callable[[], Awaitable[None]]) -> None:
        async with self._changing:
            if self._admitted and version < self._sampler.version:
                return
            await change()
            self._admitted = True

    async def pulse(self) -> int:
        """The version of its weights."""
        return self._sampler.version

    async def aclose(self) -> None:
        """See `Sampler.aclose`."""
        await self._sampler.aclose()


async def seat(make: Callable[[], Awaitable[Sampler]]) -> EngineSeat:
    """The recipe of an engine's post: `make` gives the engine, or a client of it."""
    return EngineSeat(await make())


class Engines:
    """A Sampler over the engines in posts. Can be sent to other processes; use one copy from one event loop."""

    def __init__(self, posts: Sequence[Post], *, version: int, max_context: int, aside_s: float = 2.0) -> None:
        """A lost engine is left aside for `aside_s`, then asked again."""
        self._posts, self._version, self._max_context = tuple(posts), version, max_context
        self._aside_s = aside_s
        self._aside: dict[str, float] = {}
        """Name → until when it is not asked first (monotonic seconds)."""

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(Engines, version=self._version, max_context=self._max_context, aside_s=self._aside_s)
        return make, (self._posts,)

    def copy(self) -> Engines:
        """One that only samples, for another process."""
        return Engines(self._posts, version=self._version, max_context=self._max_context, aside_s=self._aside_s)

    @property
    def version(self) -> int:
        """The newest weights version that this copy knows of."""
        return self._version

    @property
    def max_context(self) -> int:
        """Longest prompt + completion, in tokens."""
        return self._max_context

    async def sample(self, prompt: IntArray, params: SamplingParams, *, session: str, routing_start: int = 0) -> Sample:
        """See `Sampler.sample`. A request that a lost or closed engine had goes to the next one."""
        reasons = []
        for post in self._order(session):
            try:
                sample: Sample = await post.call("sample", prompt, params, session, routing_start)
            except (ProcessLost, EngineUnavailable) as error:
                self._aside[post.name] = time.monotonic() + self._aside_s
                reasons.append(f"{post.name}: {error}")
                continue
            self._aside.pop(post.name, None)
            self._version = max(self._version, int(sample.versions.max()))
            return sample
        raise EngineUnavailable(f"no engine of {len(self._posts)} answers ({'; '.join(reasons)})")

    async def close_session(self, session: str) -> None:
        """See `Sampler.close_session`. The engine that its name picks now is where it was, unless that one was lost."""
        with contextlib.suppress(ProcessLost, EngineUnavailable):
            await self._order(session)[0].call("close_session", session)

    async def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """Refused: the driver alone publishes."""
        raise EngineUnavailable("weights are published by the driver of the run, not by its workers")

    async def aclose(self) -> None:
        """Hang up; the engines live on."""
        await asyncio.gather(*(post.hang_up() for post in self._posts))

    def home(self, session: str) -> str:
        """The name of the engine that the session would go to now."""
        return self._order(session)[0].name

    def _order(self, session: str) -> list[Post]:
        """Posts by the session's preference, those left aside last: the same in every process, stable when one goes."""
        now = time.monotonic()
        return sorted(
            self._posts, key=lambda post: (self._aside.get(post.name, 0.0) > now, _preference(session, post.name))
        )


class PlacedEngines(Engines):
    """The driver's: it looks after the engines through a roster, and gives them their weights."""

    def __init__(
        self,
        cluster: Cluster,
        recipes: Mapping[str, Recipe],
        needs: Needs,
        *,
        version: int,
        max_context: int,
        checkpoints: CheckpointWriter | None = None,
        care: Care | None = None,
    ) -> None:
        """Name → recipe (`seat`) of each engine. `checkpoints`: weights are written once, and loaded from there; None =
        they are sent. `open` starts them.
        """
        super().__init__([cluster.post(name) for name in recipes], version=version, max_context=max_context)
        self.roster = Roster(cluster, recipes, needs, care=care, welcome=self._welcome)
        self._cluster, self._checkpoints = cluster, checkpoints
        self._given: tuple[Shared | Path, int] | None = None
        """The newest weights and their version; None = those that the engines begin with."""
        self._publishing = asyncio.Lock()

    async def open(self) -> None:
        """Start every engine; InfrastructureError when none starts."""
        await self.roster.open()

    async def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """Put the weights down once and have every engine load them. One that fails is started anew, with them.

        Where all fail it waits until one is back, or raises EngineUnavailable. What else an engine raises (weights of
        another model) is raised.
        """
        async with self._publishing:
            before, self._given = self._given, (await self._put_down(weights, version), version)
            results = await asyncio.gather(*map(self._give, self.roster.members), return_exceptions=True)
            errors = [error for error in results if isinstance(error, BaseException)]
            for error in errors:
                if not isinstance(error, (ProcessLost, EngineError)):
                    refused, self._given = self._given, before
                    await _forget(refused)
                    raise error
            self._version = version
            await _forget(before)
            failed = [
                self.roster.lost(member, member.post, ProcessLost(f"{member.name}: {error}"))
                for member, error in zip(self.roster.members, results, strict=True)
                if error is not None and member.post is not None
            ]
            await asyncio.gather(*failed)
            if len(errors) == len(self._posts) and not await self.roster.any_in_use():
                raise EngineUnavailable(f"no engine took version {version}; one said: {errors[0]}") from errors[0]

    async def aclose(self) -> None:
        """End the engines that were placed; those found by URL go on without us."""
        await self.roster.close()
        await super().aclose()
        await _forget(self._given)

    async def _put_down(self, weights: Mapping[str, Any], version: int) -> Shared | Path:
        if self._checkpoints is not None:
            return await asyncio.to_thread(self._checkpoints.write, weights, version)
        return await self._cluster.share(weights)

    async def _welcome(self, post: Post) -> None:
        """A newly started engine gets the run's weights before it samples anything, and those published meanwhile."""
        given: object = self
        while given is not self._given:
            given = self._given
            await self._load(post)

    async def _give(self, member: Member) -> None:
        """One engine's part of a publish."""
        if member.post is None:
            raise ProcessLost(f"{member.name}: {member.reason}")
        await self._load(member.post)

    async def _load(self, post: Post) -> None:
        """Have an engine sample with the newest weights."""
        if self._given is None:
            await post.call("admit")
        else:
            weights, version = self._given
            await post.call("load" if isinstance(weights, Path) else "publish", weights, version)


async def _forget(given: tuple[Shared | Path, int] | None) -> None:
    """Free what was put down for the engines; directories are the CheckpointWriter's to remove."""
    if given is not None and not isinstance(given[0], Path):
        await given[0].forget()


def _preference(session: str, name: str) -> bytes:
    """Highest-random-weight hashing: when an engine goes, only its own sessions move."""
    return hashlib.blake2b(f"{session}\0{name}".encode(), digest_size=8).digest()
