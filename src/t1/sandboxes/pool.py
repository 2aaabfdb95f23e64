"""A bound, a pace and a stock over any provider: how many sandboxes live, how fast they are opened, which wait ready.

Boundary: a provider in, a provider out. What a sandbox is, this module never learns; who opens one owns it until it is
closed or its lease ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from t1.errors import InfrastructureError, SandboxTimeout, SandboxUnavailable, SandboxVanished
from t1.protocols import Sandbox, SandboxProvider
from t1.types import CommandResult, FileChanges, Task


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """What a pool allows."""

    max_open: int | None = 64
    """Agents' sandboxes that live at the same time; a pristine one comes on top, since it lives beside its agent's.
    None = no bound."""
    opens_per_s: float | None = None
    """A provider's rate limit; None = no limit."""
    wait_s: float = 600.0
    """How long an open waits for a place."""
    lease_s: float = 24 * 3600.0
    """How long one sandbox may live: then it is closed, and whoever still uses it finds that it has vanished."""
    num_warm: int = 0
    """Sandboxes that are kept ready for each task that was opened lately, or named to `warm`."""
    ready_s: float = 60.0
    """How long one waits ready: then it is closed, and its task is warm no more until it is opened again."""


class PooledSandbox:
    """A sandbox on lease. It gives its place back when it is closed."""

    def __init__(self, inner: Sandbox, closed: Callable[[PooledSandbox], None]) -> None:
        self.inner = inner
        self._closed = closed
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False

    @property
    def id(self) -> str:
        return self.inner.id

    async def run(self, command: str, *, timeout_s: float, max_output_bytes: int = 65536) -> CommandResult:
        """See `protocols.Sandbox.run`."""
        try:
            return await self.inner.run(command, timeout_s=timeout_s, max_output_bytes=max_output_bytes)
        except SandboxVanished as error:
            if self._expired:
                raise SandboxVanished(f"sandbox {self.id}: its lease is over") from error
            raise

    async def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """See `protocols.Sandbox.read`."""
        return await self.inner.read(path, max_bytes=max_bytes)

    async def stop(self) -> FileChanges:
        """See `protocols.Sandbox.stop`."""
        return await self.inner.stop()

    async def close(self) -> None:
        """See `protocols.Sandbox.close`. The place is free when this returns, whatever went wrong."""
        self.unlease()
        try:
            await self.inner.close()
        finally:
            self._closed(self)

    def lease(self, seconds: float, over: Callable[[PooledSandbox], None]) -> None:
        """Begin the lease, or begin it anew: `over` is called when it ends."""
        self.unlease()
        self._timer = asyncio.get_running_loop().call_later(seconds, over, self)

    def unlease(self) -> None:
        """Nothing ends any more."""
        if self._timer is not None:
            self._timer.cancel()

    async def expire(self) -> None:
        """The lease is over; whoever still holds the sandbox reads so."""
        self._expired = True
        await self.close()


class Pace:
    """At most so many starts a second, evenly spread."""

    def __init__(self, per_s: float | None) -> None:
        self._gap_s = 0.0 if per_s is None else 1.0 / per_s
        self._next = 0.0

    async def turn(self) -> None:
        """Wait until it is our turn."""
        now = time.monotonic()
        mine = max(now, self._next)
        self._next = mine + self._gap_s
        if mine > now:
            await asyncio.sleep(mine - now)


