"""Podman or docker through its command line. Every call has a bound; a call that is cancelled is killed.

Boundary: argument lists in, exit codes and bytes out; this module never learns of tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from t1.errors import SandboxError, SandboxTimeout, SandboxUnavailable
from t1.sandboxes.output import BoundedOutput
from t1.sandboxes.processes import descendants

CALL_S = 60.0
TIDY_S = 5.0
"""For a call that is ended, to take away what it was working with."""
READ_BYTES = 1 << 16
MAX_OUTPUT_BYTES, MAX_COMPLAINT_BYTES = 64 << 20, 64 << 10
"""What is kept of what a call prints; a build's steps may print without end."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended."""

    code: int
    text: str
    """Its output, stripped; undecodable bytes are replaced."""
    complaint: str


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    """A container program and the options that every call of it gets."""

    program: str
    options: tuple[str, ...] = ()

    @property
    def is_podman(self) -> bool:
        return self.program.rpartition("/")[2] == "podman"

    def words(self, *words: str) -> list[str]:
        """The whole argument list."""
        return [self.program, *self.options, *words]

    async def call(self, *words: str, timeout_s: float = CALL_S) -> Ended:
        """Run to the end. Raises SandboxTimeout, and nothing for a call that fails."""
        process = await asyncio.create_subprocess_exec(
            *self.words(*words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            process_group=0,
        )
        assert process.stdout is not None and process.stderr is not None
        output, complaint = BoundedOutput(MAX_OUTPUT_BYTES), BoundedOutput(MAX_COMPLAINT_BYTES)
        try:
            async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as reading:
                reading.create_task(_read(process.stdout, output))
                reading.create_task(_read(process.stderr, complaint))
                reading.create_task(process.wait())
        except TimeoutError as error:
            raise SandboxTimeout(f"{self.program} {words[0]}: no end after {timeout_s:g} s") from error
        finally:
            await asyncio.shield(_end(process))
        return Ended(process.returncode or 0, output.text()[0].strip(), complaint.text()[0].strip())

    async def must(self, *words: str, timeout_s: float = CALL_S) -> Ended:
        """As `call`. Raises SandboxError for a call that fails."""
        ended = await self.call(*words, timeout_s=timeout_s)
        if ended.code != 0:
            raise SandboxError(f"{self.program} {words[0]}: {last_line(ended.complaint) or f'exit code {ended.code}'}")
        return ended

    async def remove(self, name: str) -> Ended:
        """Kill and remove a container. Podman's `rm --force` alone asks politely, and waits ten seconds."""
        await self.call("kill", name)
        return await self.call("rm", "--force", "--volumes", name)


async def _read(stream: asyncio.StreamReader, kept: BoundedOutput) -> None:
    while chunk := await stream.read(READ_BYTES):
        kept.add(chunk)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a call that is under way. What it started is killed first: a build whose step has failed tidies up after
    itself, and one that is killed leaves the container that it works in.
    """
    if process.returncode is not None:
        return
    for pid in list(descendants(process.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(TIDY_S):
            await process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


@lru_cache(maxsize=4)
def find_engine(names: Sequence[str] = ("podman", "docker")) -> ContainerEngine:
    """The first engine that is installed. Raises SandboxUnavailable."""
    for name in names:
        if program := shutil.which(name):
            quiet = ("--log-level", "error")
            # runc where there is a choice: crun insists on cgroups version 2 or a complete version 1.
            runtime = ("--runtime", "runc") if name == "podman" and shutil.which("runc") else ()
            return ContainerEngine(program, (*runtime, *quiet))
    raise SandboxUnavailable(f"no {' and no '.join(names)} here. To fix it: apt-get install podman runc")


def last_line(text: str) -> str:
    """The last line that says something: programs complain first and conclude last."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
