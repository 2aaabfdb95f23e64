"""Owns Harbor's environments for a process under another Python: `python -m t1.harbor.keeper keep` or `sweep`.

Boundary: makes environments of Harbor's classes and says what their errors mean; `sandboxes.harbor.keeping`
does the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, SandboxBuildFailedError
from harbor.environments.docker.docker import DockerEnvironment
from harbor.environments.factory import EnvironmentFactory
from harbor.models.environment_type import EnvironmentType
from harbor.models.task.config import EnvironmentConfig, NetworkPolicy, TaskConfig
from harbor.models.trial.paths import TrialPaths

from t1.errors import TaskError
from t1.sandboxes.harbor.keeping import BuildFailed, Machine, Order, Refused, serve, sweep_kept

_COMPOSE_BUILD = re.compile(r"Command: .* build\. Return code")


class HarborMaker:
    """A `keeping.Maker` of Harbor's environments."""

    def machine(self, order: Order, logs: Path) -> BaseEnvironment:
        """See `keeping.Maker.machine`."""
        paths = TrialPaths(trial_dir=logs)
        paths.mkdir()
        asked: dict[str, Any] = dict(order.options)
        if order.network:
            asked["network_policy"] = NetworkPolicy(network_mode=order.network, allowed_hosts=order.allowed_hosts)
        made = environment_class(order.environment)
        try:
            return made(
                environment_dir=Path(order.folder),
                environment_name=order.task,
                session_id=order.session,
                trial_paths=paths,
                task_env_config=_config(order),
                persistent_env=order.env,
                **asked,
            )
        except (FileNotFoundError, TaskError) as error:
            raise BuildFailed(str(error)) from error
        except (ValueError, TypeError, RuntimeError) as error:
            raise Refused(f"{order.environment}: {error}{_advice(error)}") from error

    def is_build_failure(self, error: Exception) -> bool:
        """See `keeping.Maker.is_build_failure`. Compose's failures tell by their command alone."""
        return isinstance(error, SandboxBuildFailedError | TaskError) or bool(_COMPOSE_BUILD.search(str(error)))

    async def stop(self, machine: Machine) -> None:
        """See `keeping.Maker.stop`. Compose would delete the image with the machine: the next one needs it."""
        if not isinstance(machine, DockerEnvironment):
            await machine.stop(delete=True)
            return
        await machine.stop(delete=False)
        # Harbor only warns where compose has failed.
        if left := await _containers(machine):
            await _engine(machine, "rm", "--force", "--volumes", *left)
            if left := await _containers(machine):
                raise RuntimeError(f"containers are left: {', '.join(left)}")

    def finds_again(self, order: Order) -> bool:
        """See `keeping.Maker.finds_again`: compose projects carry the session's name."""
        return issubclass(environment_class(order.environment), DockerEnvironment)


async def _containers(machine: DockerEnvironment) -> list[str]:
    """What is left of a session, by the label that compose gives it."""
    label = f"label=com.docker.compose.project={machine.session_id}"
    return (await _engine(machine, "ps", "--all", "--quiet", "--filter", label)).split()


async def _engine(machine: DockerEnvironment, *words: str) -> str:
    """What the engine's command line prints."""
    process = await asyncio.create_subprocess_exec(
        *type(machine).runtime().engine_cmd(*words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    printed, _ = await process.communicate()
    return printed.decode(errors="replace")


def environment_class(name: str) -> type[BaseEnvironment]:
    """Harbor's class by its short name, or any class by `module.path:ClassName`."""
    where = {"import_path": name} if ":" in name else {"environment_type": EnvironmentType(name)}
    found: type[BaseEnvironment] = EnvironmentFactory.get_environment_class(**where)
    return found


def _config(order: Order) -> EnvironmentConfig:
    """What the task says to Harbor alone (accelerators, sidecars), and what T1 has read of it."""
    task = Path(order.folder).parent / "task.toml"
    config = EnvironmentConfig()
    if task.is_file():
        config = TaskConfig.model_validate_toml(task.read_text(encoding="utf-8")).environment
    # Variables go another way: Harbor would fill its templates from this process's own environment.
    known = {name: getattr(order, name) for name in ("docker_image", "workdir", "cpus", "memory_mb", "storage_mb")}
    return config.model_copy(update={**known, "env": {}, "healthcheck": None})


def _advice(error: Exception) -> str:
    """What to do about a network that a provider cannot close."""
    return "; or set sandboxes.network = provider" if "network" in str(error) else ""


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m t1.harbor.keeper")
    parser.add_argument("verb", choices=("keep", "sweep", "check"))
    parser.add_argument("--environment", default="docker")
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--root", type=Path)
    parser.add_argument("--label", default="")
    parser.add_argument("--link", type=int)
    given = parser.parse_args()
    if given.verb == "sweep":
        print("\n".join(asyncio.run(sweep_kept(given.root, HarborMaker()))))
        return 0
    try:
        environment_class(given.environment).preflight(given.options)
    except (ImportError, ValueError, TypeError) as error:
        print(f"{given.environment}: {error}", file=sys.stderr)
        return 2
    return 0 if given.verb == "check" else serve(given.root, given.label, given.link, HarborMaker())


if __name__ == "__main__":
    sys.exit(main())
