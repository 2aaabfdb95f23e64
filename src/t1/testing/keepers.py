"""A keeper without Harbor: its machines are namespace sandboxes with the methods of Harbor's `BaseEnvironment`.

`HarborProvider(python=..., keeper=FAKE_KEEPER)` runs it. What a test asks for in `options`: `fail` (`build`, `refuse`
or `start`: what opening a machine does), `die_after` (calls of exec after which the keeper kills itself), `mute` (calls
of exec from which on nothing is answered to a command that goes through the shell).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t1.sandboxes.harbor.keeping import BuildFailed, Machine, Order, Refused, serve
from t1.sandboxes.namespaces.provider import NamespaceProvider
from t1.sandboxes.namespaces.sandbox import NamespaceSandbox
from t1.types import Environment, Limits, Task, VerifierSpec

FAKE_KEEPER = ("-m", "t1.testing.keepers")
PIECE_BYTES = 256 << 10
MAX_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended."""

    stdout: str
    return_code: int
    stderr: str | None = None


class SandboxMachine:
    """One namespace sandbox: every `exec` is a bash of its own in it."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._provider = NamespaceProvider(places=("/tests",))
        self._sandbox: NamespaceSandbox | None = None
        self._calls = 0

    async def start(self, force_build: bool) -> None:
        """Open the sandbox."""
        if self._order.options.get("fail") == "build":
            raise BuildFailed("no such base image")
        if self._order.options.get("fail") == "start":
            raise OSError("no room")
        folder = Path(self._order.folder)
        environment = Environment(folder, workdir=self._order.workdir, env=self._order.env)
        task = Task("fake", "f" * 64, "", environment, VerifierSpec(folder), Limits(), folder)
        self._sandbox = await self._provider.open(task)

    async def stop(self, delete: bool) -> None:
        """Close it."""
        await self._provider.close()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> Ran:
        """Run a command line beside the others."""
        assert self._sandbox is not None
        self._calls += 1
        options = self._order.options
        if self._calls > options.get("die_after", self._calls):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._calls > options.get("mute", self._calls):
            return Ran("no such container", 1)
        ended = await self._sandbox.run(
            f"( exec bash -c {shlex.quote(command)} )", timeout_s=timeout_sec or 3600, max_output_bytes=MAX_BYTES
        )
        return Ran(ended.output, 137 if ended.exit_code is None else ended.exit_code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """In pieces, through the shell."""
        content, target = await asyncio.to_thread(Path(source_path).read_bytes), shlex.quote(target_path)
        await self._must(f": >{target}")
        for begin in range(0, len(content), PIECE_BYTES):
            piece = base64.b64encode(content[begin : begin + PIECE_BYTES]).decode()
            await self._must(f"printf %s {piece} | base64 -d >>{target}")

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """As an archive."""
        with tempfile.TemporaryDirectory() as folder:
            packed = await asyncio.to_thread(shutil.make_archive, f"{folder}/a", "tar", source_dir)
            await self.upload_file(packed, "/tmp/.upload")
        target = shlex.quote(target_dir)
        await self._must(f"mkdir -p {target} && tar -xf /tmp/.upload -C {target} && rm /tmp/.upload")

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Through the sandbox's own read."""
        assert self._sandbox is not None
        content = await self._sandbox.read(source_path, max_bytes=MAX_BYTES)
        if content is None:
            raise FileNotFoundError(source_path)
        await asyncio.to_thread(Path(target_path).write_bytes, content)

    async def _must(self, command: str) -> None:
        assert self._sandbox is not None
        ended = await self._sandbox.run(command, timeout_s=60)
        if ended.exit_code != 0:
            raise OSError(f"{command[:80]}: {ended.output[-200:]}")


class FakeMaker:
    """A `keeping.Maker` of them."""

    def machine(self, order: Order, logs: Path) -> SandboxMachine:
        """See `keeping.Maker.machine`."""
        if order.options.get("fail") == "refuse":
            raise Refused(f"{order.environment}: this provider cannot close the network")
        return SandboxMachine(order)

    def is_build_failure(self, error: Exception) -> bool:
        """See `keeping.Maker.is_build_failure`."""
        return isinstance(error, BuildFailed)

    async def stop(self, machine: Machine) -> None:
        """See `keeping.Maker.stop`."""
        await machine.stop(delete=True)

    def finds_again(self, order: Order) -> bool:
        """See `keeping.Maker.finds_again`: they die with their keeper."""
        return True


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=("keep",))
    parser.add_argument("--environment")
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--root", type=Path)
    parser.add_argument("--label", default="")
    parser.add_argument("--link", type=int)
    given: Any = parser.parse_args()
    if given.environment == "nowhere":
        print("nowhere: no credentials", file=sys.stderr)
        return 2
    return serve(given.root, given.label, given.link, FakeMaker())


if __name__ == "__main__":
    sys.exit(main())
