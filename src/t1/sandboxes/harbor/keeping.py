"""The keeper's half of the link: machines with the methods of Harbor's `BaseEnvironment`, lent to another process.

`python -m t1.harbor.keeper` runs it over Harbor, `python -m t1.testing.keepers` over directories. Requests and answers
are lines of JSON on one socket. Its end, however it came, is the order to stop everything. Boundary: no `harbor` here,
and no shell: commands and files as the machine takes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from t1.sandboxes.leases import OWNER_FILE, lease, leases, remove

PREFIX = "t1-keeper-"
"""Of keepers' directories: other owners' sweepers leave them alone, since they tell which machines may live."""
LEFT_BEHIND = 3
"""Exit status of a keeper that could not stop everything."""
MAX_LINE_BYTES = 1 << 28
STOP_S = 180.0
"""Longest wait for one machine to be gone."""
WATCH_S = 0.2
LOGS = "keeper"
"""The provider's own logs, in a sandbox's directory; the rest of it is the other process's."""


class Executed(Protocol):
    """How a command ended."""

    @property
    def stdout(self) -> str | None: ...
    @property
    def stderr(self) -> str | None: ...
    @property
    def return_code(self) -> int: ...


class Machine(Protocol):
    """What the keeper uses of Harbor's `BaseEnvironment`."""

    async def start(self, force_build: bool) -> None: ...
    async def stop(self, delete: bool) -> None: ...
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> Executed: ...
    async def upload_file(self, source_path: Path | str, target_path: str) -> None: ...
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None: ...
    async def download_file(self, source_path: str, target_path: Path | str) -> None: ...


@dataclass(frozen=True, slots=True)
class Order:
    """Which machine is wanted: what a record on disk says too, so that another process can stop it by its session."""

    session: str
    """The name under which the provider knows it."""
    environment: str
    """Harbor's name of a provider, or `module.path:ClassName`."""
    options: dict[str, Any]
    """Keyword arguments of that class."""
    task: str
    folder: str
    """The task's `environment/` directory."""
    docker_image: str | None
    workdir: str | None
    cpus: int
    memory_mb: int
    storage_mb: int
    env: dict[str, str]
    network: str
    """no-network, allowlist, public, or empty for what the provider does when nobody asks."""
    allowed_hosts: list[str]

    def record(self, home: Path) -> Path:
        """Where the order lies while its machine may live."""
        return home / f"{self.session}.json"


class BuildFailed(Exception):
    """The task's image does not build: the task's fault."""


class Refused(Exception):
    """This provider does not do what is asked of it, and never will."""


class Maker(Protocol):
    """Makes machines of one library."""

    def machine(self, order: Order, logs: Path) -> Machine:
        """One that is not started yet, with an empty directory for its logs. Raises Refused, or BuildFailed."""
        ...

    def is_build_failure(self, error: Exception) -> bool:
        """Whether `start` failed because the task's image does not build."""
        ...

    async def stop(self, machine: Machine) -> None:
        """Leave nothing of a machine but its image."""
        ...

    def finds_again(self, order: Order) -> bool:
        """Whether another process can stop the machine by its session's name."""
        ...


