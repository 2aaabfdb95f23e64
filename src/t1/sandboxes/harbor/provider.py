"""Sandboxes from whatever Harbor drives: docker, podman, Daytona, Modal, E2B, Kubernetes and some thirty more.

Harbor needs a newer Python than T1 may run under, so a keeper process of that Python owns the machines (`keeping`).
It ends with this process, however this process ends, and stops them first. Boundary: plain settings and tasks in; no
`harbor` here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from t1.errors import SandboxError, TaskError, UserError
from t1.sandboxes.harbor.keeper import BuildError, Keeper
from t1.sandboxes.harbor.keeping import Order
from t1.sandboxes.harbor.pythons import find_python
from t1.sandboxes.harbor.sandbox import KeptSandbox
from t1.sandboxes.health import become_healthy
from t1.types import FileChanges, Task

START_S = 180.0
"""For the keeper to import Harbor and its provider's library."""
NETWORKS = ("none", "listed", "all", "provider")


class HarborProvider:
    """Opens Harbor's environments."""

    def __init__(
        self,
        root: Path | None = None,
        *,
        environment: str = "docker",
        options: Mapping[str, Any] | None = None,
        python: Path | None = None,
        keeper: Sequence[str] = ("-m", "t1.harbor.keeper"),
        default_image: str | None = None,
        network: str = "none",
        label: str = "",
    ) -> None:
        """`environment`: a name of Harbor's, or `module.path:ClassName` under the keeper's Python; `options` go to its
        constructor. `python`: see `find_python`. `network`: as everywhere, or `provider` for whatever the provider
        does when nothing is asked of it.
        """
        if network not in NETWORKS:
            raise ValueError(f"network: expected one of {', '.join(NETWORKS)}, got {network!r}")
        self._root = (root or Path(tempfile.gettempdir())).absolute()
        self._environment = environment
        self._options = dict(options or {})
        self._python = python
        self._arguments = tuple(keeper)
        self._default_image = default_image
        self._network = network
        self._label = label
        self._numbers = itertools.count()
        self._starting = asyncio.Lock()
        self._keeper: Keeper | None = None
        self._prefix = ""
        self._open: set[KeptSandbox] = set()

    async def open(self, task: Task) -> KeptSandbox:
        """See `protocols.SandboxProvider.open`. Raises TaskError where the image does not build."""

        async def make_ready(sandbox: KeptSandbox) -> None:
            await sandbox.begin()
            if task.environment.healthcheck is not None:
                await become_healthy(sandbox, task.environment.healthcheck)

        return await self._start(task, make_ready, user=task.environment.user)

    async def open_pristine(self, task: Task, changes: FileChanges) -> KeptSandbox:
        """See `protocols.SandboxProvider.open_pristine`: a new machine of the same image, the files put in place."""

        async def make_ready(sandbox: KeptSandbox) -> None:
            if changes.places:
                await sandbox.carry(changes)
            await sandbox.upload(task.verifier.path.resolve(), "/tests")
            await sandbox.begin()

        return await self._start(task, make_ready, user=None)

    async def close(self) -> None:
        """See `protocols.SandboxProvider.close`. Raises SandboxError where the provider did not stop something."""
        closing = [sandbox.close() for sandbox in list(self._open)]
        problems = [found for found in await asyncio.gather(*closing, return_exceptions=True) if found is not None]
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await keeper.close()
        for problem in problems:
            if not isinstance(problem, SandboxError):  # else the keeper has tried again as it ended
                raise problem

    async def _start(
        self, task: Task, make_ready: Callable[[KeptSandbox], Awaitable[None]], *, user: str | None
    ) -> KeptSandbox:
        """An open sandbox, known to this provider until it is closed."""
        keeper = await self._kept()
        order = self._order(task)
        bound_s = task.environment.build_timeout_s
        try:
            await keeper.call("open", order=asdict(order), timeout_s=bound_s, bound_s=bound_s)
        except BuildError as error:
            dockerfile = task.environment.path / "Dockerfile"
            path = dockerfile if dockerfile.is_file() else task.environment.path
            raise TaskError(path, f"its image does not build: {error}") from error
        sandbox = KeptSandbox(keeper, order.session, task, user=user, closed=self._open.discard)
        self._open.add(sandbox)
        try:
            await sandbox.prepare()
            await make_ready(sandbox)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    def _order(self, task: Task) -> Order:
        """What the keeper is to open."""
        asked = task.environment
        named = asked.docker_image is not None or any(
            (asked.path / name).is_file() for name in ("Dockerfile", "docker-compose.yaml")
        )
        network, hosts = self._policy(task)
        return Order(
            session=f"{self._prefix}-s{next(self._numbers)}",
            environment=self._environment,
            options=self._options,
            task=task.path.name or "task",
            folder=str(asked.path.resolve()),
            docker_image=asked.docker_image if named else self._default_image,
            workdir=asked.workdir,
            cpus=asked.cpus,
            memory_mb=asked.memory_mb,
            storage_mb=asked.storage_mb,
            env=dict(asked.env),
            network=network,
            allowed_hosts=hosts,
        )

    def _policy(self, task: Task) -> tuple[str, list[str]]:
        """Harbor's network mode for a task, and the hosts that it may reach."""
        if self._network == "provider":
            return "", []
        if self._network == "all" and task.environment.allow_internet:
            return "public", []
        if self._network != "none" and task.environment.allowed_hosts:
            return "allowlist", list(task.environment.allowed_hosts)
        return "no-network", []

    async def _kept(self) -> Keeper:
        """The keeper; a new one where the last has died."""
        async with self._starting:
            if self._keeper is not None and not self._keeper.alive:
                dead, self._keeper = self._keeper, None
                await dead.close()
            if self._keeper is None:
                self._root.mkdir(parents=True, exist_ok=True)
                self._prefix = f"t1-{secrets.token_hex(4)}"
                words = keeper_words(self._python, self._arguments)
                named = ("--environment", self._environment, "--options", json.dumps(self._options))
                self._keeper = await Keeper.start(
                    [*words, "keep", *named, "--root", str(self._root), "--label", self._label, "--link"],
                    timeout_s=START_S,
                )
            return self._keeper


def keeper_words(python: Path | None = None, arguments: Sequence[str] = ("-m", "t1.harbor.keeper")) -> list[str]:
    """The beginning of a keeper's command line. Raises UserError where no Python has harbor."""
    path = python or find_python()
    if not path.is_file():
        raise UserError(f"sandboxes.python: {path}: no such interpreter")
    return [str(path), *arguments]
