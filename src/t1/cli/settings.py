"""What commands share: `[CONFIG.toml] [section.key=value]…` on the command line, and where things are printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from t1.errors import ConfigError

if TYPE_CHECKING:
    from t1.config import RunConfig
    from t1.tasks import Suite

Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CONFIG.toml|section.key=value",
        help="A configuration file, and single values that win over it.",
        show_default=False,
    ),
]


Trackers = Annotated[
    list[str] | None,
    typer.Option(
        "--tracker", help="tensorboard, wandb, trackio or mlflow, beside metrics.jsonl; repeatable.", show_default=False
    ),
]


def with_trackers(settings: Sequence[str] | None, kinds: Sequence[str] | None) -> list[str] | None:
    """The settings, and the trackers that `--tracker` names."""
    return [*(settings or ()), f"tracker.also={json.dumps(list(kinds))}"] if kinds else list(settings or ()) or None


def read_settings(settings: Sequence[str] | None, base: Path | None = None) -> RunConfig:
    """The configuration that the words on the command line ask for; `base` is the file where none is named."""
    from t1.config import load_config

    path, overrides = split_settings(settings or ())
    return load_config(path or base, overrides)


def split_settings(settings: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The configuration file, if one is named, and the overrides."""
    files = [word for word in settings if "=" not in word]
    if len(files) > 1:
        raise ConfigError(f"command line: one configuration file, please, not {' and '.join(files)}")
    return (Path(files[0]) if files else None), [word for word in settings if "=" in word]


def tasks_of(config: RunConfig) -> Suite:
    """The suite that the configuration names."""
    if not config.tasks.path:
        raise ConfigError(
            "tasks.path is not set: make a suite with `t1 tasks make suites/basics`, then add tasks.path=suites/basics"
        )
    from t1.tasks import read_suite

    return read_suite(Path(config.tasks.path))
