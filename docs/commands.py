"""Writes docs/commands.md from the command line's own options: `python docs/commands.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import typer

from t1.cli import app

HEAD = """# Commands

Where its usage says `CONFIG.toml|section.key=value`, a command takes a configuration file and single values on top
of it ([configuration.md](configuration.md) lists every key). `t1 COMMAND --help` prints what stands here.

Exit codes: 0 done · 1 done, and what was asked about is not well (`audit`, `verdict`, `doctor`, `tasks check`) · 2 a
mistake that the person can fix, said in one line · 3 the infrastructure failed · 130 interrupted; a run that had begun
goes on with `t1 train --resume RUN`.

This page is written by `make docs` from the options in the code.
"""
NAMES = {"Path": "path", "int": "integer", "float": "number", "str": "text"}


def leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(name, command) of every command below a group, in the order of its help."""
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from leaves(below, f"{path} {name}")
    else:
        yield path, command


def section(path: str, command: Any) -> list[str]:
    """One command: what it does, its usage, its options."""
    told = re.sub(r"\*\*(t1 [^*]+)\*\*", r"`\1`", (command.help or "").strip())
    paragraphs = re.split(r"\n\s*\n", told)
    shown = [param for param in command.params if not param.hidden]
    arguments = [param for param in shown if is_argument(param)]
    usage = " ".join([path, "[OPTIONS]", *map(usage_of, arguments)])
    lines = [f"\n## `{path}`\n", f"    {usage}\n", *(f"{' '.join(text.split())}\n" for text in paragraphs)]
    rows = [row(param) for param in shown]
    return [*lines, "| | | default | |", "|---|---|---|---|", *rows] if rows else lines


def is_argument(param: Any) -> bool:
    """True for what is given by its place."""
    return not param.opts[0].startswith("-")


def usage_of(argument: Any) -> str:
    """An argument in a usage line."""
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]{'…' if argument.nargs == -1 else ''}"


def row(param: Any) -> str:
    """An option or argument as a row of the table."""
    names = " ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
    if is_argument(param):
        names = f"`{param.metavar or param.name.upper()}`".replace("|", "\\|")
    default = param.default
    shown = "" if default is None or default is False or callable(default) else f"`{default}`"
    required = "required" if param.required else shown
    note = " ".join((param.help or "").split()).replace("|", "\\|")
    return f"| {names} | {kind(param)} | {required} | {note} |"


def kind(param: Any) -> str:
    """What the value is, and its bounds."""
    if getattr(param, "is_flag", False):
        return "flag"
    annotation = param.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        annotation = Literal[tuple(member.value for member in annotation)]
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    several = text.startswith("list") or param.multiple or param.nargs == -1
    text = re.sub(r"\w+\.", "", re.sub(r"^list\[(.*)\]$", r"\1", text))
    text = re.sub(r"Literal\[(.*)\]", lambda found: found[1].replace(", ", " or ").replace("'", "`"), text)
    low, high = getattr(param, "min", None), getattr(param, "max", None)
    bounds = (
        ""
        if low is None and high is None
        else f" {'' if low is None else f'{low:g}'}…{'' if high is None else f'{high:g}'}"
    )
    return f"{NAMES.get(text, text)}{bounds}{', repeatable' if several else ''}".replace("|", "\\|")


def page() -> str:
    """The whole page."""
    lines = [HEAD.strip()]
    for path, command in leaves(typer.main.get_command(app), "t1"):
        lines += section(path, command)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "commands.md").write_text(page(), encoding="utf-8")
