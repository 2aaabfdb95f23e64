"""Writes docs/configuration.md from the configuration's own descriptions: `python docs/configuration.py`."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel

from t1.config import RunConfig

HEAD = """# Configuration

One TOML file, and `section.key=value` on the command line on top of it: `t1 train configs/quickstart.toml ppo.lr=1e-4`.
An unknown key is refused with the nearest right one. The defaults are those of the quickstart. A run keeps what it ran
with in `RUN/config.toml`; a resume may change neither what rewards mean nor the tasks.

This page is written by `make docs` from the descriptions in the code.
"""


def section(model: type[BaseModel], prefix: str) -> list[str]:
    """The rows of a section, and the sections inside it."""
    lines = [f"\n## `[{prefix}]`\n", *([" ".join((model.__doc__ or "").split()), ""]), "| key | type | default | |"]
    lines.append("|---|---|---|---|")
    inner = []
    defaults = model()
    for name, field in model.model_fields.items():
        value = getattr(defaults, name)
        if isinstance(value, BaseModel):
            inner += section(type(value), f"{prefix}.{name}")
            continue
        kind = field.annotation.__name__ if isinstance(field.annotation, type) else str(field.annotation)
        kind = re.sub(r"typing\.|Literal", "", kind).strip("[]").replace("', '", "' or '").replace("|", "or")
        shown = "not set" if value is None else f"`{value!r}`".replace("'", '"')
        note = " ".join((field.description or "").split())
        lines.append(f"| `{name}` | {kind} | {shown} | {note} |")
    return lines + inner


def page() -> str:
    """The whole page."""
    lines = [HEAD.strip()]
    for name in RunConfig.model_fields:
        lines += section(type(getattr(RunConfig(), name)), name)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "configuration.md").write_text(page(), encoding="utf-8")
