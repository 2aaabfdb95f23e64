"""`t1 tasks synth`: make new tasks, and keep those that stand up to five stages of selection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from t1.protocols import SandboxProvider
    from t1.synthesis.candidate import Seed
    from t1.synthesis.config import SynthConfig
    from t1.synthesis.factory import Parts, Synthesis
    from t1.synthesis.journal import Journal
    from t1.synthesis.proposer import Proposer
    from t1.synthesis.selection.useful import Attempt, Audit
    from t1.synthesis.variations import Circumstances


def synth(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONFIG.toml|section.key=value", show_default=False, help="A configuration, and values."
        ),
    ] = None,
) -> None:
    """Synthesize tasks: propose, rewrite, select. An interrupted run goes on where it was: start it again.

    Example: **t1 tasks synth configs/tasks/synth.toml run.num_seeds=200 run.out=suites/synth**
    """
    import asyncio

    from t1.cli.settings import split_settings
    from t1.synthesis.config import load_synth_config

    path, overrides = split_settings(settings or ())
    config = load_synth_config(path, overrides)
    made = asyncio.run(_synth(config))
    stopped = f" (stopped: {made.stopped})" if made.stopped else ""
    typer.echo(f"{made.path}: {len(made.accepted)} tasks from {len(made.lineages)} seeds{stopped}; see datasheet.md")


async def _synth(config: SynthConfig) -> Synthesis:
    """Open everything, run, close everything."""
    from contextlib import AsyncExitStack

    from t1.progress import ProgressDisplay
    from t1.sandboxes import NamespaceProvider
    from t1.synthesis.factory import Factory
    from t1.synthesis.journal import Journal
    from t1.synthesis.variations import Circumstances

    seeds = _seeds(config)
    async with AsyncExitStack() as stack:
        journal = stack.enter_context(Journal(Path(config.run.out) / "journal.sqlite"))
        circumstances = Circumstances()
        stack.callback(circumstances.close)
        provider = NamespaceProvider(readable=[circumstances.folder])
        stack.push_async_callback(provider.close)
        proposer = _proposer(config, journal)
        stack.push_async_callback(proposer.aclose)
        attempt = _policy(config, stack) if config.useful.policy else None
        parts = _parts(config, proposer, provider, circumstances, attempt)
        show = stack.enter_context(ProgressDisplay())
        show.stage("synth", total=len(seeds), unit="seeds")
        return await Factory(config, seeds, parts, journal).run(show.reached)


def _seeds(config: SynthConfig) -> list[Seed]:
    """The seeds that are asked for; tasks that cannot be read are named and left out."""
    from t1.synthesis.seeds import task_seeds, taxonomy_seeds

    if not config.seeds.tasks:
        return taxonomy_seeds(config.run.num_seeds, config.seeds.domains, config.seeds.difficulties)
    seeds, broken = task_seeds(config.seeds.tasks, config.run.num_seeds)
    for _, reason in broken:
        typer.echo(f"left out: {reason}", err=True)
    return seeds


def _proposer(config: SynthConfig, journal: Journal) -> Proposer:
    """The proposer of the configuration."""
    if config.proposer.kind == "llm":
        from t1.synthesis.llm.proposer import LLMProposer

        return LLMProposer.configured(config.proposer, journal)
    from t1.synthesis.programmatic.proposer import ProgrammaticProposer

    return ProgrammaticProposer(config.run.seed)


def _parts(
    config: SynthConfig,
    proposer: Proposer,
    provider: SandboxProvider,
    circumstances: Circumstances,
    attempt: Attempt | None,
) -> Parts:
    """Whom the factory asks."""
    from t1.synthesis.factory import Parts
    from t1.synthesis.selection.novel import read_references
    from t1.synthesis.trials import Ground

    return Parts(
        proposer,
        Ground(provider),
        variations=circumstances.variations if config.solvable.vary else (),
        held_out=read_references(config.novel.held_out),
        attempt=attempt,
        audit=_audit(provider) if config.useful.audit else None,
    )


def _audit(provider: SandboxProvider) -> Audit:
    """The audit, with probes that run."""
    from t1.synthesis.attacks import Attacks
    from t1.synthesis.audit import AuditReport, audit_task
    from t1.types import Task

    async def audit(task: Task) -> AuditReport:
        # The third stage has recorded the attacks.
        return await audit_task(task, provider=provider, attacks=Attacks.NONE)

    return audit


def _policy(config: SynthConfig, stack: object) -> Attempt:
    """Attempts by the model of a run's configuration, in its own workshop."""
    import asyncio
    from contextlib import AsyncExitStack

    from t1.config import load_config
    from t1.errors import InfrastructureError
    from t1.types import RolloutId, Task
    from t1.workshop import Workshop, model_path

    assert isinstance(stack, AsyncExitStack)
    run = load_config(Path(config.useful.policy))
    workshop = stack.enter_context(Workshop(run, model_path(run), normalizer=1.0))
    collector = workshop.collector()

    async def attempt(task: Task, number: int) -> bool:
        seed = int(task.digest[:12], 16) + number
        work = collector.collect(task, RolloutId(task.id, 0, number), seed=seed)
        outcome = (await asyncio.wrap_future(workshop.runner.start(work))).outcome
        if outcome.failure is not None:
            raise InfrastructureError(f"reference policy: {outcome.failure.kind}: {outcome.failure.message}")
        return outcome.solved

    return attempt
