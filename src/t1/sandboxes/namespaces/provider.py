"""Sandboxes from Linux namespaces through bubblewrap: the default provider, no daemon, no image, no root needed.

Boundary: this module never learns of policies, models or rewards; what it opens it closes, and what a killed owner
left, the next one sweeps.
"""

from __future__ import annotations

import asyncio
import copy
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from t1.errors import SandboxError, TaskError
from t1.sandboxes.cgroups import GroupLimits
from t1.sandboxes.dockerfile import Image
from t1.sandboxes.health import become_healthy
from t1.sandboxes.leases import remove
from t1.sandboxes.namespaces.confinement import Confinement, Mounts, SandboxProbe, command_line, probe
from t1.sandboxes.namespaces.home import TESTS_PLACE, Home, check_passable
from t1.sandboxes.namespaces.sandbox import NamespaceSandbox
from t1.sandboxes.namespaces.shell import ProcessLimits
from t1.sandboxes.network.proxy import PORT, AllowLists, variables
from t1.sandboxes.network.reach import Address
from t1.sandboxes.places import make_places, own_tree
from t1.sandboxes.snapshots import Snapshot, copy_places
from t1.types import FileChanges, Task

VERIFIER_PLACE = "/logs"
"""Never handed from the agent to the verifier."""
OVERHEAD_PROCESSES = 4
"""Bubblewrap's own, in the sandbox's control group."""