class SandboxPool:
    """A SandboxProvider over another. `warm` keeps sandboxes of a task ready; closing the pool closes everything."""

    def __init__(self, provider: SandboxProvider, limits: PoolLimits | None = None) -> None:
        self._provider = provider
        self._limits = limits or PoolLimits()
        self._places = asyncio.Semaphore(self._limits.max_open or sys.maxsize)
        self._pace = Pace(self._limits.opens_per_s)
        self._agents: set[PooledSandbox] = set()
        self._pristine: set[PooledSandbox] = set()
        self._stock: dict[str, list[PooledSandbox]] = {}
        self._filling: dict[str, asyncio.Task[None]] = {}
        self._expiring: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def num_open(self) -> int:
        """Sandboxes that live now, ready ones included."""
        return len(self._agents) + len(self._pristine)

    async def open(self, task: Task) -> PooledSandbox:
        """See `protocols.SandboxProvider.open`: a ready one, else a new one when there is a place."""
        stock = self._stock.get(_key(task), [])
        sandbox = stock.pop(0) if stock else await self._open(task)
        sandbox.lease(self._limits.lease_s, self._over)
        if self._limits.num_warm:
            self._fill(task)
        return sandbox

    async def open_pristine(self, task: Task, changes: FileChanges) -> PooledSandbox:
        """See `protocols.SandboxProvider.open_pristine`. It waits for the pace, never for a place: the agent's sandbox
        keeps its own until it was verified.
        """
        self._check_open()
        await self._pace.turn()
        inner = await self._provider.open_pristine(task, changes)
        sandbox = PooledSandbox(inner, self._pristine.discard)
        self._pristine.add(sandbox)
        sandbox.lease(self._limits.lease_s, self._over)
        return sandbox

    async def _open(self, task: Task) -> PooledSandbox:
        self._check_open()
        if self._places.locked():
            await self._make_way(task)
        try:
            async with asyncio.timeout(self._limits.wait_s):
                await self._places.acquire()
        except TimeoutError as error:
            raise SandboxTimeout(
                f"no place for a sandbox within {self._limits.wait_s:g} s: {len(self._agents)} of "
                f"{self._limits.max_open} are open"
            ) from error
        try:
            await self._pace.turn()
            inner = await self._provider.open(task)
        except BaseException:
            self._places.release()
            raise
        sandbox = PooledSandbox(inner, self._give_back)
        self._agents.add(sandbox)
        return sandbox

    async def _make_way(self, task: Task) -> None:
        """Close a sandbox that waits ready for another task."""
        stocks = [stock for key, stock in self._stock.items() if stock and key != _key(task)]
        if stocks:
            await max(stocks, key=len).pop().close()

    def _give_back(self, sandbox: PooledSandbox) -> None:
        if sandbox in self._agents:
            self._agents.remove(sandbox)
            self._places.release()

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxUnavailable("the pool of sandboxes is closed")

    async def warm(self, task: Task) -> None:
        """Open the task's ready sandboxes now, and a new one whenever one of them is taken."""
        await self._refill(task)

    def _fill(self, task: Task) -> None:
        """Open what is missing, beside everything else."""
        key = _key(task)
        if key not in self._filling and not self._closed:
            filling = self._filling[key] = asyncio.get_running_loop().create_task(self._refill(task))
            filling.add_done_callback(lambda done: self._filled(key, done))

    def _filled(self, key: str, done: asyncio.Task[None]) -> None:
        """Warming is a courtesy: who opens next meets the error."""
        self._filling.pop(key, None)
        if not done.cancelled():
            done.exception()

    async def _refill(self, task: Task) -> None:
        key = _key(task)
        while len(self._stock.setdefault(key, [])) < self._limits.num_warm and not self._places.locked():
            sandbox = await self._open(task)
            sandbox.lease(min(self._limits.ready_s, self._limits.lease_s), self._over)
            self._stock.setdefault(key, []).append(sandbox)

    def _over(self, sandbox: PooledSandbox) -> None:
        """A lease is over. A task whose last ready sandbox nobody took is not warm any more."""
        for key, stock in list(self._stock.items()):
            if sandbox in stock:
                stock.remove(sandbox)
                if not stock:
                    del self._stock[key]
        expiring = asyncio.get_running_loop().create_task(self._expire(sandbox))
        self._expiring.add(expiring)
        expiring.add_done_callback(self._expiring.discard)

    async def _expire(self, sandbox: PooledSandbox) -> None:
        with contextlib.suppress(InfrastructureError):  # its place is free all the same
            await sandbox.expire()

    async def close(self) -> None:
        """See `protocols.SandboxProvider.close`: everything that is open, ready or being opened, and the provider."""
        self._closed = True
        for filling in self._filling.values():
            filling.cancel()
        await asyncio.gather(*self._filling.values(), *self._expiring, return_exceptions=True)
        leased = [*self._agents, *self._pristine]
        results = await asyncio.gather(*(sandbox.close() for sandbox in leased), return_exceptions=True)
        self._stock.clear()
        await self._provider.close()
        for result in results:
            if isinstance(result, BaseException):
                raise result


@contextlib.asynccontextmanager
async def opened(provider: SandboxProvider, task: Task) -> AsyncIterator[Sandbox]:
    """`async with opened(provider, task) as sandbox`: closed whatever happens."""
    sandbox = await provider.open(task)
    try:
        yield sandbox
    finally:
        await sandbox.close()


def _key(task: Task) -> str:
    return f"{task.digest} {task.environment.path}"
