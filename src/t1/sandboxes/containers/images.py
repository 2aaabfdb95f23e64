"""Images of tasks for containers: built once from `environment/Dockerfile`, named by what went in.

Boundary: an image's name and its settings out; no container is started here.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from t1.errors import SandboxError, SandboxTimeout, SandboxUnavailable, TaskError
from t1.sandboxes.containers.engine import ContainerEngine
from t1.sandboxes.dockerfile import DEFAULT_WORKDIR
from t1.types import Environment, Task

REPOSITORY = "localhost/t1/task"
LABEL = "t1.image"


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image that the engine has, and what it says about itself."""

    name: str
    workdir: str = DEFAULT_WORKDIR
    user: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


class ImageCache:
    """Finds or builds the image of a task; each is built once, whoever asks at the same time."""

    def __init__(self, engine: ContainerEngine, default: str | None, network: str) -> None:
        self._engine = engine
        self._default = default
        self._network = network
        self._images: dict[str, BuiltImage] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def image(self, task: Task) -> BuiltImage:
        """The image of the task's environment. Raises TaskError where it does not build."""
        key = f"{task.digest} {task.environment.path}"
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._images:
                self._images[key] = await self._make(task.environment)
        return self._images[key]

    async def _make(self, environment: Environment) -> BuiltImage:
        dockerfile = environment.path / "Dockerfile"
        if environment.docker_image is not None:
            name = environment.docker_image
            await self._pull(name, environment)
        elif dockerfile.is_file():
            name = f"{REPOSITORY}:{await asyncio.to_thread(context_digest, environment.path)}"
            await self._build(name, dockerfile, environment)
        elif self._default is not None:
            name = self._default
        else:
            raise TaskError(dockerfile, "no such file: containers need it, or environment.docker_image in task.toml")
        return await self._inspect(name, environment)

    async def _pull(self, name: str, environment: Environment) -> None:
        """Have a published image; the one that is here already does."""
        if await self._has(name):
            return
        ended = await self._engine.call("pull", "--quiet", name, timeout_s=environment.build_timeout_s)
        if ended.code != 0:
            raise SandboxUnavailable(
                f"image {name} cannot be pulled: {ended.complaint[-500:]}. "
                f"To fix it: load it with `{self._engine.program} load` or `import`, or give the task a Dockerfile"
            )

    async def _build(self, name: str, dockerfile: Path, environment: Environment) -> None:
        if await self._has(name):
            return
        # With its own namespaces a build step would need what many container hosts forbid.
        isolation = ("--isolation=chroot",) if self._engine.is_podman else ()
        words = (*isolation, f"--network={self._network}", "--label", f"{LABEL}=1", "--tag", name)
        try:
            ended = await self._engine.call(
                "build", *words, "--file", str(dockerfile), str(environment.path), timeout_s=environment.build_timeout_s
            )
        except SandboxTimeout as error:
            raise TaskError(dockerfile, f"did not build within {environment.build_timeout_s:g} s") from error
        if ended.code != 0:
            raise TaskError(dockerfile, f"does not build: {(ended.complaint or ended.text)[-800:]}")

    async def _has(self, name: str) -> bool:
        return (await self._engine.call("image", "inspect", "--format", "{{.Id}}", name)).code == 0

    async def _inspect(self, name: str, environment: Environment) -> BuiltImage:
        """What the image says about itself; `docker_image` and `default` may name one that is not here."""
        ended = await self._engine.call("image", "inspect", "--format", "{{json .Config}}", name)
        if ended.code != 0:
            raise SandboxUnavailable(f"image {name} is not here: {ended.complaint}. To fix it: build or import it")
        try:
            config = json.loads(ended.text)
            variables = dict(line.partition("=")[::2] for line in config.get("Env") or ())
            workdir = environment.workdir or config.get("WorkingDir") or DEFAULT_WORKDIR
            return BuiltImage(name, workdir if workdir != "/" else DEFAULT_WORKDIR, config.get("User") or "", variables)
        except (ValueError, AttributeError) as error:
            raise SandboxError(f"image {name}: its settings cannot be read: {error}") from error


def context_digest(folder: Path) -> str:
    """sha256 over every file of a build context: path, kind, mode bit x, bytes or link target."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        kind = "l" if stat.S_ISLNK(mode) else "d" if stat.S_ISDIR(mode) else "x" if mode & 0o100 else "f"
        digest.update(f"{kind} {path.relative_to(folder)}\0".encode("utf-8", "surrogateescape"))
        if kind == "l":
            digest.update(os.fsencode(path.readlink()))
        elif stat.S_ISREG(mode):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