class NamespaceProvider:
    """Opens namespace sandboxes under `root` (default: the temporary directory).

    They have no network but `reach` and `allow_lists`; the kernel kills them with this program. Raises
    SandboxUnavailable, with what to change, where this host cannot confine a shell.
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        confinement: Confinement | None = None,
        num_processes: int = 256,
        file_mb: int = 1024,
        open_timeout_s: float = 30.0,
        places: Sequence[str] = (),
        reach: Mapping[int, Address] | None = None,
        readable: Sequence[Path] = (),
        rootfs: Path | None = None,
        allow_lists: AllowLists | None = None,
        label: str = "",
    ) -> None:
        """`places`: further top-level directories that can be written and are never carried to the verifier.

        `reach`: port of 127.0.0.1 in the agent's sandbox → (host, port) as the host resolves it; a pristine sandbox
        never has it. `readable`: files or directories of the host, read-only at the same path in every sandbox.
        `rootfs`: what stands in for the host's /usr: a directory, or an image's archive or layout (see `oci`), which is
        unpacked for the provider's life. `allow_lists`: lets a task's agent reach the hosts that its task.toml lists;
        without it nobody has a network. `label`: what `t1 sandboxes list` calls the owner.
        """
        self._home = Home(root, confinement, tuple(places), label, rootfs)
        self._num_processes = num_processes
        self._file_mb = file_mb
        self._open_timeout_s = open_timeout_s
        self._extra_places = tuple(places)
        self._reach = dict(reach or {})
        self._readable = tuple(path.absolute() for path in readable)
        self._allow_lists = allow_lists
        self._open: set[NamespaceSandbox] = set()

    def with_reach(self, reach: Mapping[int, Address], readable: Sequence[Path] = ()) -> NamespaceProvider:
        """The same provider for sandboxes that reach these addresses too. The two share one life: closing either
        closes the sandboxes of both.
        """
        other = copy.copy(self)
        other._reach = {**self._reach, **reach}
        other._readable = (*self._readable, *(path.absolute() for path in readable))
        return other

    async def open(self, task: Task) -> NamespaceSandbox:
        """See `protocols.SandboxProvider.open`."""
        home = self._home
        home.prepare()
        image, (name, directory), uid = home.image(task), home.next(), home.uid()
        places = make_places(directory, image, uid if home.owned else None, home.rootfs)
        proxy = None if self._allow_lists is None else await self._allow_lists.address(task.environment)
        if proxy is not None:
            image = replace(image, env={**variables(), **image.env})
        reach = self._reach if proxy is None else {**self._reach, PORT: proxy}
        sandbox = await self._start(task, name, directory, places, image, uid, reach=reach)
        try:
            for step in image.runs:
                command = f"cd {shlex.quote(step.workdir)} && bash -c {shlex.quote(step.command)}"
                ended = await sandbox.run(f"({command})", timeout_s=task.environment.build_timeout_s)
                if ended.exit_code != 0:
                    reason = "ran out of time" if ended.timed_out else f"exit code {ended.exit_code}"
                    raise TaskError(image.source, f"{reason}: {ended.output.strip()[-500:]}", step.where)
            if task.environment.healthcheck is not None:
                await become_healthy(sandbox, task.environment.healthcheck)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def open_pristine(self, task: Task, changes: FileChanges) -> NamespaceSandbox:
        """See `protocols.SandboxProvider.open_pristine`: the agent's places are mounted, its shell is not carried."""
        home = self._home
        home.prepare()
        image, (name, directory) = home.image(task), home.next()
        carried = {place: changes.root / subtree for place, subtree in changes.places.items()}
        # The agent is dead; its uid is the one that can read all of its files.
        uid = next(iter(carried.values())).stat(follow_symlinks=False).st_uid if carried else home.uid()
        fresh = Image(places=tuple(dict.fromkeys(p for p in (*image.places, VERIFIER_PLACE) if p not in carried)))
        places = {**make_places(directory, fresh, uid if home.owned else None), **carried}
        return await self._start(task, name, directory, places, image, uid, tests=home.tests(task))

    async def snapshot(self, sandbox: NamespaceSandbox) -> Snapshot:
        """Keep the files of a sandbox as they are now. Its background processes end."""
        target = self._home.next()[1]
        try:
            return Snapshot(target.name, await sandbox.copy_to(target))
        except BaseException:
            await asyncio.to_thread(remove, target)
            raise

    async def restore(self, task: Task, snapshot: Snapshot) -> NamespaceSandbox:
        """A new sandbox of the task that begins with the snapshot's files."""
        home = self._home
        image, (name, directory), uid = home.image(task), home.next(), home.uid()
        kept = home.path / snapshot.name
        tops = [path.name for path in kept.iterdir()] if kept.is_dir() else []
        if not tops:
            raise SandboxError(f"snapshot {snapshot.name} is not there any more")
        fresh = Image(places=tuple(place for place in image.places if place[1:] not in tops))
        places = make_places(directory, fresh, uid if home.owned else None)
        await asyncio.to_thread(copy_places, {f"/{top}": kept / top for top in tops}, directory)
        for top in tops:
            places[f"/{top}"] = directory / top
            if home.owned:
                await asyncio.to_thread(own_tree, directory / top, uid)
        image = replace(image, workdir=snapshot.directory)
        return await self._start(task, name, directory, places, image, uid, reach=self._reach)

    async def discard(self, snapshot: Snapshot) -> None:
        """Forget a snapshot."""
        await asyncio.to_thread(remove, self._home.path / snapshot.name)

    async def close(self) -> None:
        """See `protocols.SandboxProvider.close`; removes everything of this provider from the disk."""
        await asyncio.gather(*(sandbox.close() for sandbox in list(self._open)))
        if self._allow_lists is not None:
            self._allow_lists.close()
        await asyncio.to_thread(self._home.remove)

    def probe(self) -> SandboxProbe:
        """What this host can do."""
        return probe()

    async def _start(
        self,
        task: Task,
        name: str,
        directory: Path,
        places: Mapping[str, Path],
        image: Image,
        uid: int,
        *,
        reach: Mapping[int, Address] | None = None,
        tests: Path | None = None,
    ) -> NamespaceSandbox:
        """A started sandbox, known to this provider until it is closed."""
        if self._home.owned:
            for path in self._readable:
                check_passable(path)
        readonly = {str(path): path for path in self._readable} | ({} if tests is None else {"/tests": tests})
        mounts = Mounts(self._home.path / "etc", places, readonly, self._home.rootfs)
        asked = task.environment
        sandbox = NamespaceSandbox(
            name,
            directory,
            places,
            image.workdir,
            confine=partial(command_line, self._home.way, uid, mounts, image.env),
            nursery=self._home.nursery,
            group=self._home.group(
                directory.name, GroupLimits(asked.memory_mb, self._num_processes + OVERHEAD_PROCESSES, asked.cpus)
            ),
            limits=ProcessLimits(asked.memory_mb, self._file_mb, self._num_processes),
            storage_bytes=asked.storage_mb << 20,
            open_timeout_s=self._open_timeout_s,
            uncarried=frozenset({VERIFIER_PLACE, TESTS_PLACE, *self._extra_places}),
            reach=reach or {},
            closed=self._open.discard,
        )
        self._open.add(sandbox)
        try:
            await sandbox.start()
        except BaseException:
            await sandbox.close()
            raise
        return sandbox
