"""The run directory: one place that holds all that a run was and did.

    RUN/config.toml        the configuration as run        RUN/rollouts/      raw rollouts and trajectories by step
    RUN/environment.json   the machine and its packages    RUN/checkpoints/   policies in Hugging Face format
    RUN/pins.json          what a resume must not change   RUN/report.json, report.html
    RUN/metrics.jsonl      one record a step               RUN/token_stats/   what the trainer said of each token
                                                           RUN/logs/

Boundary: knows paths, a lock and the configuration, nothing of what is in the files that the parts write.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from t1.config import RunConfig, differing_keys, load_config, write_config
from t1.errors import RunError

FROZEN = ("run.seed", "tasks.", "model.", "reward.kind", "reward.normalizer", "harness.", "agent.name")
"""Keys and sections that a resume may not change: its rewards or its data would mean something else."""


class RunDir:
    """An open run directory, locked against a second writer until `close`."""

    def __init__(self, path: Path) -> None:
        """Lock an existing directory; use `create` or `resume`."""
        self.path = path
        self._lock: int | None = _lock(path)

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> RunDir:
        """A new run. A directory that holds one already is refused."""
        if (path / "config.toml").exists():
            raise RunError(f"{path}: holds a run already; resume it (--resume), or choose another directory")
        if path.exists() and not path.is_dir():
            raise RunError(f"{path}: is a file, a run needs a directory")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{path}: cannot be made: {error.strerror}") from None
        run = cls(path)
        for folder in (run.rollouts, run.checkpoints, run.logs):
            folder.mkdir(exist_ok=True)
        _write_json(path / "environment.json", describe_environment(config.run.seed))
        write_config(config, path / "config.toml")
        return run

    @classmethod
    def resume(cls, path: Path, config: RunConfig | None = None) -> tuple[RunDir, RunConfig]:
        """An earlier run, with its own configuration or one that differs only where a resume may differ."""
        old = read_run_config(path)
        run = cls(path)
        if config is None or config == old:
            return run, old
        for key, (before, after) in differing_keys(old, config).items():
            if key.startswith(FROZEN):
                run.close()
                raise RunError(f"{path}: {key} was {before!r} and cannot become {after!r} in a resumed run")
        write_config(config, path / "config.toml")
        return run, config

    def __enter__(self) -> RunDir:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let other writers in. Safe to call twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts"

    @property
    def token_stats(self) -> Path:
        return self.path / "token_stats"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def pin(self, name: str, value: Any) -> None:
        """Write a fact of the run once; later it must be the same (the reward's normalizer, the suite's digest)."""
        pins = self.pins()
        if name not in pins:
            _write_json(self.path / "pins.json", {**pins, name: value})
        elif pins[name] != value:
            raise RunError(f"{self.path}: {name} was {pins[name]!r} and cannot become {value!r} in a resumed run")

    def pins(self) -> dict[str, Any]:
        """All pinned facts."""
        path = self.path / "pins.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def read_run_config(path: Path) -> RunConfig:
    """The configuration of a run, without opening it for writing."""
    if not (path / "config.toml").is_file():
        near = sorted(p.parent.name for p in path.parent.glob("*/config.toml")) if path.parent.is_dir() else []
        hint = f"; runs there: {', '.join(near)}" if near else ""
        raise RunError(f"{path}: no run here (config.toml is missing){hint}")
    return load_config(path / "config.toml")


def set_aside(path: Path) -> Path | None:
    """Move an earlier run out of the way, under the time of its last change; returns where it went, nothing is lost."""
    if not path.exists():
        return None
    os.close(_lock(path))  # refuses a run that is still being written
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(path.stat().st_mtime))
    target = path.with_name(f"{path.name}-{stamp}")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}-{stamp}-{number}")
    return path.rename(target)


def _lock(path: Path) -> int:
    """Take the lock of a run directory, or name the process that holds it."""
    try:
        descriptor = os.open(path / "run.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode().strip() or "another process"
        os.close(descriptor)
        raise RunError(f"{path}: process {holder} is writing this run; wait for it or stop it") from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def describe_environment(seed: int) -> dict[str, Any]:
    """What the run ran on: enough to explain a number that does not repeat."""
    packages = ("t1", "torch", "transformers", "tokenizers", "numpy", "pyarrow", "pydantic", "safetensors")
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "packages": {name: _version(name) for name in packages},
        "git_commit": _git_commit(),
        "seed": seed,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    """The processor's name as Linux gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _git_commit() -> str | None:
    """The commit of the checkout that runs, with `+` when its files were changed; None outside a checkout."""
    here = Path(__file__).resolve().parent
    try:
        described = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None


def _write_json(path: Path, value: Any) -> None:
    """Write JSON so that a reader never sees half of it."""
    scratch = path.with_name(path.name + ".new")
    scratch.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    scratch.replace(path)
