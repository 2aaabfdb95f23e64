"""`t1 redteam`: attack this machine's verification, and let honest solutions touch odd places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from t1.protocols import SandboxProvider
    from t1.redteam import Row


def redteam(
    names: Annotated[list[str] | None, typer.Argument(help="Only these scripts. Default: all.", metavar="NAME")] = None,
    sandbox: Annotated[str, typer.Option(help="namespaces or containers.")] = "namespaces",
    image: Annotated[str, typer.Option(help="Of containers: what tasks start from.")] = "",
    control: Annotated[bool, typer.Option(help="Also run each script against a naive verifier.")] = True,
    at_once: Annotated[int, typer.Option(min=1, help="Scripts under way at once.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run scripted exploits and odd but honest solutions against real tasks in real sandboxes.

    Exit code 1 when an exploit earns something or leaves no evidence, or an honest solution is punished.

    Example: **t1 redteam** or **t1 redteam conftest racing-writer --json**
    """
    import asyncio
    import json

    from rich.console import Console

    from t1.redteam import summary

    rows = asyncio.run(_run(names or [], _provider(sandbox, image), control, at_once))
    if as_json:
        typer.echo(json.dumps(summary(rows) | {"rows": [_as_dict(row) for row in rows]}))
    else:
        Console().print(_table(rows))
        typer.echo(json.dumps(summary(rows)))
    raise typer.Exit(0 if all(row.is_well for row in rows) else 1)


def _provider(kind: str, image: str) -> SandboxProvider:
    """Sandboxes of a kind. In all of them /tests can be written: the naive control and `in_place` need that."""
    from t1.errors import UserError
    from t1.sandboxes import ContainerProvider, NamespaceProvider

    if kind == "namespaces":
        return NamespaceProvider(places=["/tests"], label="redteam")
    if kind == "containers":
        return ContainerProvider(default_image=image or None, label="redteam")
    raise UserError(f"--sandbox: expected namespaces or containers, got {kind!r}")


async def _run(names: list[str], provider: SandboxProvider, control: bool, at_once: int) -> list[Row]:
    """Every script, or the named ones; the tasks live in a temporary directory."""
    import tempfile
    from pathlib import Path

    from t1.errors import UserError
    from t1.redteam import EXPLOITS, HONEST, run_suite

    every = (*EXPLOITS, *HONEST)
    unknown = set(names) - {agent.name for agent in every}
    if unknown:
        raise UserError(f"no such script: {', '.join(sorted(unknown))}")
    chosen = [agent for agent in every if not names or agent.name in names]
    try:
        with tempfile.TemporaryDirectory(prefix="t1-redteam-") as folder:
            return await run_suite(provider, Path(folder), scripted=chosen, control=control, at_once=at_once)
    finally:
        await provider.close()


def _as_dict(row: Row) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(row) | {"is_well": row.is_well}


def _table(rows: list[Row]) -> Table:
    """The rows for people."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Red team", title_justify="left")
    for column in ("", "script", "task", "naive", "reward", "evidence"):
        table.add_column(column, overflow="fold")
    naive = {None: "–", True: "fooled", False: "0"}
    for row in rows:
        honest = row.kind == "honest"
        table.add_row(
            "skip" if row.skipped else "ok" if row.is_well else "BAD",
            row.name,
            row.task,
            {True: "1", False: "0", None: "–"}[row.naive] if honest else naive[row.naive],
            "–" if row.reward is None else f"{row.reward:g}",
            Text("\n".join((row.problem,) if row.problem and not row.is_well else row.evidence[:3])),
        )
    return table
