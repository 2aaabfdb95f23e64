"""Posts as subprocesses of this machine, each behind a Unix socket in a directory that only this user can enter.

Boundary: processes and sockets. A post ends with the driver: its standard input is a pipe that the driver holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pickle
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from t1.cluster.frames import FrameWriter, read_frame
from t1.cluster.hosting import CANCEL_S, Reply
from t1.cluster.posts import Needs, Place, Post, Recipe, Reservation, Shared
from t1.cluster.words import log_path, quoted, tail
from t1.errors import InfrastructureError, ProcessLost

LOOPBACK = "127.0.0.1"
CONNECT_S = 10.0


class LocalPost:
    """See `posts.Post`. A copy connects when it is first used, and again when its process was started anew."""

    def __init__(self, name: str, socket: Path) -> None:
        self.name, self._socket = name, socket
        self._line: _Line | None = None
        self._calling = secrets.token_hex(6)
        self._numbers = itertools.count()

    def __reduce__(self) -> tuple[type[LocalPost], tuple[str, Path]]:
        return LocalPost, (self.name, self._socket)

    async def call(self, method: str, *arguments: Any) -> Any:
        """See `posts.Post.call`."""
        line = await self._connected()
        call = f"{self._calling}-{next(self._numbers)}"
        reply = await line.ask(call, method, arguments)
        return reply.unwrap()

    async def where(self) -> str:
        """See `posts.Post.where`."""
        return LOOPBACK

    async def hang_up(self) -> None:
        """See `posts.Post.hang_up`."""
        if self._line is not None:
            await self._line.close("this copy hung up")
            self._line = None

    async def _connected(self) -> _Line:
        if self._line is None or self._line.lost:
            await self.hang_up()
            try:
                async with asyncio.timeout(CONNECT_S):
                    reader, writer = await asyncio.open_unix_connection(self._socket)
            except (OSError, TimeoutError) as error:
                raise ProcessLost(f"{self.name}: its process cannot be reached: {error}") from error
            if self._line is None or self._line.lost:  # nobody else connected meanwhile
                self._line = _Line(self.name, reader, FrameWriter(writer))
            else:
                writer.close()
        return self._line


class _Line:
    """One connection to a post."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: FrameWriter) -> None:
        self._name, self._writer = name, writer
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self.lost = ""
        """Why nothing is answered any more."""
        self._listening = asyncio.create_task(self._listen(reader))

    async def ask(self, call: str, method: str, arguments: tuple[Any, ...]) -> Reply:
        """Send a call and wait for its reply; a cancelled wait cancels the call and sees it end."""
        future = self._waiting[call] = asyncio.get_running_loop().create_future()
        try:
            try:
                await self._writer.write(("call", call, method, arguments))
                return await asyncio.shield(future)
            except ConnectionError as error:
                raise ProcessLost(f"{self._name}: its process is gone: {error}") from error
            except asyncio.CancelledError:
                with contextlib.suppress(ConnectionError):
                    await self._writer.write(("cancel", call))
                    await asyncio.wait({future}, timeout=CANCEL_S)
                raise
        finally:
            self._waiting.pop(call, None)
            if future.done() and not future.cancelled():
                future.exception()  # seen

    async def close(self, reason: str) -> None:
        """End the connection and everything that waits on it."""
        self._lose(reason)
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                call, reply = await read_frame(reader)
                future = self._waiting.get(call)
                if future is not None and not future.done():
                    future.set_result(reply)
        except EOFError as error:
            self._lose(str(error))
        except Exception as error:  # a reply that cannot be read
            self._lose(f"{type(error).__name__}: {error}")
        finally:
            await self._writer.close()

    def _lose(self, reason: str) -> None:
        self.lost = self.lost or reason or "lost"
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ProcessLost(f"{self._name}: its process is gone: {self.lost}"))


