"""`t1 rollout`: let a policy work on tasks, and read what it did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from t1.cli.settings import Settings, read_settings, tasks_of

if TYPE_CHECKING:
    from t1.types import Rollout


def rollout(
    settings: Settings = None,
    num_tasks: Annotated[int, typer.Option("--num-tasks", "-n", min=1, help="How many held-out tasks.")] = 4,
    out: Annotated[Path | None, typer.Option(help="Keep the rollouts in this Parquet file.")] = None,
) -> None:
    """Run the policy on a few tasks and print every turn.

    Example: **t1 rollout tasks.path=suites/basics model.path=runs/quickstart/checkpoints/sft -n 2**
    """
    config = read_settings(settings)
    suite = tasks_of(config)

    from t1.progress import ProgressDisplay
    from t1.rollouts.store import write_step
    from t1.workshop import Workshop, model_path, normalizer_of

    tasks = suite.heldout[:num_tasks]
    normalizer = normalizer_of(config, suite.train or suite.heldout)
    with Workshop(config, model_path(config), normalizer=normalizer) as workshop, ProgressDisplay() as show:
        show.stage("rollouts", total=len(tasks), unit="rollouts")
        rollouts = workshop.evaluate(tasks, seed=config.evaluation.seed, progress=show.reached)
    for task, rolled in zip(tasks, rollouts, strict=True):
        typer.echo("\n" + transcript(rolled, task.instruction))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_step(out, rollouts, [])


def transcript(rollout: Rollout, instruction: str) -> str:
    """A rollout as text: the instruction, each action with what it printed, and how it ended."""
    lines = [f"── {rollout.id}", *(f"│ {line}" for line in instruction.strip().splitlines())]
    for turn in rollout.turns:
        lines.append(f"$ {turn.action}")
        lines += [turn.observation] if turn.observation else []
    outcome = rollout.outcome
    if outcome.failure is not None:
        return "\n".join([*lines, f"✗ infrastructure: {outcome.failure.kind}: {outcome.failure.message}"])
    results = (outcome.verdict.assertions if outcome.verdict else None) or ()
    lines += [f"  {'✓' if result.status == 'passed' else '✗'} {result.name}" for result in results]
    mark = "✓ solved" if outcome.solved else "✗ not solved"
    return "\n".join([*lines, f"{mark} · reward {outcome.reward:.3f} · {outcome.stop.replace('_', ' ')}"])
