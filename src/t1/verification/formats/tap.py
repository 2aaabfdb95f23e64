"""TAP, the test anything protocol, versions 12 to 14: top-level tests; subtests are counted by their summary line."""

from __future__ import annotations

import re

from t1.types import AssertionResult, AssertionStatus
from t1.verification.formats.assertions import MAX_ASSERTIONS, Found, collect

_TEST = re.compile(r"(not )?ok\b\s*(\d{1,9})?\s*(?:- )?([^#]*)(?:#\s*(\S+)\s*(.*))?")
_PLAN = re.compile(r"1\.\.(\d{1,9})\b\s*(?:#\s*skip\b(.*))?", re.IGNORECASE)


def parse_tap(report: bytes) -> tuple[AssertionResult, ...]:
    """The tests; planned ones that never came are errors, and so is a bail-out. ValueError without any test line."""
    found: list[Found] = []
    planned: int | None = None
    for line in report.decode("utf-8", "replace").splitlines():
        if line.startswith("Bail out!"):
            found.append(("bail out", AssertionStatus.ERROR, line[9:].strip()))
            break
        if plan := _PLAN.match(line):
            planned = int(plan[1])
        elif test := _TEST.match(line):
            found.append(_found(test, len(found) + 1))
    if not found:
        raise ValueError("has no line `ok` or `not ok`")
    if planned is not None and planned > MAX_ASSERTIONS:
        raise ValueError(f"plans {planned} tests, more than {MAX_ASSERTIONS}")
    missing = range(len(found) + 1, (planned or 0) + 1)
    return collect(found + [(f"test {i}", AssertionStatus.ERROR, "planned, but it never ran") for i in missing])


def _found(test: re.Match[str], number: int) -> Found:
    """One test line; TODO and SKIP are not passed."""
    failed, given, description, directive, reason = test.groups()
    name = description.strip() or f"test {given or number}"
    if (directive or "").upper().startswith(("SKIP", "TODO")):
        return name, AssertionStatus.SKIPPED, (reason or "").strip()
    return name, AssertionStatus.FAILED if failed else AssertionStatus.PASSED, ""
