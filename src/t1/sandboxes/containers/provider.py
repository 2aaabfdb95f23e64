"""Sandboxes from containers: podman or docker on this machine, for tasks whose image is more than the host's /usr.

Boundary: this module decides how a container is made, from the task and the provider's settings; `container` drives
one, `images` builds what it is made from, `owners` sweeps what a killed owner left.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from t1.errors import SandboxError
from t1.sandboxes.containers.engine import CALL_S, ContainerEngine, find_engine
from t1.sandboxes.containers.images import BuiltImage, ImageCache
from t1.sandboxes.containers.owners import EXPIRES, LABEL, OWNER, Owner, sweep_containers
from t1.sandboxes.containers.piped import LOOP
from t1.sandboxes.containers.sandbox import COPY_S, ContainerSandbox
from t1.sandboxes.health import become_healthy
from t1.sandboxes.leases import default_root, lease, remove, sweep
from t1.sandboxes.network.proxy import PORT, AllowLists, variables
from t1.sandboxes.network.reach import Address
from t1.sandboxes.snapshots import Snapshot
from t1.types import FileChanges, Task

LOGS = "/logs"
DROPPED = ("AUDIT_WRITE", "MKNOD", "NET_RAW", "SETPCAP", "SYS_CHROOT")
"""Of the capabilities that engines leave to a container's root, those that no task needs."""
SNAPSHOTS = "localhost/t1/snapshot"
LEASE_S = 24 * 3600.0


