"""`task.toml` of Harbor's schema 1.0 to 1.4: what T1 reads of it, checked; every other key is kept as it is.

Older spellings are understood: `version`, `memory = "2G"`, `storage`, `allow_internet`. Boundary: one file's meaning;
the folders beside it are `harbor`'s business.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, field_validator, model_validator

from t1.errors import TaskError

SCHEMA_VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(?:I?B)?", re.IGNORECASE)
_MEGABYTES = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024.0}
_NO_STEP_NAME = re.compile(r'^\s*$|^\.{1,2}$|[. ]$|[<>:"/\\|?*\x00-\x1f\x7f]')
_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[1-9¹²³]) *(?:\..*)?", re.IGNORECASE)
_MAX_STEP_NAME_BYTES = 255


class _Section(BaseModel):
    """A table of task.toml; what it does not name is kept in the file and handed on."""

    model_config = ConfigDict(extra="allow", frozen=True)


class _NetworkSection(_Section):
    """What network a section asks for; hosts are listed for an allow-list only."""

    network_mode: Literal["public", "no-network", "allowlist"] | None = None
    allowed_hosts: list[str] | None = None

    @model_validator(mode="after")
    def _lists_hosts_to_allow(self) -> Self:
        if self.allowed_hosts and self.network_mode != "allowlist":
            raise ValueError('allowed_hosts needs network_mode = "allowlist"')
        return self


class VerifierSection(_NetworkSection):
    """`[verifier]`"""

    timeout_sec: float = Field(600.0, gt=0, allow_inf_nan=False)
    env: dict[str, str] = {}


class AgentSection(_NetworkSection):
    """`[agent]`"""

    timeout_sec: float | None = Field(None, gt=0, allow_inf_nan=False)
    user: str | int | None = None


class HealthcheckSection(_Section):
    """`[environment.healthcheck]`"""

    command: str
    interval_sec: float = Field(5.0, gt=0, allow_inf_nan=False)
    timeout_sec: float = Field(30.0, gt=0, allow_inf_nan=False)
    start_period_sec: float = Field(0.0, ge=0, allow_inf_nan=False)
    retries: int = Field(3, ge=1)


class EnvironmentSection(_NetworkSection):
    """`[environment]`"""

    build_timeout_sec: float = Field(600.0, gt=0, allow_inf_nan=False)
    docker_image: str | None = None
    workdir: str | None = Field(None, pattern=r"^/")
    cpus: float | None = Field(None, gt=0, allow_inf_nan=False)
    memory_mb: int | None = Field(None, gt=0)
    storage_mb: int | None = Field(None, gt=0)
    memory: str | None = None
    storage: str | None = None
    allow_internet: bool | None = None
    os: str = "linux"
    env: dict[str, str] = {}
    healthcheck: HealthcheckSection | None = None

    @field_validator("os")
    @classmethod
    def _is_linux(cls, value: str) -> str:
        if value.lower() != "linux":
            raise ValueError("expected linux, the only system that T1 runs")
        return value

    @field_validator("memory", "storage")
    @classmethod
    def _is_size(cls, value: str | None) -> str | None:
        if value is not None:
            megabytes(value)
        return value

    @model_validator(mode="after")
    def _agrees(self) -> EnvironmentSection:
        """An old and a new spelling of one size say the same."""
        for old, new in ((self.memory, self.memory_mb), (self.storage, self.storage_mb)):
            if old is not None and new is not None and megabytes(old) != new:
                raise ValueError(f"{old!r} and {new} MB contradict each other: leave out the older spelling")
        return self

    @property
    def internet(self) -> bool:
        """Whether the agent may reach all of the network. An allow-list is never opened wider than it says."""
        if self.network_mode is None:
            return self.allow_internet is not False
        return self.network_mode == "public"


class StepSection(_Section):
    """A `[[steps]]` entry. Its name is a folder's name under `steps/`, on every system."""

    name: str
    agent: AgentSection = AgentSection()
    verifier: VerifierSection = VerifierSection()
    min_reward: FiniteFloat | dict[str, FiniteFloat] | None = None

    @field_validator("name")
    @classmethod
    def _is_folder_name(cls, value: str) -> str:
        long = len(value.encode()) > _MAX_STEP_NAME_BYTES
        if long or _NO_STEP_NAME.search(value) or _DEVICE.fullmatch(value):
            raise ValueError("expected the name of a folder under steps/")
        return value


class MetadataSection(_Section):
    """`[metadata]` is the author's; these three keys of it are T1's."""

    num_assertions: int | None = Field(None, ge=1, strict=True)
    primitives: list[str] = []
    reads: bool | None = Field(None, strict=True)


class TaskToml(_Section):
    """The whole file. `version` is the older name of `schema_version`."""

    schema_version: str | None = None
    version: str | None = None
    metadata: MetadataSection = MetadataSection()
    verifier: VerifierSection = VerifierSection()
    agent: AgentSection = AgentSection()
    environment: EnvironmentSection = EnvironmentSection()
    steps: list[StepSection] = []

    @field_validator("schema_version", "version")
    @classmethod
    def _is_known(cls, value: str | None) -> str | None:
        if value is not None and value not in SCHEMA_VERSIONS:
            raise ValueError(f"expected one of the schemas {', '.join(SCHEMA_VERSIONS)}")
        return value

    @field_validator("steps")
    @classmethod
    def _have_distinct_names(cls, value: list[StepSection]) -> list[StepSection]:
        """Distinct also where a file system folds case."""
        seen: set[str] = set()
        for step in value:
            folded = unicodedata.normalize("NFC", step.name).casefold()
            if folded in seen:
                raise ValueError(f"two steps are named {step.name!r}")
            seen.add(folded)
        return value


def megabytes(size: str) -> int:
    """`"2G"` → 2048. Raises ValueError."""
    match = _SIZE.fullmatch(size.strip())
    count = int(float(match[1]) * _MEGABYTES[match[2].upper()]) if match else 0
    if count < 1:
        raise ValueError("expected a size of at least 1M, such as 512M or 2G")
    return count


def parse_task_toml(text: str, file: Path) -> TaskToml:
    """The text of `file`, checked. Raises TaskError with the first key that is wrong."""
    try:
        return TaskToml.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise TaskError(file, f"is not TOML: {error}") from None
    except ValidationError as errors:
        first = errors.errors(include_url=False)[0]
        reason = first["msg"].removeprefix("Value error, ")
        got = "" if isinstance(first["input"], dict | list) else f", got {first['input']!r}"
        key = ".".join(str(part) for part in first["loc"])
        raise TaskError(file, f"{reason[0].lower()}{reason[1:]}{got}", key=key) from None
