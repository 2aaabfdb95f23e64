"""`t1 gap`: how far the trainer's policy is from the one that samples, with TITO and replay on and off."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from t1.cli.settings import split_settings, tasks_of
from t1.errors import ConfigError, RunError

if TYPE_CHECKING:
    from rich.table import Table

    from t1.config import RunConfig
    from t1.gateway.conversation import ChatRenderer
    from t1.protocols import Renderer
    from t1.tasks import Suite
    from t1.training.gap.measure import GapTable
    from t1.types import Trajectory

Dtype = Literal["float32", "bfloat16"]
HEADINGS = {
    "tito_replay": "TITO + replay",
    "tito": "TITO, live routes",
    "replay": "text, replay",
    "neither": "text, live routes",
}


def gap(
    source: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN|CONFIG.toml|section.key=value",
            help="A run (its latest policy and its tasks) or a configuration, and single values that win over it.",
            show_default=False,
        ),
    ] = None,
    num_tasks: Annotated[int, typer.Option("--num-tasks", "-n", min=1, help="Held-out tasks, one rollout each.")] = 64,
    engine_dtype: Annotated[
        Dtype, typer.Option(help="What the embedded engine computes in; of vLLM or SGLang, what it was started with.")
    ] = "bfloat16",
    trainer_dtype: Annotated[Dtype, typer.Option(help="What the trainer computes in.")] = "float32",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout, and the table on stderr.")
    ] = False,
) -> None:
    """Sample rollouts, score them with the trainer's policy at the same weights, and print the gap between the two.

    TITO off is what a stack that keeps text would train on, replay off is what the trainer's own router would do.

    Example: **t1 gap runs/quickstart --json** ·
    **t1 gap tasks.path=suites/basics engine.kind=vllm 'engine.urls=["http://127.0.0.1:8000"]'**
    """
    config, policy, suite = find_policy(source or ())

    from rich.console import Console

    from t1.inference import load_model
    from t1.training.gap.measure import measure

    trajectories, renderer = sample(config, policy, suite, num_tasks, engine_dtype, trainer_dtype)
    table = measure(
        load_model(policy, dtype=trainer_dtype),
        trajectories,
        decode=renderer.decode,
        encode=renderer.encode,
        engine=f"{config.engine.kind} {engine_dtype}",
        temperature=config.harness.sampling.temperature,
        max_pack_tokens=config.ppo.max_pack_tokens,
    )
    Console(stderr=as_json).print(as_table(table))
    if as_json:
        typer.echo(json.dumps(table.as_dict()))


def find_policy(words: Sequence[str]) -> tuple[RunConfig, Path, Suite]:
    """The configuration, the checkpoint and the tasks that the words on the command line ask for."""
    from t1.config import load_config

    path, overrides = split_settings(words)
    if path is None or not path.is_dir():
        config = _sampled(load_config(path, overrides))
        suite = tasks_of(config)

        from t1.workshop import model_path

        return config, model_path(config), suite

    from t1.rundir import read_run_config
    from t1.tasks import read_suite

    read_run_config(path)  # refuses what is no run, by name

    from t1.training.checkpoints import policy_at
    from t1.workshop import model_path

    config = load_config(path / "config.toml", overrides)
    policy = found if (found := policy_at(path)) != path else model_path(config)
    return _sampled(config), policy, tasks_of(config) if config.tasks.path else read_suite(path / "suite")


def _sampled(config: RunConfig) -> RunConfig:
    """The configuration, refused where log-probabilities would be of another distribution than was sampled."""
    if config.harness.sampling.temperature == 0:
        raise ConfigError("harness.sampling.temperature is 0: greedy tokens have no log-probability; set it above 0")
    return config


def sample(
    config: RunConfig, policy: Path, suite: Suite, num_tasks: int, engine_dtype: Dtype, trainer_dtype: Dtype
) -> tuple[list[Trajectory], Renderer | ChatRenderer]:
    """Trajectories of one rollout for each held-out task, audited as for training."""
    from t1.progress import ProgressDisplay
    from t1.training.experience import prepare
    from t1.workshop import Workshop, normalizer_of

    embedded = config.engine.kind == "embedded"
    model = config.model.model_copy(update={"dtype": engine_dtype if embedded else trainer_dtype})
    config, tasks = config.model_copy(update={"model": model}), (suite.heldout or suite.train)[:num_tasks]
    normalizer = normalizer_of(config, suite.train or suite.heldout)
    with Workshop(config, policy, normalizer=normalizer) as shop, ProgressDisplay() as show:
        show.stage("rollouts", total=len(tasks), unit="rollouts")
        rollouts = shop.evaluate(tasks, seed=config.evaluation.seed, progress=show.reached)
    experience = prepare(
        rollouts,
        boundary_ids=shop.renderer.boundary_ids,
        decode=shop.renderer.decode,
        on_residual=config.tito.on_residual,
        vocab_size=shop.vocab_size,
        num_experts=shop.num_experts,
    )
    if not experience.flat:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in experience.dropped.items())
        raise RunError(f"no rollout can be measured: {reasons}; look at one with `t1 rollout`")
    return experience.flat, shop.renderer


def as_table(table: GapTable) -> Table:
    """The four cells as rows."""
    from rich.table import Table

    shown = Table(
        title=f"{table.engine} samples, {table.trainer} trains · {table.num_trajectories} trajectories, "
        f"{table.num_sampled} sampled tokens, {table.num_lost} of them lost as text",
        title_justify="left",
    )
    for heading in ("", "mean |Δ|", "p99 |Δ|", "KL(s‖t)", "KL(t‖s)", "flipped", "ESS"):
        shown.add_column(heading, justify="left" if not heading else "right")
    for name, heading in HEADINGS.items():
        cell = table.cells[name]
        numbers = (cell.mean_abs, cell.p99, cell.k3, cell.k3_reverse)
        shown.add_row(heading, *(f"{number:.3g}" for number in numbers), f"{cell.flipped_share:.2%}", f"{cell.ess:.4f}")
    return shown
