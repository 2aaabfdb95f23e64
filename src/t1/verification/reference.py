"""What the image of a task holds at protected paths: read from a fresh sandbox, once a path, and only when asked.

Boundary: a sandbox that no agent ever had; nothing is run in it beyond what opening it runs.
"""

from __future__ import annotations

from types import TracebackType

from t1.errors import SandboxError, SandboxVanished
from t1.protocols import Sandbox, SandboxProvider
from t1.types import Task

MAX_BYTES = 64 << 20
MAX_REMEMBERED = 10_000
MAX_REMEMBERED_BYTES = 1 << 20
"""Of one file; larger ones are read again."""


class Reference:
    """Remembers files of images over many verifications."""

    def __init__(self, provider: SandboxProvider) -> None:
        self._provider = provider
        self._remembered: dict[tuple[str, str], bytes | None] = {}

    def of(self, task: Task) -> ImageFiles:
        """The image of one task; closes its sandbox, if it opened one, at the end of `async with`."""
        return ImageFiles(task, self._provider, self._remembered)


class ImageFiles:
    """The files of one task's image."""

    def __init__(self, task: Task, provider: SandboxProvider, remembered: dict[tuple[str, str], bytes | None]) -> None:
        self._task = task
        self._provider = provider
        self._remembered = remembered
        self._sandbox: Sandbox | None = None

    async def __aenter__(self) -> ImageFiles:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sandbox is not None:
            await self._sandbox.close()

    async def read(self, path: str) -> bytes | None:
        """The bytes of a regular file of the image, or None."""
        key = (self._task.digest, path)
        if key in self._remembered:
            return self._remembered[key]
        if self._sandbox is None:
            self._sandbox = await self._provider.open(self._task)
        try:
            content = await self._sandbox.read(path, max_bytes=MAX_BYTES)
        except SandboxVanished:
            raise
        except SandboxError:
            content = None  # larger than any file that a rule protects
        if len(self._remembered) < MAX_REMEMBERED and len(content or b"") <= MAX_REMEMBERED_BYTES:
            self._remembered[key] = content
        return content