class FileShared:
    """See `posts.Shared`: a pickle in the cluster's directory."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load(self) -> Any:
        """See `posts.Shared.load`."""
        return await asyncio.to_thread(lambda: pickle.loads(self._path.read_bytes()))

    async def forget(self) -> None:
        """See `posts.Shared.forget`."""
        self._path.unlink(missing_ok=True)


class LocalReservation:
    """See `posts.Reservation`: one machine has no rooms to keep."""

    async def release(self) -> None:
        """Nothing was held."""


class LocalCluster:
    """See `posts.Cluster`."""

    def __init__(self, *, cpus: int | None = None, logs: Path | None = None) -> None:
        """`cpus`: what is shared out; None = the cores that this process may use.

        `logs`: where each post's standard error is kept; None = as long as the cluster is open.
        """
        self._cpus = cpus or len(os.sched_getaffinity(0))
        self._folder = Path(tempfile.mkdtemp(prefix="t1-cluster-"))  # 0700
        self._logs = logs or self._folder
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._numbers = itertools.count()

    def room(self, needs: Needs) -> int:
        """See `posts.Cluster.room`. Cores only; at least one."""
        return max(1, int(self._cpus / needs.cpus)) if needs.cpus else self._cpus

    async def reserve(self, number: int, needs: Needs, *, timeout_s: float) -> Reservation:
        """See `posts.Cluster.reserve`."""
        return LocalReservation()

    async def start(
        self,
        name: str,
        recipe: Recipe,
        needs: Needs,
        *,
        timeout_s: float,
        within: Place | None = None,
    ) -> Post:
        """See `posts.Cluster.start`."""
        path = self._folder / name
        await self._end(name, 0.0)
        path.unlink(missing_ok=True)
        with self._log(name).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "t1.cluster.hosted", str(path),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": str(max(1, int(needs.cpus)))},
            )  # fmt: skip
        self._processes[name] = process
        try:
            async with asyncio.timeout(timeout_s):
                reply = await _begin(process, recipe)
        except BaseException as error:
            await self._end(name, 0.0)
            if isinstance(error, TimeoutError):
                raise ProcessLost(f"{name}: did not start within {timeout_s:g} s") from None
            if isinstance(error, (EOFError, ConnectionError)):
                words = quoted(tail(self._log(name)))
                raise ProcessLost(f"{name}: died while it started (exit code {process.returncode}){words}") from None
            raise
        if reply.error is not None:
            await self._end(name, 5.0)
        reply.unwrap()
        return LocalPost(name, path)

    def post(self, name: str) -> Post:
        """See `posts.Cluster.post`."""
        return LocalPost(name, self._folder / name)

    async def stop(self, post: Post, *, timeout_s: float) -> None:
        """See `posts.Cluster.stop`."""
        await post.hang_up()
        await self._end(post.name, timeout_s)

    async def last_words(self, post: Post) -> str:
        """See `posts.Cluster.last_words`."""
        return await asyncio.to_thread(tail, self._log(post.name))

    def _log(self, name: str) -> Path:
        self._logs.mkdir(parents=True, exist_ok=True)
        return log_path(self._logs, name)

    async def share(self, value: Any) -> Shared:
        """See `posts.Cluster.share`."""
        path = self._folder / f"shared-{next(self._numbers)}"

        def write() -> None:
            with path.open("wb") as file:
                pickle.dump(value, file, protocol=5)

        try:
            await asyncio.to_thread(write)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise InfrastructureError(f"{path}: a value for the other processes cannot be written: {error}") from error
        return FileShared(path)

    async def close(self) -> None:
        """See `posts.Cluster.close`."""
        await asyncio.gather(*(self._end(name, CANCEL_S) for name in list(self._processes)))
        shutil.rmtree(self._folder, ignore_errors=True)

    def pid(self, name: str) -> int:
        """The process id behind a name: for those who look after processes, or end them."""
        return self._processes[name].pid

    async def _end(self, name: str, timeout_s: float) -> None:
        """Close its standard input, wait for `timeout_s`, kill, wait for its end."""
        process = self._processes.pop(name, None)
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(OSError):
            await process.stdin.wait_closed()
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # the pipes of a process that was killed while it spoke


async def _begin(process: asyncio.subprocess.Process, recipe: Recipe) -> Reply:
    """Hand over the recipe and hear what became of it."""
    assert process.stdin is not None and process.stdout is not None
    body = pickle.dumps(recipe, protocol=5)
    process.stdin.write(len(body).to_bytes(8, "big") + body)
    await process.stdin.drain()
    reply: Reply = await read_frame(process.stdout)
    return reply
