"""Who owns a container, written on its labels, and a sweeper for what owners that are gone left (case F3).

Unlike a namespace sandbox, a container outlives the process that started it. Boundary: labels and `rm`; a container
without our labels is never touched.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from t1.sandboxes.containers.engine import ContainerEngine
from t1.sandboxes.processes import pid_namespace, started

OWNER, EXPIRES, LABEL = "t1.owner", "t1.expires", "t1.label"
_FORMAT = "\t".join(
    ["{{.Name}}", *('{{index .Config.Labels "' + name + '"}}' for name in (OWNER, EXPIRES, LABEL)), "{{.State.Status}}"]
)


@dataclass(frozen=True, slots=True)
class Owner:
    """A process of this machine, told apart from those before it and in other containers."""

    boot: str
    namespace: int
    pid: int
    started: int

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        return cls(_boot(), pid_namespace(os.getpid()), os.getpid(), started(os.getpid()) or 0)

    @classmethod
    def read(cls, text: str) -> Owner | None:
        """What `str` wrote, or None."""
        try:
            boot, namespace, pid, since = text.split(".")
            return cls(boot, int(namespace), int(pid), int(since))
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.boot}.{self.namespace}.{self.pid}.{self.started}"

    @property
    def gone(self) -> bool:
        """True when it certainly runs no more; a process that we cannot see may."""
        if self.boot != _boot():
            return True
        return self.namespace == pid_namespace(os.getpid()) and started(self.pid) != self.started


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")[:12]


@dataclass(frozen=True, slots=True)
class LeasedContainer:
    """A container of ours, whoever started it."""

    name: str
    owner: Owner | None
    expires: float
    """Seconds since the epoch."""
    label: str
    state: str

    @property
    def abandoned(self) -> bool:
        """True when its owner is gone, or its time is over."""
        return time.time() > self.expires or (self.owner is not None and self.owner.gone)


async def list_containers(engine: ContainerEngine) -> list[LeasedContainer]:
    """Every container that carries our labels. Raises SandboxError."""
    listed = await engine.must("ps", "--all", "--filter", f"label={OWNER}", "--format", "{{.Names}}")
    found = []
    for name in listed.text.split():
        ended = await engine.call("container", "inspect", "--format", _FORMAT, name)
        if ended.code == 0:  # else it went away meanwhile
            name, owner, expires, label, state = ended.text.split("\t")
            found.append(LeasedContainer(name.lstrip("/"), Owner.read(owner), _seconds(expires), label, state))
    return found


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


async def sweep_containers(engine: ContainerEngine) -> list[str]:
    """Remove the containers that nobody owns any more; returns their names."""
    removed = []
    for container in await list_containers(engine):
        if container.abandoned and (await engine.remove(container.name)).code == 0:
            removed.append(container.name)
    return removed