class ContainerProvider:
    """Opens containers. They have no network but `reach` and `allow_lists`, unless `internet` names an
    engine's network for tasks that ask for it.

    `default_image` serves tasks that bring neither a Dockerfile nor `docker_image`. Images are built on the engine's
    network `build_network`, named by the digest of what went in, and kept. `reach` and `readable`: see
    NamespaceProvider; only the agent's sandbox has them.
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        engine: ContainerEngine | None = None,
        default_image: str | None = None,
        internet: str = "none",
        build_network: str = "host",
        num_processes: int = 512,
        open_timeout_s: float = 60.0,
        lease_s: float = LEASE_S,
        reach: Mapping[int, Address] | None = None,
        readable: Sequence[Path] = (),
        allow_lists: AllowLists | None = None,
        label: str = "",
    ) -> None:
        self._root = (root or default_root()).absolute()
        self._engine = engine or find_engine()
        self._internet = internet
        self._num_processes = num_processes
        self._open_timeout_s = open_timeout_s
        self._lease_s = lease_s
        self._reach = dict(reach or {})
        self._readable = tuple(path.absolute() for path in readable)
        self._allow_lists = allow_lists
        self._label = label
        self._images = ImageCache(self._engine, default_image, build_network)
        self._numbers = itertools.count()
        self._preparing = asyncio.Lock()
        self._home: Path | None = None
        self._open: set[ContainerSandbox] = set()
        self._snapshots: set[str] = set()
        self._held: set[str] = set()

    async def open(self, task: Task) -> ContainerSandbox:
        """See `protocols.SandboxProvider.open`. Raises TaskError where the image does not build."""
        image = await self._images.image(task)
        proxy = None if self._allow_lists is None else await self._allow_lists.address(task.environment)
        reach = self._reach if proxy is None else {**self._reach, PORT: proxy}
        env = {} if proxy is None else variables()
        sandbox = await self._start(task, image, {}, user=task.environment.user, env=env, reach=reach)
        if task.environment.healthcheck is not None:
            try:
                await become_healthy(sandbox, task.environment.healthcheck)
            except BaseException:
                await sandbox.close()
                raise
        return sandbox

    async def open_pristine(self, task: Task, changes: FileChanges) -> ContainerSandbox:
        """See `protocols.SandboxProvider.open_pristine`: mounts the places that the agent changed."""
        image = await self._images.image(task)
        carried = {place: changes.root / subtree for place, subtree in changes.places.items()}
        return await self._start(task, image, carried, tests=task.verifier.path)

    async def snapshot(self, sandbox: ContainerSandbox) -> Snapshot:
        """Keep the files of a sandbox as they are now, as an image."""
        name = f"{SNAPSHOTS}:{sandbox.id}-{next(self._numbers)}"
        directory = (await sandbox.run("pwd", timeout_s=CALL_S)).output.rstrip("\n")
        await self._engine.must("commit", "--pause=true", sandbox.id, name, timeout_s=COPY_S)
        self._snapshots.add(name)
        return Snapshot(name, directory, tuple(await sandbox.changed()))

    async def restore(self, task: Task, snapshot: Snapshot) -> ContainerSandbox:
        """A new sandbox of the task that begins with the snapshot's files."""
        if snapshot.name not in self._snapshots:
            raise SandboxError(f"snapshot {snapshot.name} is not there any more")
        image = replace(await self._images.image(task), name=snapshot.name, workdir=snapshot.directory)
        user = task.environment.user
        return await self._start(task, image, {}, user=user, changed=snapshot.places, reach=self._reach)

    async def discard(self, snapshot: Snapshot) -> None:
        """Forget a snapshot; the engine keeps it while sandboxes that began with it are open."""
        self._snapshots.discard(snapshot.name)
        if (await self._engine.call("rmi", snapshot.name)).code != 0:
            self._held.add(snapshot.name)

    async def close(self) -> None:
        """See `protocols.SandboxProvider.close`; the tasks' images stay."""
        await asyncio.gather(*(sandbox.close() for sandbox in list(self._open)))
        for name in self._snapshots | self._held:
            await self._engine.call("rmi", "--force", name)
        self._snapshots.clear()
        self._held.clear()
        if self._allow_lists is not None:
            self._allow_lists.close()
        if self._home is not None:
            home, self._home = self._home, None
            await asyncio.to_thread(remove, home)

    async def _prepare(self) -> Path:
        """The provider's own directory, and a sweep of what others left, once."""
        async with self._preparing:
            if self._home is None:
                await sweep_containers(self._engine)
                await asyncio.to_thread(sweep, self._root)
                self._home = lease(self._root, label=self._label)
                self._home.chmod(0o700)  # what an agent left may be set-uid, and is its own affair
            return self._home

    async def _start(
        self,
        task: Task,
        image: BuiltImage,
        carried: Mapping[str, Path],
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        changed: Sequence[str] = (),
        reach: Mapping[int, Address] | None = None,
        tests: Path | None = None,
    ) -> ContainerSandbox:
        """A started sandbox, known to this provider until it is closed."""
        home = await self._prepare()
        number = f"s{next(self._numbers)}"
        name, directory = f"t1-{home.name.rpartition('-')[2]}-{number}", home / number
        mounted = {**carried, LOGS: _make_logs(directory)}
        readonly = {str(path): path for path in self._readable} if tests is None else {"/tests": tests}
        creation = [
            *("run", "--interactive", "--name", name, "--pull=never", "--workdir", "/", "--entrypoint", "/bin/bash"),
            *self._labels(),
            *self._limits(task),
            *(word for path, host in mounted.items() for word in ("--volume", f"{host}:{path}")),
            *(word for path, host in readonly.items() for word in ("--volume", f"{host.resolve()}:{path}:ro")),
            *(word for pair in {**(env or {}), **task.environment.env}.items() for word in ("--env", "=".join(pair))),
            *(() if user is None else ("--user", user)),
            *(image.name, "--norc", "--noprofile", "-c", LOOP, "bash", image.workdir, image.workdir),
        ]
        sandbox = ContainerSandbox(
            name,
            self._engine,
            creation,
            directory,
            mounted,
            changed=changed,
            readable=tuple(readonly),
            reach=reach or {},
            open_timeout_s=self._open_timeout_s,
            closed=self._open.discard,
        )
        self._open.add(sandbox)
        try:
            await sandbox.start()
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    def _labels(self) -> Iterator[str]:
        """Who owns the container and until when."""
        labels = {OWNER: str(Owner.current()), EXPIRES: f"{time.time() + self._lease_s:.0f}", LABEL: self._label}
        for name, value in labels.items():
            yield from ("--label", f"{name}={value}")

    def _limits(self, task: Task) -> Iterator[str]:
        """What the task may use, and what it can do to the machine: nothing."""
        asked = task.environment
        yield from ("--memory", f"{asked.memory_mb}m", "--cpus", str(asked.cpus))
        yield from ("--pids-limit", str(self._num_processes), "--security-opt", "no-new-privileges")
        yield from (f"--network={self._internet if asked.allow_internet else 'none'}", "--log-driver=none")
        for capability in DROPPED:
            yield from ("--cap-drop", capability)
        # Below what any host may hand on: an engine's own defaults may be above it. Root's processes are not counted.
        for limit, most in (("nofile", 1024), ("nproc", 1024), ("core", 0)):
            yield from ("--ulimit", f"{limit}={most}:{most}")


def _make_logs(directory: Path) -> Path:
    """A fresh /logs, in which any user of the container may write."""
    logs = directory / "logs"
    for path in (directory, logs, logs / "agent", logs / "verifier"):
        path.mkdir()
        path.chmod(0o700 if path == directory else 0o777)
    return logs
