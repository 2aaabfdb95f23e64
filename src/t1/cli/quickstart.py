"""`t1 quickstart`: the whole method, from nothing to a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from t1.cli.settings import Settings, read_settings


def quickstart(
    settings: Settings = None,
    out: Annotated[Path, typer.Option(help="The run directory; an earlier run there is set aside.")] = Path(
        "runs/quickstart"
    ),
) -> None:
    """Take a small Mixture-of-Experts model from base to SFT to PPO in real sandboxes, and report the gains.

    Example: **t1 quickstart** · **t1 quickstart --out runs/seed1 run.seed=1**
    """
    from t1.rundir import RunDir, set_aside

    config = read_settings(settings)
    if (moved := set_aside(out)) is not None:
        typer.echo(f"the earlier run is now {moved}", err=True)

    from rich.console import Console

    from t1.evaluation.report import report_table
    from t1.progress import ProgressDisplay
    from t1.quickstart import quickstart as run_quickstart

    with RunDir.create(out, config) as run, ProgressDisplay() as show:
        report = run_quickstart(config, run, show)
    Console().print(report_table(report))
    typer.echo(f"{out / 'report.html'}")
