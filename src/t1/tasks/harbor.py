"""Harbor's task directory, read and written: `task.toml` of schema 1.0 to 1.4 and the folders beside it.

    TASK/task.toml          TASK/environment/Dockerfile   TASK/solution/solve.sh
    TASK/instruction.md     TASK/tests/test.sh            TASK/steps/NAME/{instruction.md,tests,solution}

A bad directory is refused with the file, the key and the reason. Keys that T1 does not know are kept.
Boundary: files and their meaning; nothing is run here.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import tomlkit
from tomlkit.exceptions import TOMLKitError

from t1.errors import TaskError
from t1.tasks.schema import (
    AgentSection,
    EnvironmentSection,
    HealthcheckSection,
    StepSection,
    TaskToml,
    VerifierSection,
    megabytes,
    parse_task_toml,
)
from t1.types import Environment, Healthcheck, Limits, Step, Task, VerifierSpec

Files = Mapping[str, str | bytes]
"""Relative file name → content."""

_CANARY = re.compile(r"\A(?:[ \t]*(?:<!--.*canary.*-->|#.*canary.*)[ \t]*(?:\n|\Z))+\s*", re.IGNORECASE)


def read_task(path: Path) -> Task:
    """The task in the directory `path`. Raises TaskError with the file, the key and the reason.

    What runs is the single-step task: one instruction, one verifier, one environment. The steps of a multi-step task
    are read and checked, but no part of T1 runs them yet (nor joins a step's tests with the task's). Nor does any run
    docker-compose, health checks, MCP servers or a verifier environment of its own, or resolve `${VAR}` from the host:
    such keys are kept and mean nothing here. `[agent] network_mode` can close the network, not open it.
    """
    if not path.is_dir():
        raise TaskError(path, "is not a directory" if path.exists() else "no such task directory")
    digest = task_digest(path)
    config = parse_task_toml(_text(path / "task.toml"), path / "task.toml")
    several = bool(config.steps)
    return Task(
        id=path.absolute().name,
        digest=digest,
        instruction=_instruction(path / "instruction.md", optional=several),
        environment=_environment(path, config),
        verifier=_verifier(path / "tests", config.verifier, optional=several),
        limits=Limits(config.agent.timeout_sec or Limits().agent_timeout_s),
        path=path,
        solution=_solution(path / "solution"),
        metadata=config.metadata.model_dump(exclude_unset=True),
        steps=tuple(_step(path, section, config) for section in config.steps),
    )


def read_document(path: Path) -> tomlkit.TOMLDocument:
    """The task.toml of the task in `path` with its comments, order and unknown keys, to be changed and written again.

    Raises TaskError where it is not a valid task.toml.
    """
    file = path / "task.toml"
    text = _text(file)
    parse_task_toml(text, file)
    return tomlkit.parse(text)


def _environment(path: Path, config: TaskToml) -> Environment:
    section, folder = config.environment, path / "environment"
    if not section.docker_image and not (folder / "Dockerfile").is_file():
        compose = (folder / "docker-compose.yaml").is_file()
        reason = "needs a Dockerfile, or environment.docker_image in task.toml"
        raise TaskError(folder, f"{reason} (docker-compose is not supported yet)" if compose else reason)
    memory = section.memory_mb or (megabytes(section.memory) if section.memory else None)
    storage = section.storage_mb or (megabytes(section.storage) if section.storage else None)
    default = Environment(folder)
    return Environment(
        path=folder,
        docker_image=section.docker_image or None,
        workdir=section.workdir,
        cpus=max(1, round(section.cpus)) if section.cpus else default.cpus,
        memory_mb=memory or default.memory_mb,
        storage_mb=storage or default.storage_mb,
        allow_internet=section.internet and config.agent.network_mode in (None, "public"),
        build_timeout_s=section.build_timeout_sec,
        env=section.env,
        allowed_hosts=_allowed_hosts(section, config.agent),
        user=None if config.agent.user is None else str(config.agent.user),
        healthcheck=None if section.healthcheck is None else _healthcheck(section.healthcheck),
    )


def _allowed_hosts(environment: EnvironmentSection, agent: AgentSection) -> tuple[str, ...]:
    """What every section that has an allow-list lists; nothing where one of them closes the network."""
    modes = {environment.network_mode, agent.network_mode}
    if "no-network" in modes or (environment.network_mode is None and environment.allow_internet is False):
        return ()
    lists = [section.allowed_hosts or [] for section in (environment, agent) if section.network_mode == "allowlist"]
    return tuple(host for host in dict.fromkeys(lists[0]) if all(host in other for other in lists)) if lists else ()


def _healthcheck(section: HealthcheckSection) -> Healthcheck:
    return Healthcheck(
        section.command, section.interval_sec, section.timeout_sec, section.start_period_sec, section.retries
    )


def _verifier(folder: Path, section: VerifierSection, *, optional: bool = False) -> VerifierSpec:
    if not optional and not (folder / "test.sh").is_file():
        raise TaskError(folder / "test.sh", "no such file: a task needs its verifier")
    return VerifierSpec(folder, section.timeout_sec, section.env)


def _solution(folder: Path) -> Path | None:
    script = folder / "solve.sh"
    return script if script.is_file() else None


def _instruction(file: Path, *, optional: bool = False) -> str:
    """What the agent is told: the file without the canary lines that benchmarks put on top."""
    if optional and not file.exists():
        return ""
    text = _CANARY.sub("", _text(file).replace("\r\n", "\n"))
    if not text.strip():
        raise TaskError(file, "is empty: the agent would not know what to do")
    return text


def _step(path: Path, section: StepSection, config: TaskToml) -> Step:
    """A step; without tests of its own it is verified by the task's."""
    folder = path / "steps" / section.name
    if not folder.is_dir():
        raise TaskError(folder, "no such directory, but task.toml lists the step", key="steps")
    tests = folder / "tests" if (folder / "tests" / "test.sh").is_file() else path / "tests"
    return Step(
        name=section.name,
        instruction=_instruction(folder / "instruction.md"),
        verifier=_verifier(tests, section.verifier),
        limits=Limits(section.agent.timeout_sec or config.agent.timeout_sec or Limits().agent_timeout_s),
        solution=_solution(folder / "solution"),
        min_reward=section.min_reward,
    )


