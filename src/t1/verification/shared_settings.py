"""pytest's sections in files that other tools share: pyproject.toml, setup.cfg, tox.ini.

The file is the agent's work, what pytest reads in it is the image's. Boundary: text in, text out.
"""

from __future__ import annotations

import re
import tomllib

NAMES = ("pyproject.toml", "setup.cfg", "tox.ini")
_SECTION = re.compile(
    r"^[ \t]*\[[ \t]*(?:\"?tool\"?[.:]\"?pytest|pytest)\b[^\n]*\n?(?:(?![ \t]*\[)[^\n]*(?:\n|\Z))*",
    re.MULTILINE,
)


def sections(content: bytes) -> str:
    """What pytest would read, as text."""
    return "".join(_SECTION.findall(content.decode("utf-8", "replace")))


def with_sections_of(name: str, content: bytes, original: bytes | None) -> bytes | None:
    """`content` with the original's sections of pytest in place of its own; None where they cannot be told apart."""
    kept = sections(original or b"")
    text = _SECTION.sub("", content.decode("utf-8", "surrogateescape"))
    if name == "pyproject.toml" and _configures_pytest(text):
        return None
    whole = text if not kept else f"{text.rstrip()}\n\n{kept}"
    return whole.encode("utf-8", "surrogateescape")


def concerns_pytest(name: str, content: bytes) -> bool:
    """True when pytest would read something in a file of this name."""
    text = content.decode("utf-8", "replace")
    return _SECTION.search(text) is not None or (name == "pyproject.toml" and _configures_pytest(text))


def _configures_pytest(text: str) -> bool:
    """True for TOML in which pytest finds its table, however that is spelled."""
    try:
        tool = tomllib.loads(text).get("tool", {})
    except (tomllib.TOMLDecodeError, RecursionError):
        return False  # pytest stops at it, whatever it says
    return isinstance(tool, dict) and "pytest" in tool
