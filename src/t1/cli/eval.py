"""`t1 eval`: measure a checkpoint on held-out tasks."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from t1.cli.settings import Settings, read_settings, tasks_of


def evaluate(
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="Write report.json, report.html and the rollouts into this directory.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Measure a policy on the held-out tasks of a suite: solve rate with its interval, turns, tokens, seconds.

    Example: **t1 eval tasks.path=suites/basics model.path=runs/quickstart/checkpoints/rl evaluation.num_tasks=200**
    """
    config = read_settings(settings)
    suite = tasks_of(config)

    from rich.console import Console

    from t1.evaluation.metrics import evaluate as measure
    from t1.evaluation.report import build_report, pick_examples, report_table, write_report
    from t1.progress import ProgressDisplay
    from t1.rollouts.store import write_step
    from t1.workshop import Workshop, model_path, normalizer_of

    tasks = suite.heldout[: config.evaluation.num_tasks]
    normalizer = normalizer_of(config, suite.train or suite.heldout)
    started = time.monotonic()
    with Workshop(config, model_path(config), normalizer=normalizer) as workshop, ProgressDisplay() as show:
        show.stage("eval", total=len(tasks) * config.evaluation.rollouts_per_task, unit="rollouts")
        rollouts = workshop.evaluate(
            tasks,
            rollouts_per_task=config.evaluation.rollouts_per_task,
            seed=config.evaluation.seed,
            progress=show.reached,
        )
    report = build_report({"policy": measure(rollouts)}, wall_s=time.monotonic() - started, gap=None, audit={})
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_step(out / "rollouts.parquet", rollouts, [])
        examples = pick_examples({"policy": rollouts}, {task.id: task.instruction for task in tasks})
        write_report(out, report, examples=examples, title="T1 evaluation")
    if as_json:
        typer.echo(json.dumps(report["stages"]["policy"]))
    else:
        Console().print(report_table(report))
