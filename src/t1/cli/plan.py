"""`t1 plan`: memory, layout, traffic and time of a training run on GPUs that need not be there."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from t1.training.planning.known_models import Known
    from t1.training.planning.plan import Plan

GB = 1e9


def plan(
    model: Annotated[str, typer.Option(help="A known model's name, or a checkpoint's directory or config.json.")],
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of the trainer; policy and critic share them.")] = 8,
    gpu: Annotated[str, typer.Option(help="a100, h100, h200 or b200.")] = "h200",
    experts: Annotated[
        int | None, typer.Option(min=1, help="GPUs that share a layer's experts; a node's, if the model has any.")
    ] = None,
    context: Annotated[int, typer.Option(min=1, help="GPUs that share the tokens of a pack.")] = 1,
    rollouts: Annotated[int, typer.Option(min=1, help="Rollouts of a step.")] = 512,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of a rollout, the longest one.")] = 50_000,
    minibatches: Annotated[int, typer.Option(min=1)] = 2,
    epochs: Annotated[int, typer.Option(min=1)] = 1,
    efficiency: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Assumed part of the GPU's operations a second that is reached.")
    ] = 0.35,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Print what a GPU will hold, what moves in a step and how long it may take. Exit code 1: it does not fit."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from t1.training.parallel.layout import Layout
    from t1.training.planning.known_models import known_model
    from t1.training.planning.machines import gpu_named
    from t1.training.planning.memory import Recipe, meta_model
    from t1.training.planning.plan import Workload, make_plan, usual_experts
    from t1.training.planning.shapes import shape_of

    known, machine = known_model(model), gpu_named(gpu)
    Layout(gpus, experts or 1, context)  # refuses before the model is built
    shape = shape_of(meta_model(known.config))
    layout = Layout(gpus, experts or usual_experts(shape, gpus, machine), context)
    work = Workload(rollouts, tokens, minibatches, epochs)
    made = make_plan(known.config, shape, layout, machine, work, recipe=Recipe(), efficiency=efficiency)
    if as_json:
        about = {"model": model, "source": known.source, "assumed": known.assumed}
        typer.echo(json.dumps({**about, **made.as_dict()}))
    else:
        _print(Console(highlight=False), made, f"{model} on {gpus} × {machine.name}", known)
    return 0 if made.fits else 1


def _print(console: Console, made: Plan, title: str, known: Known) -> None:
    """Everything as tables."""
    say = partial(console.print, soft_wrap=True)
    shape, layout = made.shape, made.layout
    say(f"[bold]{escape(title)}[/]", f"[dim]{escape(known.source)}[/]\n", sep="\n")
    routed = f", {shape.routed_layers} routed layers × {shape.experts_per_token} experts" if shape.num_experts else ""
    say(f"{shape.parameters / GB:.2f} B parameters, {shape.active / GB:.2f} B active a token{routed}")
    apart = f" · {layout.experts} share a layer's experts, {layout.replicas} its shards" if shape.num_experts else ""
    say(f"FSDP over {layout.world} ranks{apart} · {layout.data} draw packs, {layout.context} share one")
    say("float32 weights, moments and sums of gradients; bfloat16 compute; activations recomputed\n")
    memory = {kind: f"{size / GB:8.2f} GB" for kind, size in made.memory.items()}
    memory["together"] = f"{made.total_bytes / GB:8.2f} GB of {made.gpu.usable_bytes / GB:.1f}"
    console.print(_table("Memory of a GPU at its fullest", memory))
    moved = {
        "published to the samplers": f"{made.published_bytes / GB:8.2f} GB",
        "routing of the rollouts, in files": f"{made.routed_bytes / GB:8.2f} GB, {shape.row_bytes} bytes a token",
        "trajectories in the run's process at most": f"{made.controller_bytes / GB:8.3f} GB",
        "trajectories on each rank's host at most": f"{made.host_bytes / GB:8.2f} GB",
    }
    console.print(_table("A step moves and holds", moved))
    times = {what: f"{seconds:8.1f} s" for what, seconds in made.seconds.items()}
    times["together"] = f"{sum(made.seconds.values()):8.1f} s"
    console.print(_table("Time of a step's training, estimated", times))
    say("Assumed", *(f"  [dim]· {escape(note)}[/]" for note in (*known.assumed, *made.notes)), sep="\n")
    for problem in made.problems:
        say(f"\n[red]✗[/] {escape(problem)}")
    say("\nIt fits." if made.fits else "\nIt does not fit.")


def _table(title: str, rows: dict[str, str]) -> Table:
    """Two columns under a title."""
    table = Table(box=None, show_header=False, title=title, title_justify="left", padding=(0, 2))
    for name, value in rows.items():
        table.add_row(name, value)
    return table
