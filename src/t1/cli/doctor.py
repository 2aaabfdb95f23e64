"""`t1 doctor`: what this machine can do, with the fix for each lack."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer


class State(StrEnum):
    """How a check went. Only BROKEN keeps the quickstart from running."""

    FINE = "fine"
    ABSENT = "absent"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: State
    found: str
    fix: str = ""


MARKS = {State.FINE: "[green]✓[/]", State.ABSENT: "[yellow]–[/]", State.BROKEN: "[red]✗[/]"}


class Kind(StrEnum):
    """Which engine listens."""

    VLLM = "vllm"
    SGLANG = "sglang"


def doctor(
    engine: Annotated[
        str | None, typer.Option(help="Prove that the engine at this URL is fit to train from.", show_default=False)
    ] = None,
    engine_kind: Annotated[
        Kind | None, typer.Option(help="Which engine it is; found out unless given.", show_default=False)
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="The trainer's checkpoint, to compare numbers with; what the engine serves unless given."),
    ] = None,
    weights_dir: Annotated[
        Path | None,
        typer.Option(help="A directory that the engine sees too: publish changed weights, and then the model's again."),
    ] = None,
) -> None:
    """What this machine can do: sandboxes, accelerators, engines, with the fix for each lack.

    Example: **t1 doctor** · **t1 doctor --engine http://127.0.0.1:8000 --model runs/sft/checkpoints/sft**
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.padding import Padding

    console = Console(highlight=False)
    if engine is not None:
        from t1.cli.preflight import examine

        kind = None if engine_kind is None else engine_kind.value
        raise typer.Exit(0 if examine(console, engine, kind, model, weights_dir) else 1)
    broken = False
    for title, checks in (("Machine", machine()), ("Sandboxes", sandboxes()), ("Engines and accelerators", engines())):
        console.print(f"\n[bold]{title}[/]")
        for check in checks:
            broken |= check.state is State.BROKEN
            console.print(f"{MARKS[check.state]} {escape(check.name):<18} {escape(check.found)}")
            if check.fix:
                console.print(Padding(f"[dim]→ {escape(check.fix)}[/]", (0, 0, 0, 21)))
    console.print("\nThe quickstart cannot run yet." if broken else "\nReady: t1 quickstart")
    raise typer.Exit(1 if broken else 0)


def machine() -> Iterator[Check]:
    """Python, processors, memory, disk."""
    version = platform.python_version()
    fine = sys.version_info >= (3, 11)
    yield Check(
        "Python", State.FINE if fine else State.BROKEN, version, "" if fine else "T1 needs Python 3.11 or newer"
    )
    cores = len(os.sched_getaffinity(0))
    yield Check("processors", State.FINE, f"{cores} core{'s' if cores > 1 else ''}, {platform.machine()}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    few = memory < 3
    yield Check(
        "memory",
        State.ABSENT if few else State.FINE,
        f"{memory:.1f} GiB",
        "the quickstart takes about 2 GiB; lower rollouts.max_concurrent" if few else "",
    )
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    full = free < 1
    yield Check("disk here", State.BROKEN if full else State.FINE, f"{free:.1f} GiB free", "free 1 GiB" if full else "")


def sandboxes() -> Iterator[Check]:
    """Namespaces first, then containers, then Harbor."""
    from t1.sandboxes import probe

    found = probe()
    shown = found.problem if found.confinement is None else str(found)
    yield Check("namespaces", State.BROKEN if found.confinement is None else State.FINE, shown, found.fix)
    for tool in ("podman", "docker"):
        path = shutil.which(tool)
        yield Check(tool, State.FINE if path else State.ABSENT, path or "not installed; needed only for containers")
    yield _harbor()


def _harbor() -> Check:
    """The Python that has Harbor."""
    from t1.errors import UserError
    from t1.sandboxes.harbor.pythons import find_python

    try:
        python = find_python()
    except UserError:
        absent = "no Python with it; needed only for its providers (Daytona, Modal, E2B, ...) and its agents"
        return Check("harbor", State.ABSENT, absent, "under Python 3.12: pip install 't1[harbor]'")
    asked = [str(python), "-c", "from importlib.metadata import version; print(version('harbor'))"]
    found = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
    if found.returncode != 0:
        return Check("harbor", State.ABSENT, f"{python} does not have it", f"{python} -m pip install 't1[harbor]'")
    return Check("harbor", State.FINE, f"{found.stdout.strip()}, {python}")


def engines() -> Iterator[Check]:
    """The embedded engine's packages, other engines, accelerators."""
    for package, fix in (("torch", "pip install 't1[torch]'"), ("transformers", "pip install 't1[torch]'")):
        version = _version(package)
        yield Check(
            package, State.FINE if version else State.BROKEN, version or "not installed", "" if version else fix
        )
    for package in ("vllm", "sglang"):
        version = _version(package)
        yield Check(package, State.FINE if version else State.ABSENT, version or "not installed; for large models")
    yield _accelerator()


def _version(package: str) -> str | None:
    """The installed version, without importing the package."""
    if importlib.util.find_spec(package) is None:
        return None
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown version"


def _accelerator() -> Check:
    """GPUs as the driver names them, and whether torch was built for them."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Check("accelerator", State.ABSENT, "none; small models run on the processor")
    listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=30, check=False)
    names = [line.split(" (UUID")[0] for line in listed.stdout.splitlines() if line.startswith("GPU")]
    if not names:
        return Check("accelerator", State.ABSENT, "nvidia-smi finds no GPU", "check the driver: nvidia-smi")
    for_processor = (_version("torch") or "").endswith("+cpu")
    fix = "this torch is built for the processor; install the build for your CUDA version" if for_processor else ""
    return Check("accelerator", State.ABSENT if for_processor else State.FINE, "; ".join(names), fix)
