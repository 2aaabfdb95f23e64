"""What the auditor reports of rollouts that are odd as a whole. Corruptions by column: test_corruption.py."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import t1.tito.auditor
from t1.tito import assemble, audit
from t1.types import Boundary, Case, Failure, FinishReason, Outcome, RewardSource, Rollout, Severity, StopReason

UNKNOWN = {"vocab_size": None, "num_experts": None}


def changed(array, index, value):
    """A copy with one entry changed."""
    copy = array.copy()
    copy[index] = value
    return copy


@pytest.fixture(scope="module")
def rollouts(chat):
    """A strict rollout, one of several segments, and one with edits: (rollout, trajectories)."""
    strict = chat.exchanges("ls", "echo hello", "done")
    plain = chat.turns(strict, starts=chat.deltas(strict), versions=[3, 3, 4])
    prompt = chat.opening()
    fresh = np.concatenate([prompt, chat.observed("try once more")])
    split = chat.turns(
        [(prompt, chat.said("grep x")), (fresh, chat.said("cat")), (prompt, chat.said("done"))], starts=[0, 0, 0]
    )
    odd = np.concatenate([chat.letters("echo hello"), [chat.end]]).astype(np.int32)
    again = np.concatenate([prompt, chat.said("echo hello"), chat.observed()])
    edited = chat.turns([(prompt, odd), (again, chat.said("done"))], starts=[0, 0])
    return [
        (
            chat.rollout(turns),
            assemble(chat.rollout(turns).id, turns, boundary_ids=chat.boundary_ids, decode=chat.decode),
        )
        for turns in (plain, split, edited)
    ]


def errors(rollout, trajectories, **options):
    report = audit(rollout, trajectories, **({"vocab_size": 400, "num_experts": 8} | options))
    return sorted({finding.rule for finding in report.findings if finding.severity is Severity.ERROR})


def test_sound_rollouts_have_no_findings(rollouts, chat):
    assert [len(trajectories) for _, trajectories in rollouts] == [1, 3, 1]
    for rollout, trajectories in rollouts:
        assert errors(rollout, trajectories, decode=chat.decode) == []


def test_a_segment_that_is_missing_doubled_or_misplaced_is_found(rollouts):
    rollout, (first, second, third) = rollouts[1]
    assert errors(rollout, (first, second)) == ["not-trained"]
    assert "trained-twice" in errors(rollout, (first, second, second, third))
    assert "segments" in errors(rollout, (first, third, second))
    assert "segments" in errors(rollout, (replace(first, rollout=replace(first.rollout, member=9)), second, third))
    assert errors(rollout, ()) == ["not-trained"]


def test_drift_in_the_loss_region_is_counted_by_token(rollouts):
    rollout, (trajectory,) = rollouts[0]
    at = np.flatnonzero(trajectory.mask)[:2]
    drifted = replace(trajectory, tokens=changed(trajectory.tokens, at, trajectory.tokens[at] + 1))
    assert audit(rollout, [drifted], vocab_size=None, num_experts=None).counters["loss_region_drift"] == 2
    assert audit(rollout, [trajectory], vocab_size=None, num_experts=None).counters["loss_region_drift"] == 0


@pytest.mark.parametrize("value", [0.5, np.nan, np.inf, -np.inf])
def test_a_logprob_that_is_no_logprob_is_an_error(chat, value):
    first, *rest = chat.turns(chat.exchanges("ls", "done"))
    turns = (replace(first, logprobs=changed(first.logprobs, 0, value)), *rest)
    assert errors(chat.rollout(turns), assemble(chat.rollout(turns).id, turns)) == ["logprob-range"]


def test_versions_that_go_back_are_an_error(chat):
    turns = chat.turns(chat.exchanges("ls", "done"), versions=[5, 4])
    assert errors(chat.rollout(turns), assemble(chat.rollout(turns).id, turns)) == ["version-order"]


def test_ids_and_experts_out_of_range_are_errors(rollouts):
    rollout, trajectories = rollouts[0]
    assert errors(rollout, trajectories, vocab_size=10) == ["token-range"]
    assert errors(rollout, trajectories, num_experts=2) == ["routing-range"]


@pytest.mark.parametrize(
    ("row", "rule"), [(np.zeros((2, 2), np.uint8), "routing-zero"), ([[1, 1], [2, 3]], "routing-duplicate")]
)
def test_a_capture_that_no_router_makes_is_an_error_even_where_it_was_joined_well(chat, row, rule):
    """Cases R4 and R8: the raw capture is wrong already."""
    exchanges = chat.exchanges("ls", "done")
    first, second = chat.turns(exchanges, starts=chat.deltas(exchanges))
    turns = (replace(first, routing=changed(first.routing, 3, row)), second)
    assert errors(chat.rollout(turns), assemble(chat.rollout(turns).id, turns)) == [rule]


def repeated(chat, first, length, tokens=None):
    """A turn whose rows from `first` on are one row repeated."""
    prompt = np.concatenate(
        [chat.opening(), chat.ids("grep -r needle . && sort them by size ") if tokens is None else tokens]
    )
    prompt = np.concatenate([prompt, chat.opening("the command printed nothing; cat hello.txt > directory")])
    (turn,) = chat.turns([(prompt, chat.said("done"))], starts=[0])
    rows = turn.routing.copy()
    rows[first : first + length] = rows[first]
    return replace(turn, routing=rows)


def test_a_row_repeated_under_different_tokens_is_padding(chat):
    """Case R4: padded rows repeat the previous row."""
    turn = repeated(chat, 3, 24)
    assert errors(chat.rollout([turn]), assemble(chat.rollout([turn]).id, [turn])) == ["routing-repeat"]


def test_a_row_repeated_under_one_token_or_a_few_times_is_none(chat):
    few = repeated(chat, 3, 6)
    same = repeated(chat, 11, 40, tokens=np.full(40, chat.newline, dtype=np.int32))
    for turn in (few, same):
        assert errors(chat.rollout([turn]), assemble(chat.rollout([turn]).id, [turn])) == []


def test_a_router_that_sends_most_tokens_one_way_is_not_accused(chat):
    rng = np.random.default_rng(0)
    (turn,) = chat.turns([(rng.integers(2, 400, 500, dtype=np.int32), chat.said("done"))], starts=[0])
    rows = turn.routing.copy()
    rows[rng.random(len(rows)) < 0.8] = rows[0]
    turn = replace(turn, routing=rows)
    assert errors(chat.rollout([turn]), assemble(chat.rollout([turn]).id, [turn])) == []


def test_a_finish_that_contradicts_the_last_token_is_a_warning(chat):
    first, second = chat.turns(chat.exchanges("ls", "done"))
    cut = replace(first, finish=FinishReason.LENGTH)
    report = audit(chat.rollout([cut, second]), assemble(chat.rollout([]).id, [cut, second]), **UNKNOWN)
    assert [(finding.rule, finding.severity) for finding in report.findings] == [("finish", Severity.WARNING)]
    open_ended = replace(
        first, completion=first.completion[:-1], logprobs=first.logprobs[:-1], versions=first.versions[:-1]
    )
    rollout = chat.rollout([open_ended])
    trajectories = assemble(rollout.id, rollout.turns)
    assert not audit(rollout, trajectories, **UNKNOWN).findings  # who knows what stops?
    report = audit(rollout, trajectories, boundary_ids=chat.boundary_ids, **UNKNOWN)
    assert [finding.rule for finding in report.findings] == ["finish"]


@pytest.mark.parametrize("reward", [np.nan, np.inf])
def test_a_reward_that_is_no_number_is_an_error(rollouts, reward):
    rollout, trajectories = rollouts[0]
    outcome = Outcome(StopReason.TURN_LIMIT, None, reward, RewardSource.BINARY)
    assert errors(replace(rollout, outcome=outcome), trajectories) == ["reward"]


@pytest.mark.parametrize("stop", [StopReason.SUBMITTED, StopReason.TURN_LIMIT])
def test_an_end_that_needs_a_turn_and_has_none_is_an_error(chat, stop):
    assert errors(chat.rollout((), stop), ()) == ["stop"]


@pytest.mark.parametrize("stop", [StopReason.TOKEN_LIMIT, StopReason.TIME_LIMIT, StopReason.CRASHED])
def test_an_end_that_may_come_before_the_first_turn_is_none(chat, stop):
    """Case T11: the first prompt alone may be beyond the context."""
    assert errors(chat.rollout((), stop), ()) == []


@pytest.mark.parametrize(("case", "copy"), [(Case.NORMALIZED, "echo world"), (Case.RETOKENIZED, "echo world")])
def test_a_join_over_another_text_is_an_error(chat, case, copy):
    """The numbers of the boundary are right, and the harness's copy says something else."""
    prompt, said = chat.opening(), chat.said("echo hello")
    again = np.concatenate([prompt, chat.said(copy), chat.observed()])
    turns = chat.turns([(prompt, said), (again, chat.said("done"))])
    rollout = chat.rollout(turns)
    first, second = assemble(rollout.id, turns)
    start = len(prompt) + len(chat.said(copy))
    kept = len(prompt) + _shared_ends(said, chat.said(copy))
    dropped, lacking = start - kept, len(prompt) + len(said) - kept
    columns = ("tokens", "mask", "logprobs", "turn", "version")
    glued = replace(
        first,
        **{name: np.concatenate([getattr(first, name), getattr(second, name)[start:]]) for name in columns},
        boundaries=(
            *first.boundaries,
            Boundary(1, case, kept, len(again) - start, dropped, max(lacking, dropped)),
        ),
    )
    assert "other-text" in errors(rollout, (glued,), decode=chat.decode, boundary_ids=chat.boundary_ids)


