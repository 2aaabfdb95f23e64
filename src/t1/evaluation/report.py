"""The report of a run: report.json for programs, report.html for people, a table for the terminal.

Boundary: turns results into documents. It measures nothing itself; every number comes from evaluation, the metrics of
the run or the audit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.table import Table

from t1.errors import UserError
from t1.evaluation import charts
from t1.evaluation.metrics import StageResult, compare, share_of_gain
from t1.progress import duration
from t1.types import Rollout

CURVES = {
    "reward": "Mean reward",
    "solve_rate": "Solve rate on training tasks",
    "gap": "Gap: |Δ log-prob|, engine to trainer",
    "explained_variance": "Value fit: explained variance",
    "mean_turns": "Turns per rollout",
    "tokens_per_s": "Sampled tokens per second",
    "money": "Cost of a step",
    "admitted_share": "Share of trials that were trained on",
    "bias_duration": "Bias of admission: duration",
    "bias_turns": "Bias of admission: turns",
    "bias_task": "Bias of admission: hardness of tasks",
    "bias_outcome": "Bias of admission: solve rate",
    "demoted": "Tasks that left the pool",
}
"""Metric of a training step → the title of its picture, in the order of display."""
QUIET = {"money": 0.0, "admitted_share": 1.0, "demoted": 0.0} | {key: 0.0 for key in CURVES if key.startswith("bias_")}
"""Metrics that are pictured only where some step has another value than this."""
NUM_DEAREST = 15
"""Tasks that the page lists by cost; report.json has all."""


@dataclass(frozen=True, slots=True)
class Example:
    """One rollout as people read it."""

    stage: str
    task: str
    instruction: str
    steps: tuple[tuple[str, str], ...]
    """(action, observation) of every turn."""
    solved: bool
    assertions: tuple[tuple[str, str], ...]
    """(name, status)"""
    stop: str


def build_report(
    stages: Mapping[str, StageResult], *, wall_s: float, gap: float | None, audit: Mapping[str, Any], **facts: Any
) -> dict[str, Any]:
    """The report as JSON knows it. `stages` in order (base, sft, rl); `facts` join it at the top level."""
    names = list(stages)
    comparisons = {
        f"{after}_over_{before}": asdict(compare(stages[before], stages[after])) for before, after in pairwise(names)
    }
    gain = None
    if {"base", "sft", "rl"} <= stages.keys():
        gain = share_of_gain(*(stages[name].solve_rate for name in ("base", "sft", "rl")))
    return {
        "stages": {name: result.summary() for name, result in stages.items()},
        "comparisons": comparisons,
        "rl_share_of_gain": gain,
        "wall_s": wall_s,
        "gap": gap,
        "audit": dict(audit),
        **facts,
    }


def write_report(
    path: Path,
    report: Mapping[str, Any],
    *,
    metrics: Sequence[Mapping[str, Any]] = (),
    examples: Sequence[Example] = (),
    title: str = "T1 run",
) -> None:
    """Write report.json and report.html into the directory `path`."""
    # The page first: a report.json is the sign that both are there.
    (path / "report.html").write_text(render_html(report, metrics, examples, title), encoding="utf-8")
    (path / "report.json").write_text(json.dumps(report, indent=2, default=_number) + "\n", encoding="utf-8")


def _number(value: Any) -> Any:
    """numpy scalars as numbers."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written to report.json")


def render_html(
    report: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], examples: Sequence[Example], title: str
) -> str:
    """One page that needs nothing beside it."""
    try:
        from jinja2 import Environment
    except ImportError:
        raise UserError("the report's page needs a package: pip install 't1[report]'") from None
    page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page.filters["duration"] = duration
    template = page.from_string(resources.files("t1.evaluation").joinpath("report.html.j2").read_text("utf-8"))
    return template.render(
        title=title,
        report=report,
        bars=charts.solve_rate_bars(report["stages"]) if report["stages"] else "",
        curves=training_curves(metrics),
        examples=examples,
        dearest=(report.get("spending") or {}).get("tasks", [])[:NUM_DEAREST],
    )


