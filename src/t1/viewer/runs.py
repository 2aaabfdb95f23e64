"""Runs on disk, as the page lists them.

Boundary: knows the files of a run directory that are not rollouts, and whether somebody writes it. Everything is read
anew when it is asked for; a file that is damaged is told as such, and the rest is shown.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t1.errors import RunError
from t1.viewer.index import RunIndex

MAX_DEPTH = 3
"""How far below the given directory runs are looked for."""
MAX_RUNS = 500
CHUNK = 4 << 20
"""Bytes of metrics that one answer reads; the page asks for the rest."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run directory, and the index of its rollouts."""

    name: str
    """What addresses it: its path below the directory that was asked for."""
    path: Path
    index: RunIndex = field(repr=False)

    def summary(self) -> dict[str, Any]:
        """What the list of runs shows."""
        metrics = self.path / "metrics.jsonl"
        return {
            "name": self.name,
            "live": is_written(self.path),
            "changed": _mtime(metrics) or _mtime(self.path),
            "num_files": len(self.index.files()),
            "report": read_json(self.path / "report.json").get("stages", {}),
            "grade": read_json(self.path / "verdict.json").get("grade"),
        }

    def facts(self) -> dict[str, Any]:
        """What the run says of itself."""
        return {
            **self.summary(),
            "config": read_text(self.path / "config.toml"),
            "environment": read_json(self.path / "environment.json"),
            "pins": read_json(self.path / "pins.json"),
            "report": read_json(self.path / "report.json"),
            "verdict": read_json(self.path / "verdict.json"),
        }

    def metrics(self, since: int) -> dict[str, Any]:
        """Records of whole lines from byte `since` on, and where the next ask begins."""
        path = self.path / "metrics.jsonl"
        size = path.stat().st_size if path.is_file() else 0
        restarted = since > size  # a resume cut the file
        begin = 0 if restarted else max(since, 0)
        if not size:
            return {"records": [], "next": 0, "more": False, "restarted": restarted, "damaged": 0}
        with path.open("rb") as file:
            file.seek(begin)
            chunk = file.read(CHUNK)
        whole = chunk[: chunk.rfind(b"\n") + 1]
        records, damaged = [], 0
        for line in whole.splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                damaged += 1
                continue
            if isinstance(record, dict):
                records.append(record)
        end = begin + len(whole)
        more = bool(whole) and end < size
        return {"records": records, "next": end, "more": more, "restarted": restarted, "damaged": damaged}


def find_runs(path: Path) -> dict[str, Run]:
    """The run at `path`, or the runs below it, by name."""
    if not path.is_dir():
        raise RunError(f"{path}: no such directory; give a run, or a directory that holds runs")
    if _is_run(path):
        name = path.resolve().name or "run"
        return {name: Run(name, path, RunIndex(path))}
    found = sorted(_runs_below(path, MAX_DEPTH))[:MAX_RUNS]
    if not found:
        raise RunError(f"{path}: no run here or below (a run holds config.toml or rollouts/); make one: t1 quickstart")
    return {str(p.relative_to(path)): Run(str(p.relative_to(path)), p, RunIndex(p)) for p in found}


def _is_run(path: Path) -> bool:
    return (path / "config.toml").is_file() or (path / "rollouts").is_dir() or any(path.glob("*.parquet"))


def _runs_below(path: Path, depth: int) -> Iterator[Path]:
    """Run directories below, links not followed."""
    try:
        children = [p for p in path.iterdir() if p.is_dir() and not p.is_symlink() and not p.name.startswith(".")]
    except OSError:
        return
    for child in children:
        if (child / "config.toml").is_file() or (child / "rollouts").is_dir():
            yield child
        elif depth > 1:
            yield from _runs_below(child, depth - 1)


def is_written(path: Path, locks: Path = Path("/proc/locks")) -> bool:
    """True while a process holds the run's lock; read from the kernel's list, so that no writer is ever disturbed."""
    try:
        lock = (path / "run.lock").stat()
        held = locks.read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    device = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    return any(device in line.split() and "FLOCK" in line for line in held.splitlines())


def read_json(path: Path) -> dict[str, Any]:
    """An object of JSON; empty where the file is missing, `{"damaged": why}` where it is no object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        return {"damaged": str(error)}
    return value if isinstance(value, dict) else {"damaged": "not an object"}


def read_text(path: Path, most: int = 256 << 10) -> str:
    """The beginning of a text file; empty where there is none."""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def _mtime(path: Path) -> float | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) else None
