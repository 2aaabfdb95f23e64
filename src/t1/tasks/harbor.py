"""Harbor's task directory, read and written: `task.toml` of schema 1.0 to 1.4 and the folders beside it.

    TASK/task.toml          TASK/environment/Dockerfile   TASK/solution/solve.sh
    TASK/instruction.md     TASK/tests/test.sh            TASK/steps/NAME/{instruction.md,tests,solution}

A bad directory is refused with the file, the key and the reason. Keys that this module does not know are kept.
Boundary: files and their meaning; nothing is run here.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from t1.errors import TaskError
from t1.types import Environment, Limits, Step, Task, VerifierSpec

SCHEMA_VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?", re.IGNORECASE)
_MEGABYTES = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024.0, "": 1 / (1 << 20)}


class _Section(BaseModel):
    """A table of task.toml; what it does not name is kept in the file and handed on."""

    model_config = ConfigDict(extra="allow", frozen=True)


class VerifierSection(_Section):
    """`[verifier]`"""

    timeout_sec: float = Field(600.0, gt=0, allow_inf_nan=False)
    env: dict[str, str] = {}


class AgentSection(_Section):
    """`[agent]`"""

    timeout_sec: float | None = Field(None, gt=0, allow_inf_nan=False)


class EnvironmentSection(_Section):
    """`[environment]`, with the older spellings `memory`, `storage` and `allow_internet`."""

    build_timeout_sec: float = Field(600.0, gt=0, allow_inf_nan=False)
    docker_image: str | None = None
    workdir: str | None = None
    cpus: float | None = Field(None, gt=0)
    memory_mb: int | None = Field(None, gt=0)
    storage_mb: int | None = Field(None, gt=0)
    memory: str | None = None
    storage: str | None = None
    allow_internet: bool | None = None
    network_mode: str | None = None
    env: dict[str, str] = {}

    @field_validator("memory", "storage")
    @classmethod
    def _is_size(cls, value: str | None) -> str | None:
        if value is not None:
            megabytes(value)
        return value

    @property
    def internet(self) -> bool:
        """Whether the agent may reach the network."""
        if self.allow_internet is not None:
            return self.allow_internet
        return self.network_mode not in ("none", "no-network", "no_network", "offline", "isolated")


class StepSection(_Section):
    """A `[[steps]]` entry."""

    name: str = Field(pattern=NAME.pattern)
    agent: AgentSection = AgentSection()
    verifier: VerifierSection = VerifierSection()
    min_reward: float | dict[str, float] | None = None


class TaskToml(_Section):
    """The whole file. `version` is the older name of `schema_version`."""

    schema_version: str | None = None
    version: str | None = None
    metadata: dict[str, Any] = {}
    verifier: VerifierSection = VerifierSection()
    agent: AgentSection = AgentSection()
    environment: EnvironmentSection = EnvironmentSection()
    steps: list[StepSection] = []

    @property
    def follows(self) -> str:
        """The schema that the file follows; 1.0 where it says nothing."""
        return self.schema_version or self.version or "1.0"


def megabytes(size: str) -> int:
    """`"2G"` → 2048. Raises ValueError."""
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        raise ValueError(f"expected a size such as 512M or 2G, got {size!r}")
    return max(1, round(float(match[1]) * _MEGABYTES[match[2].upper()]))


def read_task(path: Path) -> Task:
    """The task in the directory `path`. Raises TaskError with the file, the key and the reason."""
    if not path.is_dir():
        raise TaskError(path, "is not a directory" if path.exists() else "no such task directory")
    digest = task_digest(path)
    config = read_config(path / "task.toml")
    environment = _environment(path, config)
    steps = tuple(_step(path, section, config) for section in config.steps)
    if len({step.name for step in steps}) != len(steps):
        raise TaskError(path / "task.toml", "two steps have the same name", key="steps")
    return Task(
        id=path.name,
        digest=digest,
        instruction=_instruction(path / "instruction.md", optional=bool(steps)),
        environment=environment,
        verifier=_verifier(path / "tests", config.verifier, optional=bool(steps)),
        limits=Limits(config.agent.timeout_sec or Limits().agent_timeout_s),
        path=path,
        solution=_solution(path / "solution"),
        metadata=config.metadata,
        steps=steps,
    )


def read_config(file: Path) -> TaskToml:
    """`task.toml`, checked."""
    try:
        raw = tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError as error:
        raise TaskError(file, f"is not TOML: {error}") from None
    try:
        config = TaskToml.model_validate(raw)
    except ValidationError as errors:
        first = errors.errors()[0]
        reason = first["msg"].removeprefix("Value error, ")
        key = ".".join(str(part) for part in first["loc"])
        raise TaskError(file, f"{reason[0].lower()}{reason[1:]}, got {first['input']!r}", key=key) from None
    if config.follows not in SCHEMA_VERSIONS:
        key = "schema_version" if config.schema_version else "version"
        raise TaskError(file, f"schema {config.follows!r} is not one of {', '.join(SCHEMA_VERSIONS)}", key=key)
    _check_num_assertions(file, config.metadata)
    return config


def _check_num_assertions(file: Path, metadata: Mapping[str, Any]) -> None:
    """`metadata.num_assertions` is ours, so it is checked like a key of the schema."""
    value = metadata.get("num_assertions")
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise TaskError(file, f"expected a count of at least 1, got {value!r}", key="metadata.num_assertions")


def _environment(path: Path, config: TaskToml) -> Environment:
    section, folder = config.environment, path / "environment"
    if section.docker_image is None and not (folder / "Dockerfile").is_file():
        compose = (folder / "docker-compose.yaml").is_file()
        reason = "needs a Dockerfile, or environment.docker_image in task.toml"
        raise TaskError(folder, f"{reason} (docker-compose is not supported yet)" if compose else reason)
    memory = section.memory_mb or (megabytes(section.memory) if section.memory else None)
    storage = section.storage_mb or (megabytes(section.storage) if section.storage else None)
    default = Environment(folder)
    return Environment(
        path=folder,
        docker_image=section.docker_image,
        workdir=section.workdir,
        cpus=max(1, round(section.cpus)) if section.cpus else default.cpus,
        memory_mb=memory or default.memory_mb,
        storage_mb=storage or default.storage_mb,
        allow_internet=section.internet,
        build_timeout_s=section.build_timeout_sec,
        env=section.env,
    )


def _verifier(folder: Path, section: VerifierSection, *, optional: bool = False) -> VerifierSpec:
    if not optional and not (folder / "test.sh").is_file():
        raise TaskError(folder / "test.sh", "no such file: a task needs its verifier")
    return VerifierSpec(folder, section.timeout_sec, section.env)


def _solution(folder: Path) -> Path | None:
    script = folder / "solve.sh"
    return script if script.is_file() else None


def _instruction(file: Path, *, optional: bool = False) -> str:
    if optional and not file.exists():
        return ""
    text = _text(file)
    if not text.strip():
        raise TaskError(file, "is empty: the agent would not know what to do")
    return text


def _step(path: Path, section: StepSection, config: TaskToml) -> Step:
    """A step; its tests stand beside, or instead of, the task's own."""
    folder = path / "steps" / section.name
    tests = folder / "tests" if (folder / "tests" / "test.sh").is_file() else path / "tests"
    timeout = section.agent.timeout_sec or config.agent.timeout_sec or Limits().agent_timeout_s
    reward = section.min_reward if isinstance(section.min_reward, (int, float)) else None
    return Step(
        name=section.name,
        instruction=_instruction(folder / "instruction.md"),
        verifier=_verifier(tests, section.verifier),
        limits=Limits(timeout),
        solution=_solution(folder / "solution"),
        min_reward=reward,
    )


