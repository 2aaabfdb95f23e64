"""`t1 audit`: check every stored trajectory of a run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def audit(
    run: Annotated[Path, typer.Argument(help="A run directory, or its rollouts.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Audit what a run trained on, from the raw turns: drift, residual, masks, log-probabilities, routing, versions.

    Exit code 1 when there is a finding of severity error. Needs no torch.

    Example: **t1 audit runs/quickstart**
    """
    from t1.training.offline_audit import audit_run

    report = audit_run(run)
    typer.echo(json.dumps(report.as_dict()) if as_json else report)
    raise typer.Exit(report.exit_code)
