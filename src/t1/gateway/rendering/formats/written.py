"""JSON read for where its parts stand, so that arguments are kept as they were written."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

_SPACE = re.compile(r"[ \t\n\r]*")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def value_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at `start`, and where it ends. Raises ValueError where there is none."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError as error:
        raise ValueError("JSON is nested too deeply") from error
    return value, end


def members_at(text: str, start: int) -> tuple[dict[str, str], int]:
    """The members of the object that begins at `start`, each value as it was written, and where the object ends.

    Raises ValueError where there is no object.
    """
    position = _skip(text, start)
    if text[position : position + 1] != "{":
        raise ValueError("no JSON object")
    _, end = value_at(text, position)
    members: dict[str, str] = {}
    position = _skip(text, position + 1)
    while text[position] != "}":
        # The object was read as a whole above: from here on its shape is certain.
        key, position = value_at(text, position)
        begin = _skip(text, _skip(text, position) + 1)
        _, position = value_at(text, begin)
        members[key] = text[begin:position]
        position = _skip(text, position)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return members, end


def object_text(text: str) -> str | None:
    """`text` without the space around it where it is a JSON object, else None."""
    try:
        value, end = value_at(text, _skip(text, 0))
    except ValueError:
        return None
    return text.strip(" \t\n\r") if isinstance(value, dict) and _skip(text, end) == len(text) else None


def _skip(text: str, position: int) -> int:
    """Past the space at `position`."""
    match = _SPACE.match(text, position)
    return match.end() if match else position
