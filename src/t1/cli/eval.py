"""`t1 eval`: measure a policy on a set of tasks, and compare it with an earlier measurement."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from t1.cli.settings import Settings, split_settings, tasks_of

if TYPE_CHECKING:
    from t1.config import RunConfig
    from t1.evaluation.benchmarks import Benchmark, Protocol
    from t1.evaluation.results import Attempt, Conditions
    from t1.tasks import Suite
    from t1.types import Rollout, Task

SERVERS = ("vllm", "sglang")


def evaluate(
    settings: Settings = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            help="A directory of tasks in Harbor's format, a named benchmark, REGISTRY.json#NAME@VERSION, "
            "or harbor:NAME@VERSION.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="A checkpoint or a run, vllm:URL or sglang:URL (with model.path), openai:MODEL@URL or "
            "anthropic:MODEL[@URL].",
            show_default=False,
        ),
    ] = None,
    harness: Annotated[
        str | None, typer.Option(help="terminal, terminus-2, mini-swe-agent, … (agent.name)", show_default=False)
    ] = None,
    attempts: Annotated[int | None, typer.Option(min=1, help="Attempts at each task.", show_default=False)] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="t1, leaderboard, or none: attempts, harness, sampling and time limits. Default: the benchmark's own.",
            show_default=False,
        ),
    ] = None,
    trained: Annotated[
        Path | None,
        typer.Option(
            help="The run or the tasks that the policy was trained on, to look for these tasks there. "
            "Default: the run that the checkpoint lies in.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="An earlier --out: compare task by task.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write results, report, rollouts and trajectories into this directory.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON object.")] = False,
) -> None:
    """Measure a policy: pass@k and pass^k with intervals over tasks, assertions, turns, time-outs, tokens, cost.

    Infrastructure failures are counted apart and are never scores. Single values (`evaluation.num_tasks=200`,
    `cost.output_per_million=15`, `harness.sampling.temperature=0.7`) win over the options.

    Example: **t1 eval --tasks suites/basics --policy runs/quickstart/checkpoints/rl --attempts 4 --out evals/rl**
    """
    from t1.config import load_config
    from t1.evaluation.endpoints import is_endpoint
    from t1.evaluation.results import read_attempts
    from t1.evaluation.task_sets import find_tasks

    earlier = read_attempts(against) if against is not None else None  # a mistake there is said before the work
    path, benchmark = find_tasks(tasks) if tasks is not None else (None, None)
    file, overrides = split_settings(settings or ())
    remote = policy if policy is not None and is_endpoint(policy) else None
    rules = protocol_of(protocol, benchmark)
    options = [f"tasks.path={path}"] if path is not None else []
    options += _policy_settings(policy) + _protocol_settings(rules, remote=remote is not None)
    options += [f"agent.name={harness}"] if harness is not None else []
    options += [f"evaluation.rollouts_per_task={attempts}"] if attempts is not None else []
    config = load_config(file, [*options, *overrides])
    suite = tasks_of(config)
    suite = replace(suite, heldout=tuple(map(rules.limit, suite.heldout))) if rules is not None else suite
    started = time.monotonic()
    measured = measure_endpoint(config, remote, suite) if remote else measure_checkpoint(config, suite)
    conditions = conditions_of(config, measured, suite, benchmark, rules)
    seen = exposure_of(measured, trained, None if remote else Path(measured.policy))
    publish(measured, conditions, benchmark, earlier, seen, out, as_json, wall_s=time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was run, and by whom."""

    tasks: Sequence[Task]
    rollouts: Sequence[Rollout]
    attempts: Sequence[Attempt]
    policy: str
    policy_digest: str


def protocol_of(name: str | None, benchmark: Benchmark | None) -> Protocol | None:
    """The protocol that was asked for, else the benchmark's own; None for `none`, and for any other set of tasks."""
    from t1.errors import ConfigError
    from t1.evaluation.benchmarks import PROTOCOLS

    chosen = name or (benchmark.protocol if benchmark is not None else "none")
    if chosen not in (*PROTOCOLS, "none"):
        raise ConfigError(f"--protocol {chosen!r} is none of {', '.join(PROTOCOLS)}, none")
    return PROTOCOLS.get(chosen)


