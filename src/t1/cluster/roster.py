"""Keeps a set of posts alive: starts them, feels their pulse, and starts those anew that died or fell silent.

Boundary: it knows when a post is in use and when it is not; what posts are for is their users' business. A post's
object has `pulse()`, which answers at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from t1.cluster.posts import Cluster, Needs, Post, Recipe
from t1.errors import InfrastructureError, ProcessLost


@dataclass(frozen=True, slots=True)
class Care:
    """How a roster looks after its posts, in seconds."""

    beat_s: float = 2.0
    """Between two pulses."""
    silent_s: float = 60.0
    """A pulse that takes longer means that the process hangs: it is killed."""
    start_s: float = 300.0
    """For a process to start and make its object."""
    stop_s: float = 60.0
    """For a process to close its object."""
    backoff_s: float = 1.0
    """Before a start after a failed one; doubled for each failure in a row."""
    max_backoff_s: float = 60.0


@dataclass(slots=True, eq=False)
class Member:
    """One post of a roster."""

    name: str
    recipe: Recipe
    post: Post | None = None
    """None while it is not in use."""
    running: int = 0
    """What its users have under way there."""
    pulse: Any = None
    """What it last said."""
    starts: int = 0
    reason: str = ""
    """Why it is not in use."""
    retired: bool = False
    """It will not be started again."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while its process is started or ended: one at a time."""
    seen_lost: asyncio.Event = field(default_factory=asyncio.Event)


class Roster:
    """Use from one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        recipes: Mapping[str, Recipe],
        needs: Needs,
        *,
        care: Care | None = None,
        welcome: Callable[[Post], Awaitable[None]] | None = None,
    ) -> None:
        """`welcome`: what a newly started post is told before it is in use."""
        if not recipes:
            raise ValueError("roster: expected at least one process, got none")
        self.members = tuple(Member(name, recipe) for name, recipe in recipes.items())
        self.changed = asyncio.Condition()
        """Notified when a member comes into use, goes out of it, or has less to do."""
        self.num_lost = 0
        """Processes that died or hung."""
        self._cluster, self._needs, self._care, self._welcome = cluster, needs, care or Care(), welcome
        self._keepers: list[asyncio.Task[None]] = []
        self._late: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Start every post; those that fail are tried again later. InfrastructureError when all fail."""
        results = await asyncio.gather(*map(self._start, self.members), return_exceptions=True)
        errors = [error for error in results if isinstance(error, BaseException)]
        wrong = [error for error in errors if not isinstance(error, InfrastructureError)]
        if wrong or len(errors) == len(self.members):
            await self.close()
            raise (wrong or errors)[0]
        self._keepers = [asyncio.create_task(self._keep(m), name=f"keeper of {m.name}") for m in self.members]

    @property
    def in_use(self) -> list[Member]:
        """Members that can be called now."""
        return [member for member in self.members if member.post is not None]

    async def any_in_use(self) -> bool:
        """Wait until a member can be called, as long as a start may take; whether one can."""
        try:
            async with asyncio.timeout(self._care.start_s), self.changed:
                await self.changed.wait_for(lambda: self.in_use or self.exhausted)
        except TimeoutError:
            pass
        return bool(self.in_use)

    @property
    def exhausted(self) -> bool:
        """Whether no member is in use or will be."""
        return all(member.retired for member in self.members)

    async def lost(self, member: Member, post: Post, error: ProcessLost) -> None:
        """A user found the process gone: it is started again soon. Older news than the last start changes nothing."""
        async with member.turn:
            if member.post is post:
                await self._leave(member, str(error))

    async def retire(self, member: Member, reason: str) -> None:
        """Use a member no more, for a reason that a new start would not mend."""
        member.retired = True
        async with member.turn:
            await self._leave(member, reason)

    async def close(self) -> None:
        """Stop looking after the posts and end them. Safe to call twice."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        self._keepers = []
        posts = [member.post for member in self.in_use if member.post is not None]
        for member in self.members:
            member.post, member.reason = None, member.reason or "closed"
        await asyncio.gather(*(self._cluster.stop(post, timeout_s=self._care.stop_s) for post in posts))

    async def notify(self) -> None:
        """Wake those who wait for a member."""
        async with self.changed:
            self.changed.notify_all()

    async def _start(self, member: Member) -> None:
        member.starts += 1
        post: Post | None = None
        try:
            post = await self._cluster.start(member.name, member.recipe, self._needs, timeout_s=self._care.start_s)
            if self._welcome is not None:
                async with asyncio.timeout(self._care.start_s):
                    await self._welcome(post)
        except BaseException as error:
            member.reason = f"{type(error).__name__}: {error}"
            if post is not None:
                await self._cluster.stop(post, timeout_s=0.0)
            if isinstance(error, TimeoutError):
                raise ProcessLost(f"{member.name}: took longer than {self._care.start_s:g} s to get ready") from None
            raise
        member.post, member.reason = post, ""
        member.seen_lost.clear()
        await self.notify()

    async def _leave(self, member: Member, reason: str) -> None:
        """Out of use; whatever still waits for it hears of it."""
        post, member.post, member.reason = member.post, None, reason
        if post is not None:
            self.num_lost += not member.retired
            await self._cluster.stop(post, timeout_s=self._care.stop_s if member.retired else 0.0)
        member.seen_lost.set()
        await self.notify()

    async def _keep(self, member: Member) -> None:
        """One member's life, until the roster closes or retires it."""
        failures = 0
        while not member.retired:
            if member.post is not None:
                await self._feel(member)
                failures = 0
                continue
            pause = min(self._care.max_backoff_s, self._care.backoff_s * 2.0 ** (failures - 1)) if failures else 0.0
            await asyncio.sleep(pause)
            try:
                async with member.turn:
                    await self._start(member)
            except Exception:  # its reason is on record; whoever waits for a member reads it
                failures += 1

    async def _feel(self, member: Member) -> None:
        """One beat: wait, or until somebody found it lost; then a pulse, and out of use without one."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(member.seen_lost.wait(), self._care.beat_s)
        post = member.post
        if post is None:
            return
        # Not cancelled when it is late: a process that hangs confirms nothing. Its end ends the call.
        pulse = asyncio.create_task(post.call("pulse"))
        try:
            await asyncio.wait({pulse}, timeout=self._care.silent_s)
            if not pulse.done():
                raise ProcessLost(f"{member.name}: no pulse for {self._care.silent_s:g} s, it hangs")
            member.pulse = pulse.result()
        except ProcessLost as error:
            await self.lost(member, post, error)
        finally:
            if not pulse.done():
                pulse.cancel()
                self._late.add(pulse)
                pulse.add_done_callback(self._late.discard)