class Keeping:
    """Answers one link until it ends."""

    def __init__(self, link: socket.socket, home: Path, maker: Maker) -> None:
        """`home`: a directory of this process (`leases.lease`), where the other one finds and leaves files."""
        self._link = link
        self._home = home
        self._maker = maker
        self._machines: dict[str, tuple[Order, Machine]] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._stopping: dict[str, asyncio.Task[None]] = {}
        self._writer: asyncio.StreamWriter | None = None

    async def run(self) -> list[str]:
        """Serve; returns the sessions that could not be stopped at the end. Their records stay."""
        reader, self._writer = await asyncio.open_connection(sock=self._link, limit=MAX_LINE_BYTES)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._writer.close)
        self._say({"ready": str(self._home)})
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                request = json.loads(line)
                if "cancel" in request:
                    if call := self._calls.get(request["cancel"]):
                        call.cancel()
                else:
                    number = request.pop("id")
                    self._calls[number] = asyncio.create_task(self._answer(number, request))
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        left = await asyncio.gather(*(self._stop(session) for session in list(self._machines)), return_exceptions=True)
        self._writer.close()
        return [str(problem) for problem in left if problem is not None]

    def _say(self, answer: dict[str, Any]) -> None:
        """To a link that is gone, nothing can be said."""
        assert self._writer is not None
        with contextlib.suppress(ConnectionError):
            self._writer.write(json.dumps(answer).encode() + b"\n")

    async def _answer(self, number: int, request: dict[str, Any]) -> None:
        """One call and its answer; every call has one, also a cancelled one."""
        answer: dict[str, Any]
        try:
            verb: Callable[..., Awaitable[Any]] = getattr(self, f"_do_{request.pop('call')}")
            answer = {"result": await verb(**request)}
        except asyncio.CancelledError:
            answer = {"error": "cancelled", "kind": "cancelled"}
        except BuildFailed as error:
            answer = {"error": str(error), "kind": "build"}
        except Refused as error:
            answer = {"error": str(error), "kind": "refused"}
        except TimeoutError as error:
            answer = {"error": str(error) or "no end in time", "kind": "timeout"}
        except Exception as error:  # a provider's own, of any kind: the other side decides what it means
            answer = {"error": f"{type(error).__name__}: {error}"[:4000], "kind": "error"}
        finally:
            self._calls.pop(number, None)
        self._say({"id": number, **answer})

    def _machine(self, session: str) -> Machine:
        if session not in self._machines:
            raise ConnectionError(f"{session}: not open (any more)")
        return self._machines[session][1]

    async def _do_open(self, order: dict[str, Any], timeout_s: float) -> None:
        """Start a machine. One that does not start leaves nothing."""
        wanted = Order(**order)
        logs = self._home / wanted.session / LOGS
        await asyncio.to_thread(logs.mkdir, parents=True)
        machine = self._maker.machine(wanted, logs)
        wanted.record(self._home).write_text(json.dumps(asdict(wanted)), encoding="utf-8")
        self._machines[wanted.session] = wanted, machine
        try:
            async with asyncio.timeout(timeout_s):
                await machine.start(force_build=False)
        except BaseException as error:
            await self._stop(wanted.session)
            if isinstance(error, Exception) and self._maker.is_build_failure(error):
                raise BuildFailed(str(error)[-2000:]) from error
            raise

    async def _do_exec(
        self, session: str, command: str, cwd: str | None, timeout_s: float, user: str | None
    ) -> dict[str, Any]:
        async with asyncio.timeout(timeout_s):
            ended = await self._machine(session).exec(command, cwd=cwd, timeout_sec=int(timeout_s) + 1, user=user)
        return {"output": ended.stdout or "", "complaint": ended.stderr or "", "code": ended.return_code}

    async def _do_upload(self, session: str, source: str, target: str, timeout_s: float) -> None:
        """A file or a directory's content, from the keeper's home or the task."""
        machine = self._machine(session)
        async with asyncio.timeout(timeout_s):
            if await asyncio.to_thread(Path(source).is_dir):
                await machine.upload_dir(source, target)
            else:
                await machine.upload_file(source, target)

    async def _do_download(self, session: str, source: str, target: str, max_bytes: int, timeout_s: float) -> None:
        """A file into the keeper's home; given up when it grows beyond `max_bytes`."""
        path = Path(target)
        async with asyncio.timeout(timeout_s):
            loading = asyncio.ensure_future(self._machine(session).download_file(source, path))
            try:
                while not (await asyncio.wait([loading], timeout=WATCH_S))[0]:
                    if await asyncio.to_thread(_size, path) > max_bytes:
                        raise ValueError(f"{source}: larger than {max_bytes} bytes")
                await loading
            finally:
                loading.cancel()
                await asyncio.wait([loading])

    async def _do_close(self, session: str) -> None:
        await self._stop(session)

    async def _stop(self, session: str) -> None:
        """Stop a machine for good, once however many ask, and to the end whoever is cancelled."""
        if session in self._machines and session not in self._stopping:
            stopping = self._stopping[session] = asyncio.create_task(self._stop_once(session))
            stopping.add_done_callback(lambda done: self._stopping.pop(session))
        if session in self._stopping:
            await asyncio.shield(self._stopping[session])

    async def _stop_once(self, session: str) -> None:
        """The record of a machine goes when it is gone."""
        order, machine = self._machines[session]
        try:
            async with asyncio.timeout(STOP_S):
                await self._maker.stop(machine)
        except Exception as error:
            raise RuntimeError(f"{session}: could not be stopped: {type(error).__name__}: {error}") from error
        self._machines.pop(session, None)
        order.record(self._home).unlink(missing_ok=True)
        await asyncio.to_thread(shutil.rmtree, self._home / session / LOGS, ignore_errors=True)


def _size(path: Path) -> int:
    """Bytes of a file, 0 where there is none yet."""
    return path.lstat().st_size if os.path.lexists(path) else 0


def serve(root: Path, label: str, descriptor: int, maker: Maker) -> int:
    """Keep machines until the link at `descriptor` ends; the exit status."""
    home = lease(root, label=label, prefix=PREFIX)
    left = asyncio.run(Keeping(socket.socket(fileno=descriptor), home, maker).run())
    if left:
        print("; ".join(left), file=sys.stderr)
        return LEFT_BEHIND
    remove(home)
    return 0


def records(home: Path) -> list[Path]:
    """The orders of machines that may live, in a keeper's directory."""
    return [path for path in sorted(home.glob("*.json")) if path.name != OWNER_FILE]


async def sweep_kept(root: Path, maker: Maker) -> list[str]:
    """Stop what keepers that are gone left running; a line for each machine."""
    lines = []
    for left in leases(root, prefix=PREFIX):
        if left.alive:
            continue
        for record in records(left.path):
            order = Order(**json.loads(record.read_text(encoding="utf-8")))
            logs = left.path / order.session / LOGS
            logs.mkdir(parents=True, exist_ok=True)
            async with asyncio.timeout(STOP_S):
                await maker.stop(maker.machine(order, logs))
            found = maker.finds_again(order)
            lines.append(f"{order.session}\t{'stopped' if found else f'look for it at {order.environment}'}")
        remove(left.path)
    return lines
