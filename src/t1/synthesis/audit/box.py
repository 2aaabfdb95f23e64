"""One sandbox of a task for the probes: what files there are, what changed, the verifier, other contents.

Boundary: speaks to sandboxes through the protocol only. The solution of a public task may be hostile: all that it
writes is read back with a bound, and nothing of it is run outside.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from t1.errors import SandboxError, SandboxVanished
from t1.protocols import Sandbox
from t1.tasks.check import VerifierRun, run_solution, run_verifier
from t1.types import Task

MAX_LISTED = 4000
MAX_FILE_BYTES = 128 << 10
LOOK_S = 20.0
SYSTEM = frozenset("bin boot dev etc lib lib32 lib64 libx32 proc sbin sys tests usr logs run".split())


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as the listing has it."""

    digest: str
    mode: str


class Box:
    """A sandbox with tests in it, and the places where a task's files are."""

    def __init__(self, task: Task, sandbox: Sandbox, places: tuple[str, ...]) -> None:
        self._task, self._sandbox, self._places = task, sandbox, places

    async def listing(self) -> dict[str, Entry]:
        """Path → entry of every regular file in the places, at most MAX_LISTED; repositories' insides are left out."""
        places = " ".join(map(shlex.quote, self._places))
        command = (
            f"find {places} -xdev -name .git -prune -o -type f -size -{MAX_FILE_BYTES // 1024}k -print0 2>/dev/null "
            f'| head -z -n {MAX_LISTED} | xargs -0 -r sh -c \'stat -c %a "$@" && cksum "$@"\' sh'
        )
        ended = await self._sandbox.run(command, timeout_s=LOOK_S, max_output_bytes=1 << 20)
        return _parsed(ended.output)

    async def read(self, path: str) -> bytes | None:
        """A file's bytes, or None where there is none or it is too large."""
        try:
            return await self._sandbox.read(path, max_bytes=MAX_FILE_BYTES)
        except SandboxVanished:
            raise
        except SandboxError:
            return None

    async def contents(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Path → bytes of those that can be read."""
        found = {path: await self.read(path) for path in paths}
        return {path: content for path, content in found.items() if content is not None}

    async def change(self, files: Mapping[str, bytes]) -> None:
        """Replace the bytes of files; their modes stay."""
        encoded = ((path, base64.b64encode(content).decode("ascii")) for path, content in files.items())
        lines = [f"base64 -d > {shlex.quote(path)} <<'T1_END'\n{text}\nT1_END" for path, text in encoded]
        await self._sandbox.run("\n".join(lines), timeout_s=LOOK_S)

    async def committed(self, paths: Iterable[str]) -> frozenset[str]:
        """Those that a git repository holds as they are: what is judged there is the repository, not the file."""
        asked = " ".join(map(shlex.quote, paths))
        command = (
            f'for f in {asked}; do cd "$(dirname "$f")" && git ls-files --error-unmatch -- "$f" >/dev/null 2>&1 '
            '&& git diff --quiet HEAD -- "$f" 2>/dev/null && echo "$f"; done; true'
        )
        ended = await self._sandbox.run(f"({command})", timeout_s=LOOK_S)
        return frozenset(ended.output.splitlines())

    async def verify(self) -> VerifierRun:
        """Run the task's verifier."""
        return await run_verifier(self._task, self._sandbox)

    async def solve(self) -> str:
        """Run the solution; how it failed, or nothing."""
        return await run_solution(self._task, self._sandbox)


def _parsed(output: str) -> dict[str, Entry]:
    """Batches of modes, then of `CHECKSUM BYTES PATH` lines."""
    modes: list[str] = []
    found: dict[str, Entry] = {}
    at = 0
    for line in output.splitlines():
        checksum, _, rest = line.partition(" ")
        if not rest:
            modes.append(checksum)
            continue
        size, _, path = rest.partition(" ")
        found[path] = Entry(f"{checksum}-{size}", modes[at] if at < len(modes) else "")
        at += 1
    return found


def places_of(task: Task, texts: Iterable[str]) -> tuple[str, ...]:
    """The top-level directories in which a task's files may be: the usual, its own, and those that texts name."""
    tops = {"app", "root", "tmp", "home", "srv", "opt", "workspace"}
    for text in (task.environment.workdir or "", *texts):
        tops |= {
            word.split("/")[1] for word in text.replace("'", " ").replace('"', " ").split() if word.startswith("/")
        }
    return tuple(f"/{top}" for top in sorted(tops - SYSTEM) if top.replace("-", "").replace("_", "").isalnum())
