"""`t1 verdict`: can the numbers of a run be trusted?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def verdict(
    run: Annotated[Path, typer.Argument(help="A run directory, finished or under way.")],
    rule: Annotated[str | None, typer.Option(help="Only this rule, with its single cases.", show_default=False)] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on a warning too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Judge a run: drift, residual, gap, routing, fallbacks, tampering, bias, failures, value fit, contamination …

    Each rule passes, warns or fails, with its number, the command that shows it again and the place to look.
    Exit code 1 when a rule fails. Needs no torch.

    Example: **t1 verdict runs/quickstart** · **t1 verdict runs/quickstart --rule tampering**
    """
    from rich.console import Console

    from t1.evaluation.rules import Grade
    from t1.evaluation.verdict import judge, verdict_table

    found = judge(run, rule=rule)
    if as_json:
        typer.echo(json.dumps(found.as_dict()))
    else:
        Console().print(verdict_table(found.as_dict(), details=rule is not None))
    raise typer.Exit(1 if strict and found.grade is Grade.WARN else found.exit_code)
