"""Where the tasks of an evaluation come from: a directory, a benchmark's name, a registry file, or Harbor.

    suites/basics              a directory of task directories, or a suite with train/ and heldout/
    terminal-bench-2.1         a named benchmark, below suites/
    registry.json#NAME@VERSION a set of a registry file in Harbor's format
    harbor:NAME@VERSION        whatever Harbor resolves where it has the network

Boundary: names to directories; the protocols are data in `benchmarks`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from t1.errors import ConfigError, TaskError
from t1.evaluation.benchmarks import BENCHMARKS, Benchmark
from t1.evaluation.registry import choose, materialize, whole_or_nothing

SUITES = Path("suites")
"""Where a named benchmark is looked for, by its name."""
HARBOR = "harbor:"
DOWNLOAD_S = 3600.0


def find_tasks(name: str, *, suites: Path = SUITES, cache: Path | None = None) -> tuple[Path, Benchmark | None]:
    """The directory of a set of tasks, and the benchmark where it is a named one.

    Raises TaskError where the tasks are not here and cannot be fetched; the message says what to do.
    """
    benchmark = BENCHMARKS.get(name)
    if benchmark is not None:
        path = suites / name
        if not path.is_dir():
            raise TaskError(path, f"{benchmark.title} is not here yet: {benchmark.download}")
        return path, benchmark
    cache = cache or cache_directory()
    if name.startswith(HARBOR):
        return ask_harbor(name.removeprefix(HARBOR), cache), None
    file, _, wanted = name.partition("#")
    if file.endswith(".json"):
        return materialize(choose(Path(file), wanted), beside=Path(file).absolute().parent, cache=cache), None
    if not Path(name).exists():
        offered = ", ".join(BENCHMARKS)
        reason = f"no such set of tasks; named ones are {offered}, others REGISTRY.json#NAME or {HARBOR}NAME@VERSION"
        raise TaskError(Path(name), reason)
    return Path(name), None


def cache_directory() -> Path:
    """Where fetched sets are kept: $XDG_CACHE_HOME/t1, else ~/.cache/t1."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "t1"


def harbor_command() -> str | None:
    """Harbor's program: of T1_HARBOR, on the path, or in .venv-harbor."""
    beside = Path(".venv-harbor/bin/harbor")
    return os.environ.get("T1_HARBOR") or shutil.which("harbor") or (str(beside) if beside.is_file() else None)


def ask_harbor(name: str, cache: Path, *options: str) -> Path:
    """Let Harbor download the set (or task) `name`; a directory of task directories. `options` are Harbor's own.

    A set of a fixed version is kept. Without one, and of `latest` and `head`, Harbor is asked anew each time.
    """
    if name.startswith("-") or not name:
        raise ConfigError(f"tasks {HARBOR}{name}: expected {HARBOR}NAME@VERSION")
    place = cache / "harbor" / re.sub(r"[^\w.@-]", "-", name).lstrip(".")
    if place.is_dir() and name.partition("@")[2] not in ("", "latest", "head"):
        return place
    program = harbor_command()
    if program is None:
        reason = "is not here: `make test-harbor` puts Harbor into .venv-harbor, or set T1_HARBOR to its program"
        raise ConfigError(f"tasks {HARBOR}{name}: Harbor {reason}")
    with whole_or_nothing(place) as scratch:
        raw = scratch / ".download"
        _call([program, "download", name, "--export", "--output-dir", str(raw), *options], name)
        found = sorted({file.parent for depth in ("*", "*/*") for file in raw.glob(f"{depth}/task.toml")})
        if not found:
            raise TaskError(place, f"Harbor downloaded no tasks for {name}")
        for folder in found:
            folder.rename(scratch / folder.name)
        shutil.rmtree(raw)
    return place


def _call(command: Sequence[str], name: str) -> None:
    """Run Harbor to its end. Raises ConfigError with its last word."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DOWNLOAD_S, check=False
        )
    except OSError as error:
        raise ConfigError(f"tasks {HARBOR}{name}: {command[0]} does not start: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise ConfigError(f"tasks {HARBOR}{name}: Harbor did not end within {DOWNLOAD_S:g} s") from None
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise ConfigError(f"tasks {HARBOR}{name}: Harbor says: {' '.join(said[-1:]) or f'exit {done.returncode}'}")
