"""`t1 view`: a local web page over a run."""

from __future__ import annotations

import asyncio
import contextlib
import webbrowser
from pathlib import Path
from typing import Annotated

import typer


def view(
    run: Annotated[Path, typer.Argument(help="A run directory, or a directory that holds runs.")] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 = any free one.")] = 8480,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Look at runs in the browser: curves, steps, every rollout turn by turn and token by token. Until Ctrl-C.

    Reads only, and answers only this machine.

    Example: **t1 view runs/quickstart --open**
    """
    from t1.viewer import find_runs, serve

    runs = find_runs(run)

    def ready(url: str) -> None:
        typer.echo(f"{url}  {', '.join(list(runs)[:5])}{' …' if len(runs) > 5 else ''} (Ctrl-C stops it)")
        if open_browser:
            webbrowser.open(url)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(runs, port, ready))