def training_curves(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(title, SVG) of every curve that the records hold: PPO's from records of stage `rl`, SFT's loss before them."""
    pictures = []
    wanted = [("sft", "loss", "SFT: loss", charts.SFT)]
    wanted += [("rl", key, title, charts.RL) for key, title in CURVES.items()]
    for stage, key, title, color in wanted:
        records = [r for r in metrics if r.get("stage", "rl") == stage]
        points = [(r.get("step", i), r[key]) for i, r in enumerate(records) if isinstance(r.get(key), (int, float))]
        if len(points) > 1 and any(value != QUIET.get(key) for _, value in points):
            steps, values = zip(*points, strict=True)
            pictures.append((title, charts.curve(steps, values, f"{stage}-{key}".replace("_", "-"), color=color)))
    return pictures


def to_example(rollout: Rollout, instruction: str, stage: str) -> Example:
    """A rollout in words."""
    verdict = rollout.outcome.verdict
    results = (verdict.assertions if verdict else None) or ()
    return Example(
        stage=stage,
        task=rollout.id.task,
        instruction=instruction.strip(),
        steps=tuple((turn.action, turn.observation) for turn in rollout.turns),
        solved=rollout.outcome.solved,
        assertions=tuple((result.name, str(result.status)) for result in results),
        stop=str(rollout.outcome.stop),
    )


def pick_examples(
    rollouts: Mapping[str, Sequence[Rollout]], instructions: Mapping[str, str], *, num_tasks: int = 3
) -> list[Example]:
    """The same tasks through every stage: those that the last stage solves and an earlier one does not come first.

    One task that even the last stage fails is among them where there is one, so that the page does not flatter.
    """
    firsts = {stage: _first_by_task(some) for stage, some in rollouts.items()}
    last = list(firsts)[-1] if firsts else ""
    shared = (
        sorted(set.intersection(*(set(tasks) for tasks in firsts.values())) & instructions.keys()) if firsts else []
    )

    def rank(task: str) -> tuple[bool, int, str]:
        solved = [tasks[task].outcome.solved for tasks in firsts.values()]
        return (not (solved[-1] and not solved[-2:][0]), -len(firsts[last][task].turns), task)

    ordered = sorted(shared, key=rank)
    unsolved = [task for task in ordered if not firsts[last][task].outcome.solved]
    chosen = [task for task in ordered if task not in unsolved[:1]][: num_tasks - len(unsolved[:1])] + unsolved[:1]
    return [to_example(tasks[task], instructions[task], stage) for task in chosen for stage, tasks in firsts.items()]


def _first_by_task(rollouts: Sequence[Rollout]) -> dict[str, Rollout]:
    """The first scored rollout of each task."""
    firsts: dict[str, Rollout] = {}
    for rollout in rollouts:
        if rollout.outcome.failure is None:
            firsts.setdefault(rollout.id.task, rollout)
    return firsts


def report_table(report: Mapping[str, Any]) -> Table:
    """The stages as a table for the terminal."""
    table = Table(title=f"{_num_tasks(report)} tasks · {duration(report['wall_s'])} in all", title_justify="left")
    table.add_column("stage", style="bold")
    for column in ("solve rate", "95 % interval", "passed assertions", "turns", "tokens", "seconds"):
        table.add_column(column, justify="right")
    for name, stage in report["stages"].items():
        low, high = stage["ci95"]
        table.add_row(
            name,
            f"{stage['solve_rate']:.1%}",
            f"{low:.1%} – {high:.1%}",
            f"{stage['mean_passed_assertions']:.2f}",
            f"{stage['mean_turns']:.1f}",
            f"{stage['mean_tokens']:.0f}",
            f"{stage['mean_seconds']:.1f}",
        )
    if report.get("rl_share_of_gain") is not None:
        table.caption = f"RL earned {report['rl_share_of_gain']:.0%} of the gain over base"
        table.caption_justify = "left"
    return table


def _num_tasks(report: Mapping[str, Any]) -> int:
    """How many tasks every stage was measured on."""
    return max((stage["num_tasks"] for stage in report["stages"].values()), default=0)
