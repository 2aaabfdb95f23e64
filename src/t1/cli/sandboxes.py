"""`t1 sandboxes`: who holds sandboxes on this machine, and the removal of what killed owners left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from t1.sandboxes.containers.engine import ContainerEngine

sandboxes = typer.Typer(help="List the sandboxes of this machine, sweep abandoned ones.", no_args_is_help=True)

SWEEP_S = 600.0

Root = Annotated[Path | None, typer.Option(help="Where they lie. Default: the machine's temporary directory.")]


@sandboxes.command("list")
def show(root: Root = None) -> None:
    """Every owner with its sandboxes, and whether it still runs.

    Example: **t1 sandboxes list**
    """
    import asyncio

    from t1.sandboxes.containers.owners import list_containers
    from t1.sandboxes.harbor.keeping import PREFIX, records
    from t1.sandboxes.leases import leases

    lines = []
    for lease in leases(root):
        num = sum(path.is_dir() and path.name[:1] == "s" for path in lease.path.iterdir())
        state = "running" if lease.alive else "gone: sweep"
        lines.append(f"{lease.path}\tpid {lease.pid} {state}\t{num} sandboxes\t{lease.label}")
    engine = _engine()
    for container in asyncio.run(list_containers(engine)) if engine is not None else ():
        owner = f"pid {container.owner.pid}" if container.owner else "no owner"
        state = "abandoned: sweep" if container.abandoned else "running"
        lines.append(f"{container.name}\t{owner} {state}\tcontainer {container.state}\t{container.label}")
    for keeper in leases(root, prefix=PREFIX):
        num, state = len(records(keeper.path)), "running" if keeper.alive else "gone: sweep"
        lines.append(f"{keeper.path}\tkeeper {keeper.pid} {state}\t{num} of Harbor's environments\t{keeper.label}")
    typer.echo("\n".join(line.rstrip() for line in lines) or "no sandboxes")


@sandboxes.command()
def sweep(root: Root = None) -> None:
    """Remove what owners that are gone left: directories, control groups, containers whose lease is over, Harbor's.

    Example: **t1 sandboxes sweep**
    """
    import asyncio

    from t1.sandboxes import sweep as sweep_directories
    from t1.sandboxes.containers.owners import sweep_containers

    removed = [str(path) for path in sweep_directories(root)]
    engine = _engine()
    if engine is not None:
        removed += asyncio.run(sweep_containers(engine))
    removed += _sweep_harbor(root)
    typer.echo("\n".join(removed) or "nothing to sweep")


def _sweep_harbor(root: Path | None) -> list[str]:
    """What keepers that are gone left, stopped by a keeper: only it speaks to Harbor."""
    import subprocess

    from t1.errors import SandboxError
    from t1.sandboxes.harbor.keeping import PREFIX, records
    from t1.sandboxes.harbor.provider import keeper_words
    from t1.sandboxes.leases import default_root, leases, remove

    place = root or default_root()
    gone = [keeper.path for keeper in leases(place, prefix=PREFIX) if not keeper.alive]
    if not any(map(records, gone)):
        for path in gone:
            remove(path)
        return list(map(str, gone))
    words = [*keeper_words(), "sweep", "--root", str(place)]
    swept = subprocess.run(words, capture_output=True, text=True, timeout=SWEEP_S, check=False)
    if swept.returncode != 0:
        raise SandboxError(f"Harbor's environments could not be swept: {swept.stderr.strip()[-500:]}")
    return [line for line in swept.stdout.splitlines() if line.strip()]


def _engine() -> ContainerEngine | None:
    """The container engine, where there is one."""
    from t1.errors import SandboxUnavailable
    from t1.sandboxes.containers.engine import find_engine

    try:
        return find_engine()
    except SandboxUnavailable:
        return None
