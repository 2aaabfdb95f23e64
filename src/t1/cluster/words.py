"""What a process says on its standard error: kept in a file, and quoted from its end when the process is lost."""

from __future__ import annotations

from pathlib import Path

QUOTED_LINES, QUOTED_BYTES = 20, 4000


def log_path(logs: Path, name: str) -> Path:
    """Where the process of this name writes."""
    return logs / f"{name}.log"


def tail(path: Path) -> str:
    """The last lines of a log; empty where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - QUOTED_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-QUOTED_LINES:])


def quoted(words: str) -> str:
    """The end of an error message that quotes them; empty without any."""
    return f". It last wrote:\n{words}" if words else ""
