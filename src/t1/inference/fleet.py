"""Several engines as one Sampler: sessions spread over them and stay where their cache is, until an engine dies.

A dead engine is out of use, is looked at again after ever longer pauses, and comes back only with the fleet's weights:
the fleet has one version, and an engine with another one samples nothing. Boundary: it chooses engines; what a request
or a publish is, each engine knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from t1.errors import EngineError, EngineTimeout, EngineUnavailable
from t1.inference.checkpoints import CheckpointWriter
from t1.protocols import Sampler
from t1.types import IntArray, Sample, SamplingParams

MAX_SESSIONS = 100_000
"""Homes that are remembered; of more, those that were used longest ago are forgotten, and cost a prefill."""


@runtime_checkable
class ReadsDisk(Protocol):
    """An engine that can load a checkpoint by itself, hold its requests meanwhile, and say whether it is well."""

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def load(self, path: Path, version: int) -> None: ...

    async def check_alive(self) -> None: ...


@dataclass(slots=True, eq=False)
class Member:
    """One engine of a fleet."""

    sampler: Sampler
    name: str
    running: int = 0
    sessions: set[str] = field(default_factory=set)
    down_since: float | None = None
    """None = in use."""
    failures: int = 0
    """In a row."""
    probe_at: float = 0.0
    reason: str = ""

    @property
    def load(self) -> tuple[int, int]:
        """What decides where a new session goes."""
        return self.running, len(self.sessions)


class Fleet:
    """A Sampler over many. Use it from one event loop."""

    def __init__(
        self,
        samplers: Sequence[Sampler],
        *,
        checkpoints: CheckpointWriter | None = None,
        probe_s: float = 1.0,
        max_probe_s: float = 60.0,
        publish_s: float = 1200.0,
    ) -> None:
        """`checkpoints`: weights are written once and loaded by all; None = each engine publishes in its own way.

        A dead engine is probed after `probe_s`, then after twice as long, and so on up to `max_probe_s`. A request
        waits `publish_s` at most for a publish.
        """
        if not samplers:
            raise ValueError("fleet: expected at least one engine, got none")
        versions = {sampler.version for sampler in samplers}
        if len(versions) > 1:
            raise ValueError(f"fleet: expected engines of one weights version, got versions {sorted(versions)}")
        self.members = tuple(
            Member(sampler, str(getattr(sampler, "url", f"engine {index}"))) for index, sampler in enumerate(samplers)
        )
        self.num_moved = 0
        """Sessions that changed their engine because it died."""
        self._version = samplers[0].version
        self._checkpoints = checkpoints
        self._latest: Path | None = None
        self._probe_s, self._max_probe_s, self._publish_s = probe_s, max_probe_s, publish_s
        self._homes: OrderedDict[str, Member] = OrderedDict()
        self._publishing = asyncio.Lock()
        self._open = asyncio.Event()
        """Clear while versions would mix."""
        self._open.set()
        self._probes: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def version(self) -> int:
        """The weights version of every engine in use."""
        return self._version

    @property
    def max_context(self) -> int:
        """Longest prompt + completion that every engine takes."""
        return min(member.sampler.max_context for member in self.members)

    async def sample(self, prompt: IntArray, params: SamplingParams, *, session: str, routing_start: int = 0) -> Sample:
        """Complete on the session's engine; on another one when that is dead, as often as there are engines.

        An answer under another version than the fleet's is refused. What the caller or the model does wrong is not
        tried elsewhere: only EngineUnavailable is.
        """
        if len(prompt) + 1 > self.max_context:
            raise ValueError(f"prompt: {len(prompt)} tokens leave no room in a context of {self.max_context}")
        await self._enter()
        last: EngineUnavailable | None = None
        for _ in self.members:
            member = self._home(session, last)
            member.running += 1
            try:
                sample = await member.sampler.sample(prompt, params, session=session, routing_start=routing_start)
            except EngineUnavailable as error:
                if self._closed:
                    raise
                self._quarantine(member, error)
                last = error
                continue
            except EngineTimeout as error:  # too late to try elsewhere, and a reason to look at the engine
                self._quarantine(member, error)
                raise
            finally:
                member.running -= 1
            member.failures = 0
            return sample
        raise EngineUnavailable(f"fleet: no engine is left of {len(self.members)}; the last said: {last}") from last

    async def close_session(self, session: str) -> None:
        """Forget where the session lives, and its cache there. Unknown sessions are fine."""
        member = self._homes.pop(session, None)
        if member is not None:
            member.sessions.discard(session)
            with contextlib.suppress(EngineUnavailable):
                await member.sampler.close_session(session)

    async def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """Give these weights to every engine; none samples with them before all in use have them.

        An engine that fails is out of use until it has them; EngineUnavailable when all fail. ValueError for weights
        that are not this model's, before anything is changed.
        """
        async with self._publishing:
            path = None
            if self._checkpoints is not None:
                path = await asyncio.to_thread(self._checkpoints.write, weights, version)
            self._open.clear()
            try:
                await self._on_all(self._hold)
                await self._on_all(lambda member: self._give(member, weights, path, version), revives=True)
                self._version, self._latest = version, path
            finally:
                for member in self.members:
                    if isinstance(member.sampler, ReadsDisk):
                        await member.sampler.resume()
                self._open.set()
            if all(member.down_since is not None for member in self.members):
                raise EngineUnavailable(f"fleet: no engine took version {version}; one said: {self.members[0].reason}")

    async def _on_all(self, call: Callable[[Member], Awaitable[None]], *, revives: bool = False) -> None:
        """Do one thing with every engine at once; those that fail it are out of use, with `revives` the others in."""
        results = await asyncio.gather(*map(call, self.members), return_exceptions=True)
        for member, error in zip(self.members, results, strict=True):
            if isinstance(error, EngineError):
                self._quarantine(member, error)
            elif isinstance(error, BaseException):
                raise error
            elif revives:
                self._restore(member)

    async def _hold(self, member: Member) -> None:
        """Let an engine sample nothing for now."""
        if isinstance(member.sampler, ReadsDisk):
            await member.sampler.pause()

    async def aclose(self) -> None:
        """Stop every client; pending requests end with EngineUnavailable. Safe to call twice."""
        self._closed = True
        for probe in self._probes:
            probe.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)
        await asyncio.gather(*(member.sampler.aclose() for member in self.members), return_exceptions=True)

    async def _enter(self) -> None:
        """Wait until no publish is under way."""
        try:
            async with asyncio.timeout(self._publish_s):
                await self._open.wait()
        except TimeoutError:
            raise EngineTimeout(f"fleet: a publish took longer than {self._publish_s:g} s") from None

    def _home(self, session: str, last: EngineUnavailable | None) -> Member:
        """The engine of a session: where it was, if that is in use, else the one with least to do."""
        if self._closed:
            raise EngineUnavailable("the fleet is closed")
        self._probe_due()
        member = self._homes.get(session)
        if member is not None and self._usable(member):
            self._homes.move_to_end(session)
            return member
        usable = [candidate for candidate in self.members if self._usable(candidate)]
        if not usable:
            reasons = "; ".join(f"{m.name}: {m.reason or f'has version {m.sampler.version}'}" for m in self.members)
            raise EngineUnavailable(f"fleet: no engine of version {self._version} is in use ({reasons})") from last
        if member is not None:
            self.num_moved += 1
            member.sessions.discard(session)
        chosen = min(usable, key=lambda candidate: candidate.load)
        chosen.sessions.add(session)
        self._homes[session] = chosen
        if len(self._homes) > MAX_SESSIONS:
            oldest, home = self._homes.popitem(last=False)
            home.sessions.discard(oldest)
        return chosen

    def _usable(self, member: Member) -> bool:
        """In use, and of the fleet's version: versions never mix."""
        return member.down_since is None and member.sampler.version == self._version

    def _quarantine(self, member: Member, error: EngineError) -> None:
        """Out of use, for longer with every failure in a row."""
        member.failures += 1
        now = time.monotonic()
        member.down_since = now if member.down_since is None else member.down_since
        member.probe_at = now + min(self._max_probe_s, self._probe_s * 2 ** min(member.failures - 1, 30))
        member.reason = str(error)

    def _restore(self, member: Member) -> None:
        """In use again."""
        member.down_since, member.failures, member.reason = None, 0, ""

    def _probe_due(self) -> None:
        """Look at dead engines whose time has come, beside the requests; each probe is bounded by its client."""
        now = time.monotonic()
        for member in self.members:
            if member.down_since is not None and now >= member.probe_at:
                member.probe_at = float("inf")  # until this probe has ended
                task = asyncio.create_task(self._probe(member))
                self._probes.add(task)
                task.add_done_callback(self._probes.discard)

    async def _probe(self, member: Member) -> None:
        """Bring an engine back with the fleet's weights, or wait longer."""
        async with self._publishing:  # a publish that runs meanwhile is a probe itself
            if member.down_since is None:
                return
            try:
                await self._revive(member)
            except EngineError as error:
                self._quarantine(member, error)
            else:
                self._restore(member)

    async def _revive(self, member: Member) -> None:
        """Prove that an engine is well and has the fleet's weights; load them where it is well and has others."""
        sampler = member.sampler
        if not isinstance(sampler, ReadsDisk):
            raise EngineUnavailable(f"{member.name}: comes back with the next publish; it was: {member.reason}")
        if sampler.version == self._version:
            try:
                await sampler.check_alive()
                return
            except EngineError:
                if self._latest is None:
                    raise
        if self._latest is None:
            raise EngineUnavailable(f"{member.name}: has version {sampler.version}, and nothing was published yet")
        await sampler.load(self._latest, self._version)

    async def _give(self, member: Member, weights: Mapping[str, Any], path: Path | None, version: int) -> None:
        """One engine's part of a publish."""
        if path is not None and isinstance(member.sampler, ReadsDisk):
            await member.sampler.load(path, version)
        else:
            await member.sampler.publish(weights, version)