def _text(file: Path) -> str:
    """The text of a file of the task."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TaskError(file, "no such file") from None
    except UnicodeDecodeError as error:
        raise TaskError(file, f"is not UTF-8: byte {error.start}") from None
    except OSError as error:
        raise TaskError(file, error.strerror or "cannot be read") from None


def task_digest(path: Path) -> str:
    """sha256 over every file of the directory: relative path, executable bit, bytes (of a link: its target).

    Raises TaskError for a link that leaves the directory, and for anything that is neither file, link nor directory.
    """
    digest = hashlib.sha256()
    for name in sorted(_files(path)):
        file = path / name
        if file.is_symlink():
            target = file.readlink()
            if target.is_absolute() or not (file.parent / target).resolve().is_relative_to(path.resolve()):
                raise TaskError(file, f"is a link that leaves the task directory: {target}")
            kind, content = b"l", os.fsencode(target)
        elif file.is_file():
            kind, content = (b"x" if os.access(file, os.X_OK) else b"f"), file.read_bytes()
        else:
            raise TaskError(file, "is neither a file nor a link nor a directory")
        digest.update(b"%s %d %s\0%d\0" % (kind, len(os.fsencode(name)), os.fsencode(name), len(content)))
        digest.update(content)
    return digest.hexdigest()


def _files(path: Path) -> list[str]:
    """Relative names of everything below `path` that is not a directory; links to directories are not entered."""
    found = []
    for folder, folders, files in os.walk(path):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        found += [os.path.relpath(Path(folder) / name, path) for name in (*files, *links)]
    return found


def write_task(
    path: Path,
    *,
    config: Mapping[str, Any],
    instruction: str,
    environment: Mapping[str, str | bytes],
    tests: Mapping[str, str | bytes],
    solution: Mapping[str, str | bytes] | None = None,
) -> Task:
    """Write a task directory in one piece and read it back, which checks it.

    `config` is task.toml as a mapping (a tomlkit document keeps its comments); the others map a relative file name to
    its content; names that end in `.sh` become executable. Raises TaskError where `path` exists or the task is broken.
    """
    if path.exists():
        raise TaskError(path, "exists already")
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    scratch.chmod(0o755)
    try:
        contents: dict[str, str | bytes] = {"task.toml": tomlkit.dumps(config), "instruction.md": instruction}
        folders = (("environment", environment), ("tests", tests), ("solution", solution or {}))
        contents |= {f"{folder}/{name}": content for folder, files in folders for name, content in files.items()}
        for name, content in contents.items():
            _write_file(scratch, name, content)
        read_task(scratch)
        scratch.rename(path)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return read_task(path)


def _write_file(root: Path, name: str, content: str | bytes) -> None:
    """One file below `root`."""
    file = root / name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise TaskError(file, "leaves the task directory")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    file.chmod(0o755 if name.endswith(".sh") and not name.startswith("environment/") else 0o644)
