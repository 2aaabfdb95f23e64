"""The results of an evaluation as people read them: Markdown, and the same rows for the terminal.

Boundary: takes what results.json holds, returns text. Names of tasks and policies are foreign text: in tables they
cannot open markup.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from t1.evaluation.attempts import Paired
from t1.evaluation.benchmarks import BENCHMARKS, Published

MAX_TASKS = 30
"""Changed tasks that a comparison spells out on either side."""
NUMBERS = (
    ("own_reward", "verifier's own reward", "{:.3f}"),
    ("passed_assertions", "passed assertions", "{:.2f}"),
    ("passed_share", "share of assertions passed", "{:.1%}"),
    ("turns", "turns", "{:.1f}"),
    ("timed_out", "timed out", "{:.1%}"),
    ("tokens_in", "prompt tokens", "{:,.0f}"),
    ("tokens_cached", "of them cached", "{:,.0f}"),
    ("tokens_out", "sampled tokens", "{:,.0f}"),
    ("wall_s", "wall seconds", "{:.1f}"),
    ("engine_s", "engine seconds", "{:.2f}"),
    ("sandbox_s", "seconds in commands", "{:.2f}"),
    ("verifier_s", "verifier seconds", "{:.2f}"),
)
"""Key of the summary, heading, format; all are means over an attempt."""


def score_rows(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(what, value, 95 % interval) of every number, in the order of display."""
    rows = []
    for key, sign in (("pass_at", "pass@{}"), ("pass_hat", "pass^{}")):
        for k, value in summary[key].items():
            if value is not None and not (key == "pass_hat" and k == "1"):
                tasks = "" if value["num_tasks"] == summary["num_tasks"] else f" ({value['num_tasks']} tasks)"
                rows.append((sign.format(k) + tasks, f"{value['mean']:.1%}", _interval(value["ci95"], "{:.1%}")))
    for key, title, form in NUMBERS:
        if (value := summary.get(key)) is not None:
            rows.append((title, form.format(value["mean"]), _interval(value["ci95"], form)))
    each = summary["money_per_solve"]
    rows.append(("cost in all", f"{summary['money']:.4g}", "" if each is None else f"{each:.4g} a solve"))
    return rows


def results_table(results: Mapping[str, Any]) -> Table:
    """The summary for the terminal."""
    conditions, summary = results["conditions"], results["summary"]
    table = Table(title=Text(f"{conditions['policy']} · {conditions['harness']}"), title_justify="left")
    table.add_column(f"{summary['num_tasks']} tasks, {summary['num_attempts']} attempts", style="bold")
    table.add_column("", justify="right")
    table.add_column("95 % interval", justify="right")
    for row in score_rows(summary):
        table.add_row(*row)
    lost, unscored = sum(summary["failures"].values()), len(summary["unscored_tasks"])
    if lost:
        table.caption = (
            f"{lost} attempts were spoiled by the infrastructure and have no score; {unscored} tasks have none"
        )
        table.caption_justify = "left"
    return table


def results_markdown(
    results: Mapping[str, Any], *, published: Sequence[Published] = (), against: Mapping[str, Any] | None = None
) -> str:
    """results.md: conditions, scores, failures apart from them, the comparison, and published scores apart again."""
    conditions, summary = results["conditions"], results["summary"]
    parts = [f"# {_cell(conditions['policy'])} on {_cell(conditions['tasks'])}", _conditions(conditions)]
    parts.append(_table(("measured", "value", "95 % interval"), score_rows(summary)))
    stops = [(stop, f"{count}") for stop, count in summary["stops"].items()]
    parts += ["## How attempts ended", _table(("stop", "attempts"), stops)]
    failures = [(kind, f"{count}") for kind, count in summary["failures"].items()]
    parts.append("## Infrastructure failures, which are no scores")
    parts.append(_table(("kind", "attempts"), failures) if failures else "None.")
    if summary["unscored_tasks"]:
        parts.append("Without any score: " + ", ".join(map(_cell, summary["unscored_tasks"])))
    parts.append("## Was it trained on these tasks?")
    parts.append(exposure_text(results.get("exposure")))
    if against is not None:
        parts.append(_comparison(against))
    if published:
        rows = [
            (p.policy, f"{p.score:.1%}", p.harness, "–" if p.turns is None else f"{p.turns:.1f}", p.source)
            for p in published
        ]
        heading = {"solved": "tasks solved", "reward": "average reward"}[BENCHMARKS[published[0].benchmark].metric]
        parts.append("## Published by others, not measured here")
        parts.append(_table(("policy", heading, "harness", "turns", "source"), rows))
    return "\n\n".join(parts) + "\n"


def comparison(pair: Paired, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """A paired comparison as JSON has it, with what else differed between the two evaluations."""
    keys = [key for key in after if not key.startswith("policy") and before.get(key) != after[key]]
    return {
        "before": before["policy"],
        "after": after["policy"],
        "num_tasks": pair.num_tasks,
        "difference": pair.difference,
        "ci95": list(pair.ci95),
        "mcnemar_p": pair.mcnemar_p,
        "permutation_p": pair.permutation_p,
        "gained": list(pair.gained),
        "lost": list(pair.lost),
        "also_differs": {key: [before.get(key), after[key]] for key in keys},
    }


def comparison_text(found: Mapping[str, Any]) -> str:
    """A comparison in one sentence."""
    mcnemar = "" if found["mcnemar_p"] is None else f"McNemar p = {found['mcnemar_p']:.2g}, "
    low, high = found["ci95"]
    return (
        f"{100 * found['difference']:+.1f} points over {found['before']} on {found['num_tasks']} shared tasks "
        f"(95 %: {100 * low:+.1f} to {100 * high:+.1f}), {mcnemar}permutation p = {found['permutation_p']:.2g}; "
        f"{len(found['gained'])} tasks gained, {len(found['lost'])} lost"
    )


def exposure_text(found: Mapping[str, Any] | None) -> str:
    """What is known of the policy's training on the evaluated tasks, in a sentence."""
    if found is None:
        return "Not checked: `--trained` names the run, or the tasks, that the policy was trained on."
    known = (
        f"{len(found['seen'])} of {found['num_tasks']} tasks are among the {found['num_trained']} of {found['trained']}"
    )
    cases = [f"{task}: {how}" for task, how in found["seen"][:MAX_TASKS]]
    return _cell(known + (" (files, instructions, first prompts): " + "; ".join(cases) if cases else "")) + "."


def _comparison(found: Mapping[str, Any]) -> str:
    lines = ["## Against the earlier evaluation", _cell(comparison_text(found)) + "."]
    if found["also_differs"]:
        lines.append("**Not only the policy differs:** " + ", ".join(map(_cell, found["also_differs"])) + ".")
    for name in ("gained", "lost"):
        tasks = found[name]
        more = f" and {len(tasks) - MAX_TASKS} more" if len(tasks) > MAX_TASKS else ""
        lines.append(f"{name.capitalize()}: {', '.join(map(_cell, tasks[:MAX_TASKS])) or 'none'}{more}.")
    return "\n\n".join(lines)


def _conditions(conditions: Mapping[str, Any]) -> str:
    shown = [(key.replace("_", " "), _plain(value)) for key, value in conditions.items() if value not in ("", None)]
    return _table(("condition", ""), shown)


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(map(_cell, row)) + " |" for row in rows)])


def _cell(text: str) -> str:
    """Foreign text in Markdown: one line, and no markup of its own."""
    for sign in "\\`*_[]<>|":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def _interval(ends: Sequence[float], form: str) -> str:
    return f"{form.format(ends[0])} – {form.format(ends[1])}"