def _text(file: Path) -> str:
    """The text of a file of the task."""
    try:
        return _bytes(file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise TaskError(file, f"is not UTF-8: byte {error.start}") from None


def _bytes(file: Path) -> bytes:
    """The bytes of a file of the task. Nothing that could block is opened."""
    try:
        mode = os.stat(file).st_mode  # noqa: PTH116 (hot)
    except OSError:
        mode = stat.S_IFREG  # reading it says what is wrong
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise TaskError(file, "is neither a file nor a link nor a directory")
    return _read(os.fspath(file))


def _read(file: str) -> bytes:
    """The bytes of what is a file or a directory, which is refused."""
    try:
        with open(file, "rb") as opened:  # noqa: PTH123 (hot)
            return opened.read()
    except FileNotFoundError:
        raise TaskError(Path(file), "no such file") from None
    except OSError as error:
        raise TaskError(Path(file), (error.strerror or "cannot be read").lower()) from None


def task_digest(path: Path) -> str:
    """sha256 over every file of the directory: relative path, executable bit, bytes (of a link: its target).

    Raises TaskError for a link that leaves the directory, and for anything that is neither file, link nor directory.
    """
    digest = hashlib.sha256()
    for name in sorted(_files(path)):
        file = f"{path}/{name}"
        mode = os.lstat(file).st_mode
        if stat.S_ISREG(mode):
            kind, content = (b"x" if os.access(file, os.X_OK) else b"f"), _read(file)
        elif stat.S_ISLNK(mode):
            kind, content = b"l", os.fsencode(_checked_link(Path(file), path))
        else:
            raise TaskError(Path(file), "is neither a file nor a link nor a directory")
        digest.update(b"%s %d %s\0%d\0" % (kind, len(os.fsencode(name)), os.fsencode(name), len(content)))
        digest.update(content)
    return digest.hexdigest()


def _checked_link(file: Path, root: Path) -> Path:
    """The target of a link that stays below `root`."""
    target = file.readlink()
    try:
        inside = not target.is_absolute() and file.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # RuntimeError up to Python 3.12
        raise TaskError(file, f"is a link that leads in a circle: {target}") from None
    if not inside:
        raise TaskError(file, f"is a link that leaves the task directory: {target}")
    return target


def _files(path: Path) -> list[str]:
    """Relative names of everything below `path` that is not a directory; links to directories are not entered."""
    found, root = [], os.fspath(path)
    for folder, folders, files in os.walk(root, onerror=_refuse):
        below = folder[len(root) :].lstrip("/")
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]  # noqa: PTH114, PTH118 (hot)
        found += [f"{below}/{name}" if below else name for name in (*files, *links)]
    return found


def _refuse(error: OSError) -> NoReturn:
    """A directory that cannot be listed must not make a digest of the rest."""
    raise TaskError(Path(str(error.filename)), error.strerror or "cannot be read") from error


def write_task(
    path: Path,
    *,
    config: Mapping[str, Any],
    instruction: str,
    environment: Files,
    tests: Files,
    solution: Files | None = None,
    steps: Files | None = None,
) -> Task:
    """Write a task directory in one piece and read it back, which checks it.

    `config` is task.toml as a mapping (what `read_document` gives keeps its comments); the others map file names,
    relative to their folder, to contents; names that end in `.sh` become executable outside `environment/`. An empty
    instruction leaves instruction.md out, as multi-step tasks may. Raises TaskError where `path` exists, the task is
    broken or the disk is full; nothing is left behind then.
    """
    if os.path.lexists(path):
        raise TaskError(path, "exists already")
    folders = {"environment": environment, "tests": tests, "solution": solution or {}, "steps": steps or {}}
    contents: dict[str, str | bytes] = {"task.toml": _toml(path / "task.toml", config)}
    if instruction:
        contents["instruction.md"] = instruction
    contents |= {f"{folder}/{name}": content for folder, files in folders.items() for name, content in files.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            whole = Path(folder) / path.name
            for name, content in contents.items():
                _write_file(whole, name, content)
            read_task(whole)
            whole.rename(path)
    except TaskError as error:
        raise TaskError(path / error.path.relative_to(whole), error.reason, error.key) from None
    except OSError as error:
        raise TaskError(path, f"cannot be written: {error.strerror or error}") from error
    return read_task(path)


def _toml(file: Path, config: Mapping[str, Any]) -> str:
    """The text of a task.toml."""
    try:
        return tomlkit.dumps(config)
    except (TOMLKitError, TypeError, ValueError) as error:
        raise TaskError(file, f"holds something that TOML cannot say: {error}") from None


def _write_file(root: Path, name: str, content: str | bytes) -> None:
    """One file below `root`."""
    file = root / name
    if ".." in Path(name).parts:
        raise TaskError(file, "leaves the task directory")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    file.chmod(0o755 if name.endswith(".sh") and not name.startswith("environment/") else 0o644)
