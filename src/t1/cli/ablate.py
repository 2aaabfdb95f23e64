"""`t1 ablate`: matched arms that differ in one thing, over several seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from t1.cli.settings import Settings, read_settings


def ablate(
    kind: Annotated[str, typer.Argument(help="reward, tito, replay, admission, importance or critic.")],
    settings: Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the runs go; ablations of one start may share it. Default: runs/ablations/KIND."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Pairs of runs, of the seeds 0, 1, …")] = 3,
) -> None:
    """Train two arms that differ in one value, from one SFT checkpoint, on the same tasks, seeds and steps; compare.

    What is done already is not run again: interrupt it, go on with the same command, or add seeds later.

    Example: **t1 ablate reward configs/ablations/reward.toml --seeds 3**
    """
    from t1.config import differing_keys
    from t1.evaluation.ablations import arms_of, kind_of

    about, config = kind_of(kind), read_settings(settings)
    first, second = arms_of(kind, config).items()
    for key, (one, other) in differing_keys(first[1], second[1]).items():
        typer.echo(f"the arms differ in {key} alone: {first[0]} has {one!r}, {second[0]} has {other!r}", err=True)
    for key, value in about.given.items():
        typer.echo(f"both have {key} = {value!r}, without which the question has no meaning", err=True)
    if seeds < 2:
        typer.echo("one seed says nothing about the spread between runs: use --seeds 4, say", err=True)
    elif seeds < 4:
        typer.echo(f"{seeds} seeds say little of the spread between runs, so the interval will be wide", err=True)

    from rich.console import Console

    from t1.ablate import ablate as run_ablation
    from t1.evaluation.ablation_report import to_table
    from t1.progress import ProgressDisplay

    place = out or Path("runs/ablations") / kind
    with ProgressDisplay() as show:
        found = run_ablation(kind, config, place, range(seeds), show)
    Console().print(to_table(found))
    typer.echo(f"{place / kind}.md")
