"""Reports and reward files at the border."""

from __future__ import annotations

import json

import pytest

from t1.types import AssertionResult, AssertionStatus
from t1.verification import parse_ctrf, parse_reward


def report(*tests: dict[str, object]) -> bytes:
    return json.dumps({"results": {"tool": {"name": "x"}, "summary": {}, "tests": list(tests)}}).encode()


def test_statuses_are_folded_and_only_passed_is_passed() -> None:
    names = ("passed", "failed", "skipped", "pending", "other")
    found = parse_ctrf(report(*({"name": name, "status": name, "duration": 1} for name in names)))
    assert [result.status for result in found] == [
        AssertionStatus.PASSED,
        AssertionStatus.FAILED,
        AssertionStatus.SKIPPED,
        AssertionStatus.SKIPPED,
        AssertionStatus.SKIPPED,
    ]


def test_an_error_is_told_apart_by_its_raw_status() -> None:
    found = parse_ctrf(report({"name": "a", "status": "failed", "rawStatus": "error", "message": "boom"}))
    assert found == (AssertionResult("a", AssertionStatus.ERROR, "boom"),)


def test_duplicates_are_kept_apart() -> None:
    found = parse_ctrf(report(*({"name": "same", "status": "passed"} for _ in range(3))))
    assert [result.name for result in found] == ["same", "same #2", "same #3"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "EOF"),
        (b"\xff\xfe", "JSON"),
        (b"[]", "Report|object|dictionary"),
        (b"{}", "results: Field required"),
        (b'{"results": {"tests": [{"name": "a"}]}}', "results.tests.0.status: Field required"),
        (b'{"results": {"tests": [{"name": "a", "status": "PASSED"}]}}', "results.tests.0.status"),
        (b'{"results": {"tests": [{"name": 1, "status": "passed"}]}}', "results.tests.0.name"),
        (b'{"results": {"tests": []}}', "lists no test"),
    ],
)
def test_an_unreadable_report_says_where(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_ctrf(text)


@pytest.mark.parametrize(
    ("text", "is_json", "value"),
    [
        (b"1\n", False, 1.0),
        (b" 0.25 ", False, 0.25),
        (b"0", True, 0.0),
        (b'{"reward": 0.5, "other": 9}', True, 0.5),
    ],
)
def test_a_reward_is_read(text: bytes, is_json: bool, value: float) -> None:
    assert parse_reward(text, is_json=is_json) == value


@pytest.mark.parametrize("text", [b"nan", b"inf", b"-inf", b"1.5", b"-0.1", b"", b"yes", b"1 2", b"\xff"])
def test_a_reward_text_that_is_no_finite_number_in_range_is_refused(text: bytes) -> None:
    """Case V1."""
    with pytest.raises(ValueError, match=r"not a number|within \[0, 1\]"):
        parse_reward(text, is_json=False)


@pytest.mark.parametrize("text", [b"NaN", b"Infinity", b'{"reward": NaN}', b'{"reward": "1"}', b"true", b"[1]", b"{}"])
def test_a_reward_object_that_is_no_finite_number_in_range_is_refused(text: bytes) -> None:
    """Case V1."""
    with pytest.raises(ValueError, match=r"expected a number"):
        parse_reward(text, is_json=True)