def _protocol_settings(protocol: Protocol | None, *, remote: bool) -> list[str]:
    """The settings of a protocol; an endpoint keeps to our own harness, and the departure is named."""
    settings = protocol.settings() if protocol is not None else []
    return [one for one in settings if not (remote and one.startswith("agent.name="))]


def exposure_of(measured: Measured, trained: Path | None, checkpoint: Path | None) -> dict[str, Any] | None:
    """Which of the tasks the policy was trained on; None where nobody knows what it was trained on."""
    from t1.evaluation.exposure import exposure, run_of

    place = trained or (run_of(checkpoint) if checkpoint is not None else None)
    return exposure(measured.tasks, measured.rollouts, place).as_dict() if place is not None else None


def _policy_settings(policy: str | None) -> list[str]:
    """The settings that `--policy` stands for."""
    if policy is None:
        return []
    kind, _, url = policy.partition(":")
    if kind in SERVERS and url:
        return [f"engine.kind={kind}", f"engine.urls={json.dumps([url])}"]
    if kind in ("openai", "anthropic"):
        from t1.evaluation.remote import TALKATIVE

        return list(TALKATIVE)
    from t1.training.checkpoints import policy_at

    return [f"model.path={policy_at(Path(policy))}"]


def measure_checkpoint(config: RunConfig, suite: Suite) -> Measured:
    """Roll the policy of a checkpoint out, in our engine or on configured servers."""
    from t1.evaluation.results import to_attempt
    from t1.progress import ProgressDisplay
    from t1.workshop import Workshop, model_path, normalizer_of

    tasks = suite.heldout[: config.evaluation.num_tasks]
    normalizer = normalizer_of(config, suite.train or suite.heldout)
    with Workshop(config, model_path(config), normalizer=normalizer) as workshop, ProgressDisplay() as show:
        show.stage("eval", total=len(tasks) * config.evaluation.rollouts_per_task, unit="rollouts")
        rollouts = workshop.evaluate(
            tasks,
            rollouts_per_task=config.evaluation.rollouts_per_task,
            seed=config.evaluation.seed,
            progress=show.reached,
        )
        rows = [to_attempt(rollout, workshop.prices) for rollout in rollouts]
    path = model_path(config)
    return Measured(tasks, rollouts, rows, str(path), checkpoint_digest(path))


def measure_endpoint(config: RunConfig, policy: str, suite: Suite) -> Measured:
    """Let a model behind an HTTP endpoint work on the tasks."""
    from t1.evaluation.endpoints import Address
    from t1.evaluation.remote import evaluate_endpoint
    from t1.evaluation.results import to_attempt
    from t1.progress import ProgressDisplay

    tasks, address = suite.heldout[: config.evaluation.num_tasks], Address.parse(policy)
    normalizer = config.reward.normalizer or float(max((task.num_assertions or 1) for task in tasks))
    with ProgressDisplay() as show:
        show.stage("eval", total=len(tasks) * config.evaluation.rollouts_per_task, unit="rollouts")
        rollouts, spent, model = evaluate_endpoint(config, address, tasks, normalizer=normalizer, progress=show.reached)
    rows = [to_attempt(rollout, spent=usage) for rollout, usage in zip(rollouts, spent, strict=True)]
    return Measured(tasks, rollouts, rows, policy, model)


