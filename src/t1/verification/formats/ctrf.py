"""CTRF, the common test report format: what `pytest-json-ctrf` and shell verifiers write."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from t1.types import AssertionResult, AssertionStatus
from t1.verification.formats.assertions import collect, read_model


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


_NOT_PASSED = ("xfailed", "xfail", "xpassed", "xpass")
"""pytest's outcomes that some writers fold into passed; the raw status tells."""


def parse_ctrf(report: bytes) -> tuple[AssertionResult, ...]:
    """The assertions of a CTRF report, duplicates kept apart by a number. ValueError says what is wrong with it."""
    tests = read_model(_Report, report).results.tests
    if not tests:
        raise ValueError("results.tests: lists no test")
    return collect([(test.name, _status(test), test.message or "") for test in tests])


def _status(test: _Test) -> AssertionStatus:
    """CTRF's status, folded: only passed is passed."""
    raw = (test.rawStatus or "").lower()
    if test.status == "passed":
        return AssertionStatus.SKIPPED if raw in _NOT_PASSED else AssertionStatus.PASSED
    if test.status == "failed":
        return AssertionStatus.ERROR if raw == "error" else AssertionStatus.FAILED
    return AssertionStatus.SKIPPED
