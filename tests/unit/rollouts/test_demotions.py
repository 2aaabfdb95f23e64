"""Tasks leave the pool for a reason, from a draw on, and a resumed run knows it."""

import pytest

from t1.config import load_config
from t1.errors import ConfigError, RunError
from t1.evaluation.report import build_report, render_html
from t1.rollouts import DemotionPolicy, Demotions, TaskStream
from t1.rollouts.demotions import demoted_tasks
from t1.testing.tasks import example_task
from t1.types import (
    AssertionResult,
    AssertionStatus,
    Failure,
    Outcome,
    RewardSource,
    Rollout,
    RolloutId,
    StopReason,
    TamperEvidence,
    TamperLevel,
    Verdict,
)

POLICY = DemotionPolicy(min_attempts=2, impossible_after=5)


def attempt(task="a", *, passed=1, tampered=False, names=("one", "two"), failure="", report_error="", member=0):
    """A rollout with this verdict."""
    if failure:
        outcome = Outcome(StopReason.FAILED, None, None, RewardSource.NONE, Failure(failure, "broken"))
        return Rollout(RolloutId(task, 0, member), "d", (), outcome)
    statuses = [AssertionStatus.PASSED if i < passed else AssertionStatus.FAILED for i in range(len(names))]
    results = tuple(AssertionResult(name, status) for name, status in zip(names, statuses, strict=True))
    tamper = (TamperEvidence("forged-result", "/x", level=TamperLevel.TAMPERING),) if tampered else ()
    verdict = Verdict(results, passed == len(names), tamper, report_error=report_error)
    return Rollout(RolloutId(task, 0, member), "d", (), Outcome(StopReason.SUBMITTED, verdict, 0.5, "assertions"))


@pytest.mark.parametrize(
    ("rollouts", "reason"),
    [
        ([attempt(tampered=True), attempt()], "tampering: 1 of 2"),
        ([attempt(failure="VerifierError"), attempt()], "flaky: 1 of 2"),
        ([attempt(report_error="no report"), attempt()], "flaky: 1 of 2"),
        ([attempt(), attempt(names=("one", "three"))], "flaky: 1 of 2"),
        ([attempt(passed=0)] * 5, "impossible: none of 5"),
    ],
    ids=["tampering", "verifier fails", "no report", "other assertions", "impossible"],
)
def test_a_task_leaves_with_a_reason(rollouts, reason):
    demotions = Demotions(POLICY)
    left = demotions.count(0, rollouts, next_draw=7)
    assert left["a"].reason.startswith(reason)
    assert not demotions.is_out("a", 6) and demotions.is_out("a", 7)
    assert demotions.metrics()["demoted"] == demotions.metrics()[f"demoted_{reason.partition(':')[0]}"] == 1.0


@pytest.mark.parametrize(
    "rollouts",
    [
        [attempt(tampered=True)],
        [attempt(tampered=True), attempt(), attempt()],
        [attempt(failure="SandboxVanished")] * 9,
        [attempt(failure="EngineTimeout", passed=0)] * 9,
        [attempt(passed=0)] * 4,
        [*[attempt(passed=0)] * 9, attempt(passed=1)],
    ],
    ids=["too few attempts", "too small a share", "sandbox", "engine", "not yet impossible", "hard, but possible"],
)
def test_a_task_stays_while_nothing_is_proved_against_it(rollouts):
    demotions = Demotions(POLICY)
    assert demotions.count(0, rollouts, next_draw=0) == {}


def test_evidence_adds_up_over_steps():
    demotions = Demotions(POLICY)
    assert demotions.count(0, [attempt(passed=0)] * 3, next_draw=1) == {}
    assert list(demotions.count(1, [attempt(passed=0)] * 2, next_draw=2)) == ["a"]


def test_a_batch_that_comes_again_after_a_crash_counts_once(tmp_path):
    before = Demotions(POLICY, tmp_path / "demotions.json")
    before.count(3, [attempt(passed=0)] * 3, next_draw=1)
    after = Demotions(POLICY, tmp_path / "demotions.json")
    assert after.count(3, [attempt(passed=0)] * 3, next_draw=9) == {}
    assert list(after.count(4, [attempt(passed=0)] * 2, next_draw=11)) == ["a"]
    assert Demotions(POLICY, tmp_path / "demotions.json").out == after.out


def test_a_broken_state_names_the_file_and_the_way_out(tmp_path):
    (tmp_path / "demotions.json").write_text('{"last_step": "x"')
    with pytest.raises(RunError, match=r"demotions\.json.*remove it"):
        Demotions(POLICY, tmp_path / "demotions.json")


def test_the_stream_gives_a_stand_in_from_that_draw_on():
    tasks = [example_task(name) for name in "abc"]
    stream, demotions = TaskStream(tasks, seed=1), Demotions(POLICY)
    before = [stream.fit(draw, demotions).id for draw in range(6)]
    demotions.count(0, [attempt(tampered=True)] * 2, next_draw=6)
    assert [stream.fit(draw, demotions).id for draw in range(6)] == before
    assert {stream.fit(draw, demotions).id for draw in range(6, 60)} == {"b", "c"}


def test_a_pool_with_nothing_left_says_why():
    stream, demotions = TaskStream([example_task("a")], seed=1), Demotions(POLICY)
    demotions.count(0, [attempt(tampered=True)] * 2, next_draw=0)
    with pytest.raises(RunError, match="tampered with the verification"):
        stream.fit(0, demotions)


def test_a_policy_refuses_numbers_that_mean_nothing():
    with pytest.raises(ValueError, match="min_attempts"):
        DemotionPolicy(min_attempts=0)


def test_the_configuration_sets_every_rule_and_refuses_a_share_that_is_none():
    config = load_config(None, ["demotion.min_attempts=2", "demotion.impossible_after=5"])
    assert DemotionPolicy(**config.demotion.model_dump()) == POLICY
    assert DemotionPolicy(**load_config().demotion.model_dump()) == DemotionPolicy()
    with pytest.raises(ConfigError, match=r"demotion\.tampered_share"):
        load_config(None, ["demotion.tampered_share=0.0"])


def test_the_report_of_a_run_names_the_tasks_that_left_and_why(tmp_path):
    assert demoted_tasks(tmp_path) == {}
    Demotions(POLICY, tmp_path / "demotions.json").count(0, [attempt(tampered=True), attempt()], next_draw=7)
    demoted = demoted_tasks(tmp_path)
    assert list(demoted) == ["a"] and demoted["a"].startswith("tampering")
    page = render_html(build_report({}, wall_s=1.0, gap=None, audit={}, demoted=demoted), (), (), "T1")
    assert "Tasks that left the pool" in page and demoted["a"] in page
