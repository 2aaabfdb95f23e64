"""Reports of every format at the border, and which of them counts."""

from __future__ import annotations

import json

import pytest

from t1.testing.sandboxes import FakeSandboxProvider
from t1.testing.tasks import example_task
from t1.types import AssertionStatus
from t1.verification.formats.assertions import distinct
from t1.verification.formats.junit import parse_junit
from t1.verification.formats.pytest_json import parse_pytest_json
from t1.verification.formats.reward_file import parse_reward
from t1.verification.formats.tap import parse_tap
from t1.verification.reports import parse_ctrf, read_assertions

PASSED, FAILED, SKIPPED, ERROR = (AssertionStatus(name) for name in ("passed", "failed", "skipped", "error"))


def test_junit_cases_of_nested_suites_are_told_apart_by_class_and_name() -> None:
    report = b"""<testsuites><testsuite name="s">
    <testcase classname="a" name="t[1]"/><testcase classname="a" name="t[1]"/>
    <testsuite><testcase name="f"><failure message="no">text</failure></testcase>
    <testcase name="e"><error>boom</error></testcase><testcase name="s"><skipped/></testcase></testsuite>
    </testsuite></testsuites>"""
    found = {result.name: result.status for result in parse_junit(report)}
    assert found == {"a::t[1]": PASSED, "a::t[1] #2": PASSED, "f": FAILED, "e": ERROR, "s": SKIPPED}


def test_junit_errors_of_a_suite_that_no_case_shows_are_errors() -> None:
    found = parse_junit(b'<testsuite name="x" errors="1"><testcase name="a"/></testsuite>')
    assert [result.status for result in found] == [PASSED, ERROR]


BOMB = b'<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><testsuite><testcase name="&b;"/></testsuite>'


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (BOMB, "entities"),
        (BOMB.decode().encode("utf-16"), "UTF-8"),
        (b"<testsuite>", "not XML"),
        (b"<html/>", "expected testsuites"),
        (b"<testsuite/>", "lists no test"),
    ],
)
def test_junit_that_is_hostile_or_nonsense_is_refused(report: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_junit(report)


def test_pytests_json_counts_only_passed_as_passed() -> None:
    outcomes = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
    tests = [{"nodeid": f"t.py::t[{name}]", "outcome": name} for name in outcomes]
    broken = [{"nodeid": "u.py", "outcome": "failed"}]
    found = parse_pytest_json(json.dumps({"exitcode": 1, "tests": tests, "collectors": broken}).encode())
    assert [result.status for result in found] == [PASSED, FAILED, ERROR, SKIPPED, SKIPPED, SKIPPED, ERROR]


def test_a_ctrf_pass_that_pytest_calls_an_expected_failure_is_not_passed() -> None:
    tests = [{"name": "a", "status": "passed", "rawStatus": raw} for raw in ("passed", "xfailed", "xpassed")]
    found = parse_ctrf(json.dumps({"results": {"tests": tests}}).encode())
    assert [result.status for result in found] == [PASSED, SKIPPED, SKIPPED]


def test_tap_directives_are_not_passed_and_missing_tests_are_errors() -> None:
    report = b"TAP version 13\n1..6\nok 1 - a\nnot ok 2 - b\nok 3 c # SKIP why\nok # TODO later\n    ok 1 - inner\n"
    found = parse_tap(report)
    assert [result.status for result in found] == [PASSED, FAILED, SKIPPED, SKIPPED, ERROR, ERROR]
    assert [result.name for result in found][:4] == ["a", "b", "c", "test 4"]


def test_tap_ends_at_a_bail_out() -> None:
    assert [result.status for result in parse_tap(b"ok 1\nBail out! no disk\nok 2\n")] == [PASSED, ERROR]


@pytest.mark.parametrize("report", [b"", b"\xff\xfe", b"okay then", b"1..999999999\nok 1"])
def test_tap_without_tests_or_with_an_unbelievable_plan_is_refused(report: bytes) -> None:
    with pytest.raises(ValueError, match=r"no line|more than"):
        parse_tap(report)


def test_a_numbered_duplicate_never_takes_a_name_that_exists() -> None:
    assert len(set(distinct(["a", "a #2", "a", "a"]))) == 4


@pytest.mark.parametrize(
    "text", [b'{"reward": 1, "nested": {"a": 1}}', b'{"reward": 1, "b": NaN}', b'{"a": 1, "b": 0}']
)
def test_a_reward_object_must_be_flat_finite_and_name_its_reward(text: bytes) -> None:
    """Case V1."""
    with pytest.raises(ValueError, match="expected a number"):
        parse_reward(text, is_json=True)


def test_a_reward_object_with_one_number_means_that_number() -> None:
    assert parse_reward(b'{"score": 0.5}', is_json=True) == 0.5


def test_json_nested_without_end_and_huge_integers_are_refused() -> None:
    for text in (b"[" * 100_000, b"1" + b"0" * 400):
        with pytest.raises(ValueError, match="number"):
            parse_reward(text, is_json=True)


def ctrf(*names: str, status: str = "passed") -> bytes:
    return json.dumps({"results": {"tests": [{"name": name, "status": status} for name in names]}}).encode()


async def read(files: dict[str, bytes]) -> tuple[list[str] | None, str]:
    """Names that the files in /logs/verifier pass, and the complaint."""
    provider = FakeSandboxProvider(files={f"/logs/verifier/{name}": data for name, data in files.items()})
    report = await read_assertions(await provider.open(example_task()), list(files))
    names = None if report.results is None else [result.name for result in report.results if result.status is PASSED]
    return names, report.error


JUNIT = b'<testsuite><testcase name="j"/></testsuite>'


async def test_the_first_format_that_is_there_counts() -> None:
    assert (await read({"junit.xml": JUNIT, "ctrf.json": ctrf("c"), "x.tap": b"ok 1 - t"}))[0] == ["c"]
    assert (await read({"junit.xml": JUNIT, "x.tap": b"ok 1 - t"}))[0] == ["j"]


async def test_an_unreadable_report_leaves_its_place_to_the_next_format() -> None:
    assert (await read({"ctrf.json": b"{", "junit.xml": JUNIT}))[0] == ["j"]
    names, error = await read({"ctrf.json": b"{", "junit.xml": b"<"})
    assert names is None
    assert "ctrf.json: " in error
    assert "junit.xml: " in error


async def test_several_files_of_a_format_are_merged_and_kept_apart() -> None:
    found = await read({"ctrf-b.json": ctrf("t"), "ctrf-a.json": ctrf("t", "u")})
    assert found[0] == ["ctrf-a.json: t", "ctrf-a.json: u", "ctrf-b.json: t"]


async def test_one_unreadable_file_among_several_spoils_the_merge() -> None:
    assert (await read({"ctrf-a.json": ctrf("t"), "ctrf-b.json": b"?"}))[0] is None
