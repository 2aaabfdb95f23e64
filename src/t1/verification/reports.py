"""What verifiers write, parsed at the border: CTRF reports and reward files.

Boundary: bytes in, assertions or a number out. A report that does not parse is a ValueError here; what that means for
the verdict is decided in `verifier.py`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from t1.types import AssertionResult, AssertionStatus

MAX_MESSAGE = 2000


class _Test(BaseModel):
    """One entry of CTRF's `results.tests`; other writers' extra keys are welcome."""

    model_config = ConfigDict(extra="allow")

    name: str
    status: Literal["passed", "failed", "skipped", "pending", "other"]
    message: str | None = None
    rawStatus: str | None = None  # noqa: N815 (CTRF's spelling)


class _Results(BaseModel):
    model_config = ConfigDict(extra="allow")

    tests: list[_Test]


class _Report(BaseModel):
    model_config = ConfigDict(extra="allow")

    results: _Results


def parse_ctrf(report: bytes) -> tuple[AssertionResult, ...]:
    """The assertions of a CTRF report, duplicates kept apart by a number. ValueError says what is wrong with it."""
    try:
        tests = _Report.model_validate_json(report).results.tests
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else str(first["msg"])) from error
    if not tests:
        raise ValueError("results.tests: lists no test")
    return tuple(
        AssertionResult(name, _status(test), (test.message or "")[:MAX_MESSAGE])
        for name, test in zip(_distinct(test.name for test in tests), tests, strict=True)
    )


def _status(test: _Test) -> AssertionStatus:
    """CTRF's status, folded: only passed is passed."""
    if test.status == "passed":
        return AssertionStatus.PASSED
    if test.status == "failed":
        return AssertionStatus.ERROR if (test.rawStatus or "").lower() == "error" else AssertionStatus.FAILED
    return AssertionStatus.SKIPPED


def _distinct(names: Iterable[str]) -> list[str]:
    """Names, with ` #2`, ` #3` … behind those that came before."""
    seen: Counter[str] = Counter()
    distinct = []
    for name in names:
        seen[name] += 1
        distinct.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return distinct


def parse_reward(text: bytes, *, is_json: bool) -> float:
    """The number in reward.txt or reward.json (a number, or `{"reward": number}`), finite and within [0, 1]."""
    try:
        decoded = text.decode("utf-8")
        value = json.loads(decoded) if is_json else float(decoded)
    except ValueError as error:
        raise ValueError(f"not a number: {text[:80]!r}") from error
    if isinstance(value, dict):
        value = value.get("reward")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a number or an object with `reward`, got {text[:80]!r}")
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise ValueError(f"expected a number within [0, 1], got {value}")
    return float(value)
