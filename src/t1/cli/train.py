"""`t1 train`: PPO in real sandboxes; `--resume` goes on after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from t1.cli.settings import Settings, Trackers, read_settings, with_trackers

if TYPE_CHECKING:
    from t1.config import RunConfig
    from t1.progress import ProgressDisplay
    from t1.rundir import RunDir


def train(
    settings: Settings = None,
    out: Annotated[Path, typer.Option(help="The directory of a new run.")] = Path("runs/train"),
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this run, from its latest complete checkpoint.", show_default=False)
    ] = None,
    tracker: Trackers = None,
) -> None:
    """Train a policy by PPO with a learned critic, on rewards from real sandboxes.

    Example: **t1 train --out runs/rl model.path=runs/sft/checkpoints/sft run.steps=60** · **t1 train --resume runs/rl**
    """
    from rich.console import Console

    from t1.evaluation.verdict import judge, verdict_table, write_verdict
    from t1.progress import ProgressDisplay
    from t1.rundir import RunDir

    settings = with_trackers(settings, tracker)
    if resume is None:
        config = read_settings(settings)
        run = RunDir.create(out, config)
    else:
        given = read_settings(settings, base=resume / "config.toml") if settings else None
        run, config = RunDir.resume(resume, given)
    with run, ProgressDisplay() as show:
        checkpoint = reinforce(config, run, show)
        verdict = judge(run.path)
        write_verdict(verdict)
    Console(stderr=True).print(verdict_table(verdict.as_dict()))
    typer.echo(f"{checkpoint}")


def reinforce(config: RunConfig, run: RunDir, show: ProgressDisplay) -> Path:
    """PPO in an open run, from its latest checkpoint where it has one."""
    from t1.quickstart import open_suite, split_train
    from t1.stages import Stages, open_tracker
    from t1.training.checkpoints import steps_done
    from t1.workshop import Workshop, model_path, normalizer_of

    done = steps_done(run.checkpoints / "rl")
    suite = open_suite(config, run, show)
    start, tasks = model_path(config), suite.train
    if (run.checkpoints / "sft").is_dir():  # a quickstart goes on as it began
        start, tasks = run.checkpoints / "sft", split_train(suite, config.sft.num_demonstrations)[1]
    normalizer = normalizer_of(config, suite.train)
    run.pin("normalizer", normalizer)
    with (
        open_tracker(config, run, before_step=done) as tracker,
        Workshop(config, start, normalizer=normalizer, version=done, logs=run.logs) as shop,
    ):
        return Stages(shop, run, tracker, show).reinforce(start, tasks)
