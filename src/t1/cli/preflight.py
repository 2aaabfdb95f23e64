"""`t1 doctor --engine`: the preflight of a running engine as a table."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from t1.cli.doctor import MARKS, State
from t1.errors import ConfigError
from t1.inference import preflight
from t1.inference.captures import ModelShape
from t1.inference.checkpoints import CheckpointWriter
from t1.inference.connect import EngineKind, connect, find_engine

STATES = {
    preflight.State.PASSED: State.FINE,
    preflight.State.SKIPPED: State.ABSENT,
    preflight.State.FAILED: State.BROKEN,
}


def examine(console: Console, url: str, kind: str | None, model: Path | None, weights_dir: Path | None) -> bool:
    """Print every check of the engine at `url`; whether none failed."""
    report = asyncio.run(_examine(url, kind, model, weights_dir))
    table = Table(box=None, show_header=False, padding=(0, 1), title=escape(url), title_justify="left")
    for check in report.checks:
        fix = f"\n[dim]→ {escape(check.fix)}[/]" if check.fix else ""
        table.add_row(MARKS[STATES[check.state]], escape(check.name), escape(check.found) + fix)
    console.print(table)
    console.print("\nFit to train from." if report.passed else "\nNot fit to train from.")
    return report.passed


async def _examine(
    url: str, kind: str | None, model: Path | None, weights_dir: Path | None
) -> preflight.PreflightReport:
    """The preflight, with a client of its own."""
    found, served, context = await find_engine(url)
    path = model if model is not None else Path(served)
    if not (path / "config.json").is_file():
        raise ConfigError(f"{url} serves {served!r}, which is no directory here: add --model PATH with its checkpoint")
    shape = ModelShape.from_pretrained(path)
    sampler = await connect(
        EngineKind(kind) if kind else found,
        [url],
        model=shape,
        max_context=context,
        checkpoints=CheckpointWriter(weights_dir, path) if weights_dir else None,
    )
    try:
        return await preflight.preflight(
            sampler,
            _reference(path),
            vocab_size=shape.vocab_size,
            routed=shape.num_layers > 0,
            publish=weights_dir is not None,
        )
    finally:
        await sampler.aclose()


def _reference(path: Path) -> preflight.Reference | None:
    """The trainer's model, where torch is installed; it is imported here and only here."""
    if importlib.util.find_spec("torch") is None:
        return None
    from t1.inference.models import load_model
    from t1.inference.reference import TransformersReference

    return TransformersReference(load_model(path))
