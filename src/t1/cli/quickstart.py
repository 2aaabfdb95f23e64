"""`t1 quickstart`: the whole method, from nothing to a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from t1.cli.settings import Settings, Trackers, read_settings, with_trackers

if TYPE_CHECKING:
    from t1.config import RunConfig
    from t1.rundir import RunDir


def quickstart(
    settings: Settings = None,
    out: Annotated[Path, typer.Option(help="The run directory; an earlier run there is set aside.")] = Path(
        "runs/quickstart"
    ),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the interrupted run in --out.")] = False,
    tracker: Trackers = None,
) -> None:
    """Take a small Mixture-of-Experts model from base to SFT to PPO in real sandboxes, and report the gains.

    Example: **t1 quickstart** · **t1 quickstart --out runs/seed1 run.seed=1**
    """
    from rich.console import Console

    from t1.evaluation.report import report_table
    from t1.evaluation.verdict import verdict_table
    from t1.progress import ProgressDisplay
    from t1.quickstart import quickstart as run_quickstart
    from t1.rundir import RunDir

    settings = with_trackers(settings, tracker)
    if resume:
        run, config = RunDir.resume(out, read_settings(settings, base=out / "config.toml") if settings else None)
    else:
        run, config = start(out, read_settings(settings))
    with run, ProgressDisplay() as show:
        report = run_quickstart(config, run, show)
    Console().print(report_table(report), verdict_table(report["verdict"]))
    typer.echo(f"{out / 'report.html'}")


def start(out: Path, config: RunConfig) -> tuple[RunDir, RunConfig]:
    """A new run directory; an earlier one there is set aside."""
    from t1.rundir import RunDir, set_aside

    if (moved := set_aside(out)) is not None:
        typer.echo(f"the earlier run is now {moved}", err=True)
    return RunDir.create(out, config), config
