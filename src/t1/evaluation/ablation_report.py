"""What an ablation found, as JSON, Markdown, a table for the terminal and a picture.

Boundary: turns an `Ablation` into documents; it computes nothing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from t1.errors import UserError
from t1.evaluation.ablations import MEASURES, Ablation, ArmRun, Difference
from t1.evaluation.charts import moving_average

FIRST, SECOND, INK, MUTED, LINE = "#8a8f98", "#2563eb", "#1f2328", "#59636e", "#d1d9e0"
CURVE = "mean_passed_assertions"
"""The metric of training that is drawn: both arms earn it, whatever their reward is."""


def as_json(ablation: Ablation) -> dict[str, Any]:
    """Everything that was found, and the numbers of every run."""
    kind = ablation.kind
    return {
        "ablation": ablation.name,
        "question": kind.question,
        "differs": {kind.key: dict(kind.arms)},
        "given": dict(kind.given),
        "start": dict(ablation.start),
        "seeds": sorted({run.seed for pair in ablation.pairs for run in pair}),
        "differences": [asdict(found) | {"seen": found.seen} for found in ablation.differences],
        "unsound": {run: dict(failed) for run, failed in ablation.unsound.items()},
        "runs": [_run(run, ablation) for pair in ablation.pairs for run in pair],
    }


def _run(run: ArmRun, ablation: Ablation) -> dict[str, Any]:
    """One run in numbers."""
    scores = {m: sum(values.values()) / len(values) for m in MEASURES if (values := run.tasks(m))}
    return {
        "arm": run.arm,
        "seed": run.seed,
        "path": str(run.path),
        **scores,
        "steps": len(run.steps),
        "rollouts": int(sum(step.get("num_rollouts", 0) for step in run.steps)),
        "watched": {metric: run.mean(metric) for metric in ablation.kind.watch},
        "failed": dict(run.failed),
        "curve": [step.get(CURVE) for step in run.steps],
    }


def _shown(found: Difference) -> str:
    """The difference, or that none was seen."""
    points = f"{100 * found.difference:+.1f}"
    return f"{points} points" if found.seen else f"none seen ({points})"


def to_markdown(ablation: Ablation) -> str:
    """The page of an ablation."""
    kind, first, second = ablation.kind, *ablation.kind.arms
    lines = [f"# Ablation: {ablation.name}", "", f"{kind.question[0].upper()}{kind.question[1:]}", ""]
    lines.append(f"`{kind.key}` is `{kind.arms[first]!r}` in *{first}* and `{kind.arms[second]!r}` in *{second}*.")
    given = "".join(f"; `{key}` is `{value!r}` in both" for key, value in kind.given.items())
    lines.append(f"Everything else is equal{given}.")
    lines += ["", *difference_rows(ablation), ""]
    if ablation.unsound:
        lines.append("Not compared, with the other arm of their seed, because their audit failed:\n")
        lines += [f"- {run}: {rule}: {why}" for run, failed in ablation.unsound.items() for rule, why in failed.items()]
        lines.append("")
    lines += run_rows(ablation)
    return "\n".join(lines) + "\n"


def difference_rows(ablation: Ablation) -> list[str]:
    """A Markdown table: the arms' means and their difference, with both intervals."""
    first, second = ablation.kind.arms
    rows = [
        f"| held-out tasks | start | {first} | {second} | difference | 95 %, seeds and tasks | 95 %, tasks | by seed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for found in ablation.differences:
        start = ablation.start.get(found.measure)
        cells = [
            f"{MEASURES[found.measure]}, {found.num_tasks} tasks × {len(found.by_seed)} seeds",
            "–" if start is None else f"{start:.1%}",
            *(f"{mean:.1%}" for mean in found.means),
            _shown(found),
            *(f"{100 * low:+.1f} to {100 * high:+.1f}" for low, high in (found.ci95, found.ci95_tasks)),
            ", ".join(f"{100 * value:+.1f}" for value in found.by_seed.values()),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def run_rows(ablation: Ablation) -> list[str]:
    """A Markdown table: every run, with the metrics that show what the change did."""
    watch = ablation.kind.watch
    rows = ["| run | seed | steps | rollouts | " + " | ".join(f"`{m}`" for m in watch) + " | failed rules |"]
    rows.append("|---" * (5 + len(watch)) + "|")
    for pair in ablation.pairs:
        for run in pair:
            numbers = [run.mean(metric) for metric in watch]
            cells = [run.arm, str(run.seed), str(len(run.steps))]
            cells += [str(int(sum(step.get("num_rollouts", 0) for step in run.steps)))]
            cells += ["–" if number is None else f"{number:.3g}" for number in numbers]
            rows.append("| " + " | ".join([*cells, ", ".join(run.failed) or "none"]) + " |")
    return rows


def to_table(ablation: Ablation) -> Table:
    """The comparison for the terminal."""
    first, second = ablation.kind.arms
    table = Table(title=Text(f"{ablation.name}: {ablation.kind.question}"), title_justify="left")
    for column in ("held-out tasks", first, second, "difference", "95 %, seeds and tasks", "by seed"):
        table.add_column(column, justify="left" if column == "held-out tasks" else "right")
    for found in ablation.differences:
        table.add_row(
            f"{MEASURES[found.measure]} ({found.num_tasks} × {len(found.by_seed)})",
            *(f"{mean:.1%}" for mean in found.means),
            _shown(found),
            "{:+.1f} to {:+.1f}".format(*(100 * end for end in found.ci95)),
            ", ".join(f"{100 * value:+.1f}" for value in found.by_seed.values()),
        )
    for run, failed in ablation.unsound.items():
        table.add_row(Text(f"{run}: audit failed", style="bold red"), "", "", ", ".join(failed), "", "")
    return table


def write_ablation(out: Path, ablation: Ablation) -> Path:
    """Write `NAME.json`, `NAME.md` and `NAME.svg` into the directory `out`; returns the page's path."""
    page = out / f"{ablation.name}.md"
    (out / f"{ablation.name}.svg").write_text(draw(ablation), encoding="utf-8")
    page.write_text(f"{to_markdown(ablation)}\n![{ablation.name}]({ablation.name}.svg)\n", encoding="utf-8")
    (out / f"{ablation.name}.json").write_text(json.dumps(as_json(ablation), indent=2) + "\n", encoding="utf-8")
    return page


def draw(ablation: Ablation) -> str:
    """An SVG: on the left the training curves of both arms, on the right the differences with their intervals."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("the picture needs a package: pip install 't1[report]'") from None
    style: Any = {"svg.hashsalt": ablation.name, "font.family": "sans-serif", "text.color": INK, "axes.edgecolor": LINE}
    style |= {"xtick.color": MUTED, "ytick.color": MUTED, "axes.labelcolor": MUTED, "grid.color": LINE}
    with rc_context(style):
        figure = Figure(figsize=(9.0, 2.9), layout="constrained", facecolor="white")
        curves, forest = figure.subplots(1, 2, width_ratios=(1.1, 1))
        for axes in (curves, forest):
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8, length=3)
            axes.set_axisbelow(True)
        _draw_curves(curves, ablation)
        _draw_differences(forest, ablation.differences)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _draw_curves(axes: Any, ablation: Ablation) -> None:
    """A thin line a run, a thick one for the mean over seeds of the steps that all runs have."""
    for index, (arm, color) in enumerate(zip(ablation.kind.arms, (FIRST, SECOND), strict=True)):
        curves = [_curve(pair[index].steps) for pair in ablation.pairs]
        for values in curves:
            axes.plot(moving_average(values, 3), color=color, alpha=0.35, linewidth=0.9)
        shared = min(map(len, curves), default=0)
        mean = [sum(values[i] for values in curves) / len(curves) for i in range(shared)]
        if mean:
            smooth = moving_average(mean, 3)
            axes.plot(smooth, color=color, linewidth=2.2, label=arm)
    axes.set_xlabel("PPO step", fontsize=8)
    axes.set_title("passed assertions of training rollouts", fontsize=9, loc="left", color=INK)
    axes.legend(fontsize=8, frameon=False, loc="best", labelcolor=INK)
    axes.grid(axis="y", linewidth=0.6)
    axes.locator_params(axis="x", integer=True, nbins=6)


def _curve(steps: Sequence[Any]) -> list[float]:
    """The drawn metric of a run's steps."""
    return [float(step[CURVE]) for step in steps if isinstance(step.get(CURVE), (int, float))]


def _draw_differences(axes: Any, differences: Sequence[Difference]) -> None:
    """A row a measure: the difference, its wide and its narrow interval, a dot a seed."""
    axes.axvline(0, color=MUTED, linewidth=0.8)
    for row, found in enumerate(differences):
        axes.hlines(row, *(100 * end for end in found.ci95), color=SECOND, linewidth=1.6)
        axes.hlines(row, *(100 * end for end in found.ci95_tasks), color=SECOND, linewidth=4.5, alpha=0.45)
        axes.plot([100 * found.difference], [row], "o", color=SECOND, markersize=6)
        dots = [100 * value for value in found.by_seed.values()]
        axes.plot(dots, [row + 0.22] * len(dots), "|", color=MUTED, markersize=8)
    axes.set_yticks(range(len(differences)), [MEASURES[d.measure] for d in differences], fontsize=9)
    axes.set_ylim(len(differences) - 0.4, -0.6)
    axes.set_xlabel("points on held-out tasks", fontsize=8)
    axes.set_title("difference, 95 % (thick: over tasks alone)", fontsize=9, loc="left", color=INK)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="x", linewidth=0.6)
