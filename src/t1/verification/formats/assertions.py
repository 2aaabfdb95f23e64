"""What all formats share: bounded names and messages, duplicates kept apart, one line for what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from t1.types import AssertionResult, AssertionStatus

MAX_MESSAGE = 2000
MAX_NAME = 500
MAX_ASSERTIONS = 100_000

Model = TypeVar("Model", bound=BaseModel)
Found = tuple[str, AssertionStatus, str]
"""Name, status, message, as a report has them."""


def read_model(kind: type[Model], report: bytes) -> Model:
    """The report as `kind`. ValueError names the first place that is wrong."""
    try:
        return kind.model_validate_json(report)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else str(first["msg"])) from error


def collect(found: Sequence[Found]) -> tuple[AssertionResult, ...]:
    """The results, names apart and texts bounded. ValueError where there are none, or too many to believe."""
    if not found:
        raise ValueError("lists no test")
    if len(found) > MAX_ASSERTIONS:
        raise ValueError(f"lists {len(found)} tests, more than {MAX_ASSERTIONS}")
    names = distinct(name[:MAX_NAME] for name, _, _ in found)
    return tuple(
        AssertionResult(name, status, message[:MAX_MESSAGE])
        for name, (_, status, message) in zip(names, found, strict=True)
    )


def distinct(names: Iterable[str]) -> list[str]:
    """Names, with ` #2`, ` #3` … behind those that came before; never one that another test has already."""
    seen: Counter[str] = Counter()
    taken: set[str] = set()
    apart = []
    for name in names:
        seen[name] += 1
        chosen = name if seen[name] == 1 else f"{name} #{seen[name]}"
        while chosen in taken:
            seen[name] += 1
            chosen = f"{name} #{seen[name]}"
        taken.add(chosen)
        apart.append(chosen)
    return apart
