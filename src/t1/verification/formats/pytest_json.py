"""The JSON of pytest-json-report (`pytest --json-report`)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from t1.types import AssertionResult, AssertionStatus
from t1.verification.formats.assertions import Found, collect, read_model


class _Crash(BaseModel):
    model_config = ConfigDict(extra="allow")

    message: str = ""


class _Phase(BaseModel):
    model_config = ConfigDict(extra="allow")

    crash: _Crash | None = None


class _Test(BaseModel):
    model_config = ConfigDict(extra="allow")

    nodeid: str
    outcome: Literal["passed", "failed", "error", "skipped", "xfailed", "xpassed", "rerun"]
    call: _Phase | None = None
    setup: _Phase | None = None


class _Collector(BaseModel):
    model_config = ConfigDict(extra="allow")

    nodeid: str
    outcome: str


class _Report(BaseModel):
    model_config = ConfigDict(extra="allow")

    exitcode: int
    tests: list[_Test]
    collectors: list[_Collector] = []


_STATUS = {"passed": AssertionStatus.PASSED, "failed": AssertionStatus.FAILED, "error": AssertionStatus.ERROR}
"""Everything else (skipped, expected failures, whatever was run again) is not passed and not failed."""


def parse_pytest_json(report: bytes) -> tuple[AssertionResult, ...]:
    """The tests of the report, and an error for every file that could not be collected."""
    read = read_model(_Report, report)
    found = [(test.nodeid, _STATUS.get(test.outcome, AssertionStatus.SKIPPED), _message(test)) for test in read.tests]
    broken: list[Found] = [
        (collector.nodeid or "collection", AssertionStatus.ERROR, "could not be collected")
        for collector in read.collectors
        if collector.outcome not in ("passed", "skipped")
    ]
    return collect(found + broken)


def _message(test: _Test) -> str:
    """Why a test did not pass."""
    crashes = [
        phase.crash.message for phase in (test.setup, test.call) if phase is not None and phase.crash is not None
    ]
    return crashes[0] if crashes else ""
