"""The score, the JSON, the judge's opinion beside them."""

from __future__ import annotations

import json

import httpx
import pytest

from t1.synthesis.audit import AuditReport, Criterion, Judge, Kind, Opinion, Part, Reject, audit_task

ALL = tuple(Criterion(part, "c", 1.0, score) for part, score in zip(Part, (1.0, 0.0, 0.5, 0.0), strict=True))


def test_the_score_weighs_the_parts():
    assert AuditReport("t", "t", "d", (), ALL).score == pytest.approx(0.45 * 1 + 0.20 * 0.5)


def test_what_was_not_run_does_not_count():
    unrun = (*ALL[:1], Criterion(Part.VERIFIER, "run", 9.0, None), Criterion(Part.SOLUTION, "run", 1.0, None))
    assert AuditReport("t", "t", "d", (), unrun).score == 1.0


def test_a_report_is_json():
    reject = Reject(Kind.WEAK_VERIFIER, "tests/test.sh", 3, "passes", True)
    said = json.loads(json.dumps(AuditReport("t", "t", "d", (reject,), ALL, Opinion("m", 0.5)).as_json()))
    assert said["rejects"][0]["kind"] == "weak-verifier" and said["accepted"] is False
    assert said["parts"]["verifier"] == 1.0


def judge_that(answer: str | int) -> Judge:
    """A judge whose endpoint answers so: a text, or a status."""

    def reply(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["messages"][0]["role"] == "system"
        if isinstance(answer, int):
            return httpx.Response(answer)
        return httpx.Response(200, json={"choices": [{"message": {"content": answer}}]})

    return Judge("http://judge/v1", "wise", transport=httpx.MockTransport(reply))


async def test_an_opinion_is_recorded_apart_and_rejects_nothing(write):
    said = judge_that('{"score": 0.1, "concerns": ["tests/test.sh:3: too easy"]}')
    report = await audit_task(write(), judge=said)
    assert report.opinion == Opinion("wise", 0.1, ("tests/test.sh:3: too easy",))
    assert report.accepted and report.score == (await audit_task(write("twin"))).score


@pytest.mark.parametrize("answer", ["no JSON", '{"score": 7, "concerns": []}', '{"score": 1}', 503], ids=str)
async def test_a_judge_that_says_something_else_is_written_down(write, answer):
    report = await audit_task(write(), judge=judge_that(answer))
    assert report.opinion.error and report.accepted
