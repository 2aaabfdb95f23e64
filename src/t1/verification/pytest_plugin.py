"""A pytest plug-in for verifiers: every `assert` inside a test becomes an assertion of a CTRF report.

    python3 -m pytest -p t1_pytest -o enable_assertion_pass_hook=true --assert-report /logs/verifier/ctrf.json /tests

Copy this file as t1_pytest.py to where the verifier's Python finds it. One line of a test is one assertion, however
often it runs: it passed when it never failed. A test without asserts counts as one. Boundary: imports nothing of T1;
needs pytest 8.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

WRITE_EVERY_S = 0.5
MAX_TEXT = 300


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--assert-report FILE`"""
    group = parser.getgroup("t1")
    group.addoption("--assert-report", metavar="FILE", help="write every assert as an assertion of this CTRF report")


def pytest_configure(config: pytest.Config) -> None:
    """Begin where a report is asked for."""
    path = config.getoption("--assert-report")
    if path:
        if not config.getini("enable_assertion_pass_hook"):
            raise pytest.UsageError("--assert-report needs -o enable_assertion_pass_hook=true")
        config.pluginmanager.register(AssertReport(path), "t1-assert-report")


class AssertReport:
    """Collects what the hooks say, and writes it now and then, so that a run that is cut off leaves what had passed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._asserts: dict[str, dict[str, dict[str, str]]] = {}
        """Of every test: name of an assertion → its entry in the report."""
        self._written = 0.0

    def pytest_assertion_pass(self, item: pytest.Item, lineno: int, orig: str, expl: str) -> None:
        """An assert held."""
        name = f"{item.nodeid}:{lineno} {orig[:MAX_TEXT]}"
        self._test(item.nodeid).setdefault(f"{lineno} {orig}", {"name": name, "status": "passed"})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be collected has failed as a whole."""
        if report.failed:
            self._test(report.nodeid)["collection"] = _entry(f"{report.nodeid}: collection", "error", report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test is over."""
        found = self._test(report.nodeid)
        if hasattr(report, "wasxfail") or report.skipped:
            found.clear()
            found["test"] = _entry(report.nodeid, "skipped", report)
        elif report.failed:
            self._failed(report, found)
        elif report.when == "call" and not found:
            found["test"] = _entry(report.nodeid, "passed", report)
        if report.when == "teardown" and time.monotonic() - self._written > WRITE_EVERY_S:
            self._write()

    def _failed(self, report: pytest.TestReport, found: dict[str, dict[str, str]]) -> None:
        """The line that failed takes the place of its own passes; anything else is an error of the phase."""
        crash = getattr(report.longrepr, "reprcrash", None)
        if report.when != "call" or crash is None:
            found[str(report.when)] = _entry(f"{report.nodeid}: {report.when}", "error", report)
            return
        for key in [key for key in found if key.startswith(f"{crash.lineno} ")]:
            del found[key]
        found[f"{crash.lineno} failed"] = _entry(f"{report.nodeid}:{crash.lineno}", "failed", report)

    def pytest_sessionfinish(self) -> None:
        """The last word."""
        self._write()

    def _test(self, nodeid: str) -> dict[str, dict[str, str]]:
        return self._asserts.setdefault(nodeid, {})

    def _write(self) -> None:
        """Replace the report in one step."""
        tests = [entry for found in self._asserts.values() for entry in found.values()]
        report = {"results": {"tool": {"name": "t1-pytest"}, "summary": {"tests": len(tests)}, "tests": tests}}
        partial = f"{self._path}.partial"
        with open(partial, "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(report, file)
        os.replace(partial, self._path)  # noqa: PTH105
        self._written = time.monotonic()


def _entry(name: str, status: str, report: Any) -> dict[str, str]:
    """An entry of the report."""
    if status == "error":
        return {"name": name, "status": "failed", "rawStatus": "error", "message": str(report.longrepr)[:MAX_TEXT]}
    message = "" if status == "passed" else str(report.longrepr)[-MAX_TEXT:]
    return {"name": name, "status": status, "message": message}
