"""JUnit's XML as pytest, Maven, Go and others write it. No entity is ever expanded: a document type is refused."""

from __future__ import annotations

from xml.etree import ElementTree

from t1.types import AssertionResult, AssertionStatus
from t1.verification.formats.assertions import Found, collect

_STATUS = {
    "failure": AssertionStatus.FAILED,
    "error": AssertionStatus.ERROR,
    "skipped": AssertionStatus.SKIPPED,
    "rerunFailure": AssertionStatus.FAILED,
}
"""What a child of a test case says about it; a case without such a child passed."""


def parse_junit(report: bytes) -> tuple[AssertionResult, ...]:
    """The test cases of a JUnit report. ValueError says what is wrong with it."""
    try:
        text = report.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: byte {error.start}") from None
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("a document type: entities are not expanded")
    try:
        # Text, not bytes: the encoding that the file declares cannot hide anything from the check above.
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"not XML: {error}") from None
    if root.tag not in ("testsuites", "testsuite"):
        raise ValueError(f"expected testsuites or testsuite, got {root.tag[:80]}")
    found = [_case(case) for case in root.iter("testcase")]
    # A suite that broke before its cases could be listed (a collection error) has passed nothing.
    found += [
        (f"{suite.get('name', 'suite')} (errors)", AssertionStatus.ERROR, "the suite reports errors of its own")
        for suite in root.iter("testsuite")
        if _count(suite, "errors") > sum(case.find("error") is not None for case in suite.iter("testcase"))
    ]
    return collect(found)


def _case(case: ElementTree.Element) -> Found:
    """One test case; the worst that its children say counts."""
    name = "::".join(part for part in (case.get("classname"), case.get("name")) if part) or "test"
    for tag in ("error", "failure", "rerunFailure", "skipped"):
        child = case.find(tag)
        if child is not None:
            return name, _STATUS[tag], child.get("message") or child.text or ""
    passed = case.get("status", "run").lower() in ("run", "passed", "success")
    return name, AssertionStatus.PASSED if passed else AssertionStatus.SKIPPED, ""


def _count(suite: ElementTree.Element, name: str) -> int:
    """A number that a suite reports, 0 where it is none."""
    value = suite.get(name, "0")
    return int(value) if value.isdecimal() and len(value) < 9 else 0
