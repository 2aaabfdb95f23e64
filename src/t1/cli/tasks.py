"""`t1 tasks`: make a suite, prove it, read it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from t1.cli.tasks_audit import audit_tasks
from t1.cli.tasks_synth import synth

if TYPE_CHECKING:
    from t1.protocols import SandboxProvider
    from t1.tasks import Suite

tasks = typer.Typer(help="Make, check and read suites of task directories.", no_args_is_help=True)
tasks.command("audit")(audit_tasks)
tasks.command("synth")(synth)


@tasks.command()
def make(
    path: Annotated[Path, typer.Argument(help="Where the suite goes: a directory that does not exist yet.")],
    train: Annotated[int, typer.Option(min=1, help="Training tasks.")] = 1200,
    heldout: Annotated[int, typer.Option(min=1, help="Held-out tasks.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same tasks.")] = 0,
    max_requirements: Annotated[int, typer.Option(min=1, help="Requirements of the longest task.")] = 5,
) -> None:
    """Generate the `shell-basics` suite; every task is proved in a sandbox before it is written.

    Example: **t1 tasks make suites/basics --train 200 --heldout 50 --seed 7**
    """
    import asyncio

    from t1.errors import UserError

    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path}: exists already; choose another place for the suite")
    suite = asyncio.run(_make(path, train, heldout, seed, max_requirements))
    typer.echo(f"{path}: {len(suite.train)} training and {len(suite.heldout)} held-out tasks")


async def _make(path: Path, num_train: int, num_heldout: int, seed: int, max_requirements: int) -> Suite:
    """Generate with progress, in sandboxes that are closed on any exit."""
    from t1.progress import ProgressDisplay
    from t1.sandboxes import NamespaceProvider
    from t1.tasks.shell_basics import generate

    provider = NamespaceProvider()
    try:
        with ProgressDisplay() as display:
            display.stage("tasks", total=num_train + num_heldout, unit="tasks")
            return await generate(
                path,
                seed=seed,
                num_train=num_train,
                num_heldout=num_heldout,
                max_requirements=max_requirements,
                provider=provider,
                progress=display.reached,
            )
    finally:
        await provider.close()


@tasks.command()
def show(
    path: Annotated[Path, typer.Argument(help="A task directory, or a suite whose tasks are listed.")],
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="How many tasks of a suite to list.")] = 20,
) -> None:
    """Print a task as a person reads it, or list the tasks of a suite.

    Example: **t1 tasks show suites/basics** · **t1 tasks show suites/basics/heldout/heldout-00007**
    """
    from t1.tasks import read_suite, read_task

    if (path / "task.toml").exists() or (path / "instruction.md").exists():
        task = read_task(path)
        typer.echo(f"{task.id}  {task.digest[:12]}\n\n{task.instruction.strip()}\n")
        for name, value in task.metadata.items():
            typer.echo(f"{name}: {value}")
        if task.solution is not None:
            typer.echo(f"\n── {task.solution.name}\n{task.solution.read_text(encoding='utf-8').rstrip()}")
        return
    suite = read_suite(path)
    for split, some in (("train", suite.train), ("heldout", suite.heldout)):
        if some:
            typer.echo(f"{split}: {len(some)} tasks")
        for task in some[:num]:
            typer.echo(f"  {task.path.name:<12} {' '.join(task.instruction.split())[:96]}")


@tasks.command()
def check(
    path: Annotated[Path, typer.Argument(help="A task directory or a suite.")],
    num: Annotated[int | None, typer.Option("--num", "-n", min=1, help="Only the first tasks.")] = None,
) -> None:
    """Prove tasks in sandboxes: the solution passes everything, doing nothing does not, twice gives the same.

    Each is also read for what no run shows: hidden requirements, leaks, shortcuts; **t1 tasks audit** probes deeper.

    Example: **t1 tasks check suites/basics -n 20**
    """
    import asyncio

    broken = asyncio.run(_check(path, num))
    raise typer.Exit(1 if broken else 0)


async def _check(path: Path, num: int | None) -> int:
    """Check one after the other and print each, broken ones too; returns how many tasks are not well."""
    from t1.sandboxes import NamespaceProvider
    from t1.synthesis.audit import task_directories

    folders = task_directories(path)[:num]
    provider = NamespaceProvider()
    broken = 0
    try:
        for folder in folders:
            faults, advice = await _faults(folder, provider)
            broken += bool(faults)
            typer.echo("\n    ".join([f"{'✗' if faults else '✓'} {folder.name}", *faults, *advice]))
    finally:
        await provider.close()
    typer.echo(f"{len(folders) - broken} of {len(folders)} tasks are sound")
    if broken < len(folders):
        typer.echo(f"next: t1 tasks audit {path} changes their inputs and breaks their solutions", err=True)
    return broken


async def _faults(folder: Path, provider: SandboxProvider) -> tuple[list[str], list[str]]:
    """What is wrong with a task, by running it and by reading it, and what would make a sound one better."""
    from t1.errors import TaskError
    from t1.synthesis.audit import audit_texts
    from t1.tasks import check_task, read_task

    try:
        task = read_task(folder)
        rejects = [f"{reject.file}:{reject.line}: {reject.reason}" for reject in audit_texts(task).rejects]
        report = await check_task(task, provider)
    except TaskError as error:
        return [str(error)], []
    return [*report.faults, *rejects], list(report.wishes)