def conditions_of(
    config: RunConfig, measured: Measured, suite: Suite, benchmark: Benchmark | None, rules: Protocol | None
) -> Conditions:
    """What stands beside every score of this evaluation."""
    from t1.evaluation.benchmarks import departures
    from t1.evaluation.results import Conditions
    from t1.rundir import describe_environment

    environment = describe_environment(config.evaluation.seed)
    limits = config.harness.model_dump(mode="json", exclude={"sampling", "system_prompt"})
    protocol = benchmark.title if benchmark is not None else ""
    if rules is not None:
        differs = departures(rules, config, measured.tasks, benchmark.num_tasks if benchmark is not None else None)
        kept = f"departs from it: {'; '.join(differs)}" if differs else "kept"
        protocol = " · ".join(part for part in (protocol, f"protocol {rules.name} ({rules.source})", kept) if part)
    return Conditions(
        policy=measured.policy,
        policy_digest=measured.policy_digest,
        harness=config.agent.name,
        sampling=config.harness.sampling.model_dump(mode="json"),
        limits=limits,
        tasks=str(suite.path),
        suite_digest=suite.digest,
        attempts=config.evaluation.rollouts_per_task,
        seed=config.evaluation.seed,
        versions=environment["packages"],
        git_commit=environment["git_commit"],
        protocol=protocol,
    )


def publish(
    measured: Measured,
    conditions: Conditions,
    benchmark: Benchmark | None,
    earlier: tuple[list[Attempt], Conditions] | None,
    seen: dict[str, Any] | None,
    out: Path | None,
    as_json: bool,
    *,
    wall_s: float,
) -> None:
    """Write and print everything."""
    from dataclasses import asdict

    from rich.console import Console

    from t1.evaluation.attempts import compare_tasks
    from t1.evaluation.benchmarks import published_for
    from t1.evaluation.documents import comparison, comparison_text, exposure_text, results_markdown, results_table
    from t1.evaluation.results import summarize, tallies, write_results

    found: dict[str, Any] | None = None
    if earlier is not None and (pair := compare_tasks(tallies(earlier[0]), tallies(measured.attempts))) is not None:
        found = comparison(pair, asdict(earlier[1]), asdict(conditions))
    results = {"conditions": asdict(conditions), "summary": summarize(measured.attempts), "exposure": seen}
    if out is not None:
        results = write_results(out, measured.attempts, conditions, against=found, exposure=seen)
        page = results_markdown(results, published=published_for(benchmark), against=found)
        (out / "results.md").write_text(page, encoding="utf-8")
        write_pages(out, measured, conditions, wall_s)
    if as_json:
        typer.echo(json.dumps(results | {"wall_s": wall_s, "against": found}))
        return
    console = Console()
    console.print(results_table(results))
    if seen is not None:
        console.print(exposure_text(seen), markup=False)
    if found is not None:
        console.print(comparison_text(found), markup=False)
    for row in published_for(benchmark):
        console.print(f"published, not measured here: {row.policy}: {row.score:.1%} ({row.source})", markup=False)
    if out is None:
        print("nothing was kept: --out DIR writes results, report and every trajectory", file=sys.stderr)


def write_pages(out: Path, measured: Measured, conditions: Conditions, wall_s: float) -> None:
    """The rollouts, the report's page, and a trajectory of each attempt for Harbor's viewer."""
    from t1.evaluation.atif import write_trajectories
    from t1.evaluation.metrics import evaluate as measure
    from t1.evaluation.report import build_report, pick_examples, write_report
    from t1.rollouts.store import write_step

    instructions = {task.id: task.instruction for task in measured.tasks}
    write_step(out / "rollouts.parquet", measured.rollouts, [])
    write_trajectories(out / "harbor", measured.rollouts, measured.attempts, instructions, conditions)
    report = build_report({"policy": measure(measured.rollouts)}, wall_s=wall_s, gap=None, audit={})
    examples = pick_examples({"policy": measured.rollouts}, instructions)
    write_report(out, report, examples=examples, title="T1 evaluation")


def checkpoint_digest(path: Path) -> str:
    """sha256 over the names and bytes of a checkpoint's files: what "the same policy" means."""
    digest = hashlib.sha256()
    for file in sorted(entry for entry in path.rglob("*") if entry.is_file()):
        digest.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()
