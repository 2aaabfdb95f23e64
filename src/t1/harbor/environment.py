"""Harbor's environment on T1's sandboxes: whatever agent Harbor drives works in one of them.

Harbor speaks to an environment in commands and file transfers; a sandbox has one shell and a read. So uploads travel
through the shell as base64, and every command runs in a subshell: its directory and variables end with it.
Boundary: no scores here (`verifier.py`), and no network for anyone.
"""

from __future__ import annotations

import asyncio
import base64
import io
import shlex
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult, SandboxBuildFailedError, transfer_tar_filter
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities

from t1.errors import SandboxError, SandboxUnavailable, TaskError
from t1.harbor.link import BorrowedSandbox, RunsAndReads
from t1.protocols import Sandbox, SandboxProvider
from t1.sandboxes import NamespaceProvider, probe
from t1.tasks import read_task
from t1.types import Task

MAX_OUTPUT_BYTES = 16 << 20
MAX_TRANSFER_BYTES = 512 << 20
CHUNK_BYTES = 384 << 10
"""Of one upload command, before base64."""
DEFAULT_TIMEOUT_S = 3600.0
"""Of a command for which Harbor names no bound."""
HARBOR_PLACES = ("/solution", "/tests", "/skills")
"""Directories that Harbor's agents and its stock verifier make; our own verifier never carries them over."""


