"""`t1 tasks audit`: what must not be trained on, in any set of tasks in Harbor's format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from t1.synthesis.attacks import Attacks
    from t1.synthesis.audit import AuditReport, Judge


def audit_tasks(
    path: Annotated[Path, typer.Argument(help="A task directory, or a directory of them, however deep.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a task, then one of the whole.")] = False,
    static: Annotated[bool, typer.Option("--static", help="Only read the tasks; run nothing.")] = False,
    labelled: Annotated[
        bool, typer.Option("--labelled", help="Compare with labels.json beside the tasks: precision and recall.")
    ] = False,
    each_attack: Annotated[
        bool, typer.Option("--each-attack", help="The red team's attacks one by one, the costly ones too.")
    ] = False,
    at_once: Annotated[int, typer.Option(min=1, help="Tasks that are probed at once.")] = 2,
    sandboxes: Annotated[
        str, typer.Option(help="namespaces, or containers for tasks that need images.")
    ] = "namespaces",
    image: Annotated[str, typer.Option(help="With containers: what a task without an image starts from.")] = "",
    judge: Annotated[str, typer.Option(help="A judge model's endpoint, such as http://127.0.0.1:8000/v1.")] = "",
    judge_model: Annotated[str, typer.Option(help="The judge model's name.")] = "",
    judge_key: Annotated[str, typer.Option(envvar="T1_JUDGE_KEY", help="The endpoint's key.")] = "",
) -> None:
    """Audit tasks: hidden requirements, leaks, shortcuts and weak verifiers, each with its file and line, and a score.

    The judge's opinion is printed apart and rejects nothing. Exit code 1 when a task is rejected or broken.

    Example: **t1 tasks audit suites/basics** · **t1 tasks audit downloads/public --json > audit.jsonl**
    """
    import asyncio

    from t1.errors import UserError
    from t1.synthesis.attacks import Attacks
    from t1.synthesis.audit import Judge
    from t1.synthesis.audit.labels import figures, read_labels

    if bool(judge) != bool(judge_model):
        raise UserError("a judge needs both --judge URL and --judge-model NAME")
    asked = Judge(judge, judge_model, key=judge_key) if judge else None
    kind = "" if static else sandboxes
    labels = read_labels(path) if labelled else {}
    attacks = Attacks.EACH if each_attack else Attacks.VOLLEY
    reports = asyncio.run(_audit(path, kind, image, asked, at_once, as_json, attacks))
    summary = summarize(reports)
    if labelled:
        table = figures((labels[r.task], r) for r in reports if r.task in labels)
        typer.echo(json.dumps(table) if as_json else _measured(table))
        return
    typer.echo(json.dumps(summary) if as_json else _spoken(summary))
    raise typer.Exit(0 if summary["accepted"] == summary["tasks"] else 1)


async def _audit(
    path: Path, kind: str, image: str, judge: Judge | None, at_once: int, as_json: bool, attacks: Attacks
) -> list[AuditReport]:
    """Audit and print each report as soon as it is there."""
    from t1.sandboxes import make_provider
    from t1.synthesis.audit import audit_directory

    provider = make_provider(kind, image=image) if kind else None
    reports = []
    try:
        async for report in audit_directory(path, provider=provider, judge=judge, at_once=at_once, attacks=attacks):
            typer.echo(json.dumps(report.as_json()) if as_json else _lines(report))
            reports.append(report)
    finally:
        if provider is not None:
            await provider.close()
    return reports


def _measured(table: dict[str, dict[str, float | int]]) -> str:
    """Precision and recall, a kind a line."""
    return "\n".join(
        f"{kind:20} precision {row['precision']:.3f}  recall {row['recall']:.3f}  of {row['planted']}"
        for kind, row in table.items()
    )


def _lines(report: AuditReport) -> str:
    """A report as a person reads it."""
    lines = [f"{'✓' if report.accepted else '✗'} {report.task}  {report.score:.2f}"]
    lines += [f"    {reject}" for reject in report.rejects]
    lines += [f"    {report.problem}"] if report.problem else []
    if report.opinion is not None:
        said = report.opinion.error or f"{report.opinion.score:.2f}  {'; '.join(report.opinion.concerns)}"
        lines.append(f"    {report.opinion.model} says: {said}")
    return "\n".join(lines)


def summarize(reports: Iterable[AuditReport]) -> dict[str, float]:
    """The audit in numbers: tasks by kind of reject, what was accepted, what could not be read or run."""
    from t1.synthesis.audit import Kind

    some = list(reports)
    counts = {str(kind): float(sum(kind in report.kinds for report in some)) for kind in Kind}
    accepted = [report for report in some if report.accepted]
    return {
        "tasks": len(some),
        "accepted": len(accepted),
        "problems": sum(bool(report.problem) for report in some),
        **{name: int(count) for name, count in counts.items()},
        "mean_score": round(sum(report.score for report in accepted) / len(accepted), 4) if accepted else 0.0,
    }


def _spoken(summary: dict[str, float]) -> str:
    """The numbers as a sentence."""
    rest = {name: n for name, n in summary.items() if n and name not in ("tasks", "accepted", "mean_score")}
    found = ", ".join(f"{name} {n:g}" for name, n in rest.items())
    return f"{summary['accepted']:g} of {summary['tasks']:g} tasks are accepted" + (f" ({found})" if found else "")
