"""`t1 sft`: fine-tune a policy on demonstrations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from t1.cli.settings import Settings, read_settings


def sft(
    settings: Settings = None,
    out: Annotated[Path, typer.Option(help="The run directory.")] = Path("runs/sft"),
) -> None:
    """Play reference solutions through the harness, and fine-tune the policy on what happened.

    Example: **t1 sft --out runs/sft tasks.path=suites/basics sft.steps=400**
    """
    config = read_settings(settings)

    from t1.progress import ProgressDisplay
    from t1.quickstart import open_suite
    from t1.rundir import RunDir
    from t1.stages import Stages, open_tracker
    from t1.workshop import Workshop, model_path, normalizer_of

    start = model_path(config)
    with RunDir.create(out, config) as run, ProgressDisplay() as show, open_tracker(config, run) as tracker:
        suite = open_suite(config, run, show)
        with Workshop(config, start, normalizer=normalizer_of(config, suite.train)) as shop:
            stages = Stages(shop, run, tracker, show)
            demonstrations = stages.demonstrate(suite.train[: config.sft.num_demonstrations])
            checkpoint = stages.finetune(start, demonstrations)
    typer.echo(f"{checkpoint}")