class SandboxEnvironment(BaseEnvironment):
    """Commands and transfers over whatever sandbox is at hand. Users other than root do not exist in it."""

    sandbox: RunsAndReads | None = None

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """There is never a network; nothing of the host is mounted."""
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Memory is bounded, processors are not."""
        return EnvironmentResourceCapabilities(memory_limit=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command line in a subshell; stdout and stderr come as one stream."""
        user = self._resolve_user(user)
        if user not in (None, 0, "0", "root"):
            return ExecResult(stdout=f"t1 sandboxes have no user {user!r}; set agent.user to root", return_code=126)
        variables = self._merge_env(env) or {}
        assignments = "".join(f"export {name}={shlex.quote(value)}; " for name, value in variables.items())
        enter = f"cd {shlex.quote(cwd)} && " if cwd else ""
        line = f"( {assignments}{enter}exec bash -c {shlex.quote(command)} )"
        ended = await self._live().run(
            line, timeout_s=timeout_sec or DEFAULT_TIMEOUT_S, max_output_bytes=MAX_OUTPUT_BYTES
        )
        if ended.timed_out:
            raise TimeoutError(f"no end after {timeout_sec} s: {command[:200]}")
        return ExecResult(stdout=ended.output, return_code=137 if ended.exit_code is None else ended.exit_code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Write one file, its mode kept, its directory made."""
        source = Path(source_path)
        content, mode = await asyncio.to_thread(lambda: (source.read_bytes(), source.stat().st_mode & 0o777))
        folder = str(PurePosixPath(target_path).parent)
        await self._must(f"mkdir -p {shlex.quote(folder)} && rm -f {shlex.quote(target_path)}")
        await self._write(content, f"cat > {shlex.quote(target_path)}")
        await self._must(f"chmod {mode:o} {shlex.quote(target_path)}")

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Write the content of a directory into another, which is made."""
        packed = await asyncio.to_thread(_pack, Path(source_dir))
        target = shlex.quote(target_dir)
        await self._must(f"mkdir -p {target}")
        await self._write(packed, f"tar -x --no-same-owner -f - -C {target}")

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Fetch one regular file. Raises FileNotFoundError where there is none."""
        content = await self._live().read(source_path, max_bytes=MAX_TRANSFER_BYTES)
        if content is None:
            raise FileNotFoundError(f"{source_path}: no such file in the sandbox")
        target = Path(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(target.write_bytes, content)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Fetch a directory's content; links and paths that lead out of it are refused, devices are left out."""
        archive = f"/tmp/.transfer-{self.session_id}.tar"
        # Status 1 says that files changed while they were read: an agent's processes may still be at work.
        await self._must(f"tar -c -f {shlex.quote(archive)} -C {shlex.quote(source_dir)} .; test $? -le 1")
        try:
            packed = await self._live().read(archive, max_bytes=MAX_TRANSFER_BYTES)
        finally:
            await self.exec(f"rm -f {shlex.quote(archive)}")
        if packed is None:
            raise FileNotFoundError(f"{source_dir}: could not be packed in the sandbox")
        await asyncio.to_thread(_unpack, packed, Path(target_dir))

    def _live(self) -> RunsAndReads:
        if self.sandbox is None:
            raise SandboxUnavailable(f"{self.session_id}: the sandbox is not open; call start first")
        return self.sandbox

    async def _must(self, command: str) -> None:
        """Run a command that has to succeed."""
        ended = await self.exec(command)
        if ended.return_code:
            raise SandboxError(f"{command[:200]}: exit code {ended.return_code}: {(ended.stdout or '')[-300:]}")

    async def _write(self, content: bytes, sink: str) -> None:
        """Feed bytes to a command in the sandbox, in pieces that a shell takes."""
        staged = f"/tmp/.transfer-{self.session_id}"
        await self._must(f": > {shlex.quote(staged)}")
        for start in range(0, len(content), CHUNK_BYTES):
            piece = base64.b64encode(content[start : start + CHUNK_BYTES]).decode()
            # In the shell itself: what it starts is given no more than 128 KiB of argument.
            line = f"printf %s {piece} | base64 -d >> {shlex.quote(staged)}"
            ended = await self._live().run(line, timeout_s=DEFAULT_TIMEOUT_S)
            if ended.exit_code:
                raise SandboxError(f"{staged}: could not be written: {ended.output[-300:]}")
        await self._must(f"{sink} < {shlex.quote(staged)}; status=$?; rm -f {shlex.quote(staged)}; exit $status")


class T1Environment(SandboxEnvironment):
    """One sandbox of `NamespaceProvider`, from open to close."""

    task: Task
    sandbox: Sandbox | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Harbor's arguments, as they come."""
        super().__init__(*args, **kwargs)
        self.provider: SandboxProvider = NamespaceProvider(places=HARBOR_PLACES)

    @staticmethod
    def type() -> str:
        """The name that Harbor's records show."""
        return "t1-namespaces"

    @classmethod
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        """Refuse before any trial starts where this host cannot confine a shell."""
        super().preflight(kwargs)
        found = probe()
        if not found:
            raise SystemExit(f"t1 sandboxes: {found}")

    def _validate_definition(self) -> None:
        """The task must be one that T1 reads; a broken one is named by path, key and reason."""
        self.task = read_task(self.environment_dir.parent)

    async def start(self, force_build: bool) -> None:
        """Open the sandbox. Nothing is cached between trials, so `force_build` changes nothing."""
        if self.task.environment.allow_internet:
            self.logger.warning("%s asks for a network; sandboxes of t1 have none", self.task.id)
        try:
            self.sandbox = await self.provider.open(self.task)
        except TaskError as error:
            raise SandboxBuildFailedError(str(error)) from error
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """Close the sandbox and everything of its provider. There is nothing to keep, whatever `delete` says."""
        sandbox, self.sandbox = self.sandbox, None
        if sandbox is not None:
            await sandbox.close()
        await self.provider.close()


class BorrowedEnvironment(SandboxEnvironment):
    """A sandbox that another process owns and verifies (`link.py`)."""

    def __init__(self, socket: Path, **kwargs: Any) -> None:
        """`socket`: where the owner lends it."""
        super().__init__(**kwargs)
        self._socket = socket

    @staticmethod
    def type() -> str:
        """The name that Harbor's records show."""
        return "t1-borrowed"

    def _validate_definition(self) -> None:
        """The owner has read the task."""

    async def start(self, force_build: bool) -> None:
        """Connect."""
        self.sandbox = BorrowedSandbox(self._socket)

    async def stop(self, delete: bool) -> None:
        """Close the connection; the sandbox is its owner's."""
        sandbox, self.sandbox = self.sandbox, None
        if isinstance(sandbox, BorrowedSandbox):
            await sandbox.aclose()


def _pack(source: Path) -> bytes:
    """A tar of the directory's content. Links stay links."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for entry in sorted(source.iterdir()):
            archive.add(entry, arcname=entry.name)
    return packed.getvalue()


def _unpack(packed: bytes, target: Path) -> None:
    """Extract what a hostile agent may have left."""
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(target, filter=transfer_tar_filter)