def _shared_ends(a, b):
    head = next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    tail = next(i for i, (x, y) in enumerate(zip(a[::-1], b[::-1], strict=False)) if x != y)
    return head + tail


def test_only_scored_rollouts_are_trained(rollouts):
    rollout, trajectories = rollouts[0]
    failed = replace(
        rollout, outcome=Outcome(StopReason.FAILED, None, None, RewardSource.NONE, Failure("EngineTimeout", "late"))
    )
    assert errors(failed, trajectories) == ["stop"]


def test_a_submission_without_a_turn_is_an_error_and_a_cut_one_a_warning(chat):
    submitted = chat.rollout((), StopReason.SUBMITTED)
    assert errors(submitted, ()) == ["stop"]
    (turn,) = chat.turns(chat.exchanges("done"))
    cut = chat.rollout((replace(turn, finish=FinishReason.LENGTH),), StopReason.SUBMITTED)
    report = audit(cut, assemble(cut.id, cut.turns), vocab_size=None, num_experts=None)
    assert [finding.severity for finding in report.findings] == [Severity.WARNING]
    assert report.trainable


def test_a_completion_that_the_next_prompt_lacks_is_an_error_inside_a_segment(chat):
    """The stream claims to go on, but what the policy said is gone from what it saw next."""
    prompt, said = chat.opening(), chat.said("echo hello")
    again = np.concatenate([prompt, chat.said("pwd and more"), chat.observed()])
    turns = chat.turns([(prompt, said), (again, chat.said("done"))])
    rollout = chat.rollout(turns)
    first, second = assemble(rollout.id, turns)
    start = len(prompt) + len(chat.said("pwd and more"))
    kept = len(prompt) + 1  # the stop id
    glued = replace(
        first,
        **{
            name: np.concatenate([getattr(first, name), getattr(second, name)[start:]])
            for name in ("tokens", "mask", "logprobs", "turn", "version")
        },
        boundaries=(
            *first.boundaries,
            Boundary(1, Case.RETOKENIZED, kept, len(again) - start, start - kept, max(len(said) - 1, start - kept)),
        ),
    )
    assert errors(rollout, (glued,), decode=chat.decode) == ["completion-lost"]


def test_the_auditor_shares_no_code_with_the_assembler():
    for path in Path(t1.tito.auditor.__file__).parent.glob("audit*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            ours = [name for name in names if name.startswith("t1.")]
            assert all(name.startswith(("t1.types.", "t1.errors.", "t1.tito.audit_")) for name in ours), (path, ours)


def test_an_empty_failed_rollout_audits_to_nothing(rollouts):
    rollout, _ = rollouts[0]
    failure = Outcome(StopReason.FAILED, None, None, RewardSource.NONE, Failure("SandboxVanished", "gone"))
    report = audit(Rollout(rollout.id, "", (), failure), (), vocab_size=None, num_experts=None)
    assert not report.findings and not any(report.counters.values())
