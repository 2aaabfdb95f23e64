"""Podman or docker through its command line. Every call has a bound; a call that is cancelled is killed.

Boundary: argument lists in, exit codes and bytes out; this module never learns of tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from t1.errors import SandboxError, SandboxTimeout, SandboxUnavailable

CALL_S = 60.0
MAX_OUTPUT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended."""

    code: int
    output: bytes
    complaint: str

    @property
    def text(self) -> str:
        """Its output as one stripped string."""
        return self.output.decode("utf-8", "replace").strip()


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
        try:
            async with asyncio.timeout(timeout_s):
                output, complaint = await process.communicate()
        except TimeoutError as error:
            raise SandboxTimeout(f"{self.program} {words[0]}: no end after {timeout_s:g} s") from error
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return Ended(process.returncode or 0, output, complaint.decode("utf-8", "replace").strip())

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
