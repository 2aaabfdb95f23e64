"""A harness around agents that are not ours: an unmodified program that speaks to a model over HTTP.

The gateway is served in this process, on loopback; each run opens a session, hands the program an endpoint that reaches
only it, and takes the turns from the record. Boundary: how a program is started, and in whose sandbox, is its
`AgentProgram`'s; what it says over HTTP is the front ends'.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from t1.errors import AgentError
from t1.gateway.app import Served, serve
from t1.gateway.config import GatewayConfig
from t1.gateway.conversation import ChatRenderer
from t1.gateway.ledger import Recorded
from t1.gateway.sessions import DEFAULTS, Gateway
from t1.protocols import Sampler, Sandbox
from t1.types import Episode, StopReason, Task

MAX_OUTPUT_CHARS = 2000
CANCEL_S = 30.0
"""How long an agent program may take to clean up once it is cancelled."""
STOPPED = 143
"""Status of an agent that was stopped."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an agent finds its model."""

    base_url: str
    """The server's root: Anthropic clients take it as it is, OpenAI clients take `openai_url`."""
    key: str
    """Names the session; works for this run only."""
    model: str

    @property
    def openai_url(self) -> str:
        """Base URL as OpenAI clients want it."""
        return f"{self.base_url}/v1"


@dataclass(frozen=True, slots=True)
class AgentExit:
    """How an agent program ended."""

    code: int
    """Its exit status; 0 = it says that it is done."""
    output: str = ""
    """What it printed, for people."""


class AgentProgram(Protocol):
    """Runs one foreign agent on one task."""

    async def run(self, task: Task, sandbox: Sandbox, endpoint: Endpoint, deadline: float) -> AgentExit:
        """Let the agent work until it ends by itself. `deadline`: monotonic seconds; it is cancelled then.

        Raises InfrastructureError where the sandbox fails. Whatever the agent itself does is an AgentExit.
        """
        ...


Listener: TypeAlias = Callable[[Recorded, AgentExit | None], None]
"""Is told of each run's whole record (changes and orphans too) and of the agent's end; None = it was cancelled."""


@dataclass(slots=True)
class _Serving:
    """A gateway that is being served for some runs."""

    gateway: Gateway
    served: Served
    num_runs: int = 0


class GatewayHarness:
    """Implements `protocols.Harness`. Runs that overlap share one server, which is gone after the last of them."""

    def __init__(
        self,
        program: AgentProgram,
        renderer: ChatRenderer,
        config: GatewayConfig = DEFAULTS,
        *,
        port: int = 0,
        agent_url: str = "",
        record: Path | None = None,
        listener: Listener | None = None,
        grace_s: float = 3.0,
    ) -> None:
        """`agent_url`: the server's root as the agent sees it, where that is not the server's own (port then fixed).

        `grace_s`: how long an agent may go on after its session's limits refused a call: many ask again and again.
        """
        self._program, self._renderer, self._config = program, renderer, config
        self._port, self._agent_url, self._record = port, agent_url, record
        self._listener, self._grace_s = listener, grace_s
        self._serving: dict[Sampler, _Serving] = {}
        self._lock = asyncio.Lock()

    @property
    def num_serving(self) -> int:
        """Servers that are running just now: one a sampler, while it is used."""
        return len(self._serving)

    async def run(
        self, task: Task, sandbox: Sandbox, sampler: Sampler, *, session: str, seed: int | None = None
    ) -> Episode:
        """Let the agent work on the task until it exits or a limit is met."""
        deadline = time.monotonic() + task.limits.agent_timeout_s
        async with self._served(sampler) as serving:
            gateway = serving.gateway
            opened = gateway.open(session, seed=seed)
            url = self._agent_url or serving.served.base_url
            ended = None
            try:
                endpoint = Endpoint(url, opened.key, self._config.models[0])
                working = self._until_spent(gateway, session, self._program.run(task, sandbox, endpoint, deadline))
                ended = await _bounded(working, deadline)
            finally:
                recorded = await gateway.close(session)
                if self._listener is not None:
                    self._listener(recorded, ended)
        if ended is not None and ended.code and time.monotonic() >= deadline:
            ended = None  # its sandbox, or it itself, kept to the same limit
        return _episode(recorded, ended)

    async def _until_spent(self, gateway: Gateway, session: str, running: Coroutine[Any, Any, AgentExit]) -> AgentExit:
        """The agent's end; one that goes on after its session's limits refused a call is stopped (case T11)."""
        program = asyncio.ensure_future(running)
        spent = asyncio.ensure_future(gateway.spent(session))
        try:
            await asyncio.wait({program, spent}, return_when=asyncio.FIRST_COMPLETED)
            if not program.done():
                await asyncio.wait({program}, timeout=self._grace_s)
            if not program.done():
                return AgentExit(STOPPED, "stopped: the session's limits are used up")
            return program.result()
        finally:
            for task in (program, spent):
                task.cancel()
            await asyncio.wait({program, spent}, timeout=CANCEL_S)

    @asynccontextmanager
    async def _served(self, sampler: Sampler) -> AsyncIterator[_Serving]:
        """The server for this sampler, started by the first run and stopped by the last."""
        async with self._lock:
            serving = self._serving.get(sampler)
            if serving is None:
                serving = self._serving[sampler] = await self._start(sampler)
            serving.num_runs += 1
        try:
            yield serving
        finally:
            serving.num_runs -= 1
            if not serving.num_runs:
                await asyncio.shield(self._stop(sampler, serving))

    async def _start(self, sampler: Sampler) -> _Serving:
        gateway = Gateway(sampler, self._renderer, self._config, record=self._record)
        try:
            for left in gateway.sessions:  # of a process that died: their agents are gone
                await gateway.close(left)
            return _Serving(gateway, await serve(gateway, "127.0.0.1", self._port))
        except BaseException:
            await gateway.aclose()
            raise

    async def _stop(self, sampler: Sampler, serving: _Serving) -> None:
        """Stop a server that no run needs; one that began to need it meanwhile keeps it."""
        async with self._lock:
            if serving.num_runs or self._serving.get(sampler) is not serving:
                return
            del self._serving[sampler]
            try:
                await serving.served.aclose()
            finally:
                await serving.gateway.aclose()


async def _bounded(working: Coroutine[Any, Any, AgentExit], deadline: float) -> AgentExit | None:
    """The agent's end, or None at the time limit (monotonic seconds)."""
    bound = asyncio.timeout(deadline - time.monotonic())
    try:
        async with bound:
            return await working
    except TimeoutError:
        if not bound.expired():
            raise  # the program's own, not the task's limit
        return None


def _episode(recorded: Recorded, ended: AgentExit | None) -> Episode:
    """What a run amounts to. Raises what the engine died of; an agent that crashes is no infrastructure failure."""
    if recorded.failure is not None:
        raise recorded.failure
    if not recorded.counts.get("calls"):
        output = "" if ended is None else f" It printed: {ended.output[-MAX_OUTPUT_CHARS:].strip() or 'nothing'}"
        how = "was still running at its time limit" if ended is None else f"exited with status {ended.code}"
        raise AgentError(
            f"the agent {how} and made no call that was accepted: is it installed, does its sandbox reach the gateway, "
            f"does it ask for the model by its name?{output}"
        )
    if ended is None:
        stop = StopReason.TIME_LIMIT
    elif recorded.stop is not None:
        stop = recorded.stop
    else:
        stop = StopReason.SUBMITTED if ended.code == 0 and recorded.turns else StopReason.CRASHED
    return Episode(recorded.turns, stop)
