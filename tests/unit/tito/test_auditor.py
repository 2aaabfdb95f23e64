"""The auditor sees every corruption of every column, each time."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import t1.tito.auditor
from t1.tito import assemble, audit
from t1.types import Boundary, Case, Failure, FinishReason, Outcome, RewardSource, Rollout, Severity, StopReason

SEEDS = range(12)


def changed(array, index, value):
    """A copy with one entry changed."""
    copy = array.copy()
    copy[index] = value
    return copy


def pick(rng, where):
    """A random index where `where` is True."""
    return int(rng.choice(np.flatnonzero(where)))


def sampled_id(trajectory, rng):
    at = pick(rng, trajectory.mask)
    return replace(trajectory, tokens=changed(trajectory.tokens, at, (trajectory.tokens[at] + 1) % 400))


def context_id(trajectory, rng):
    at = pick(rng, ~trajectory.mask)
    return replace(trajectory, tokens=changed(trajectory.tokens, at, (trajectory.tokens[at] + 1) % 400))


def logprob(trajectory, rng):
    at = pick(rng, trajectory.mask)
    return replace(trajectory, logprobs=changed(trajectory.logprobs, at, np.nextafter(trajectory.logprobs[at], -9)))


def swapped_logprobs(trajectory, rng):
    at = rng.choice(np.flatnonzero(trajectory.mask), 2, replace=False)
    return replace(trajectory, logprobs=changed(trajectory.logprobs, at, trajectory.logprobs[at[::-1]]))


def context_logprob(trajectory, rng):
    return replace(trajectory, logprobs=changed(trajectory.logprobs, pick(rng, ~trajectory.mask), -0.5))


def untrained_token(trajectory, rng):
    inner = trajectory.mask.copy()
    inner[-1] = False  # a trajectory ends with a sampled token
    return replace(trajectory, mask=changed(trajectory.mask, pick(rng, inner), False))


def trained_context(trajectory, rng):
    inner = ~trajectory.mask
    inner[0] = False  # a trajectory starts with context
    return replace(trajectory, mask=changed(trajectory.mask, pick(rng, inner), True))


def moved_mask(trajectory, rng):
    """One token trained for another, the number stays."""
    inner = trajectory.mask.copy()
    inner[-1] = False
    mask = changed(trajectory.mask, pick(rng, inner), False)
    outer = ~trajectory.mask
    outer[0] = False
    return replace(trajectory, mask=changed(mask, pick(rng, outer), True))


def sampled_version(trajectory, rng):
    at = pick(rng, trajectory.mask)
    return replace(trajectory, version=changed(trajectory.version, at, trajectory.version[at] + 1))


def context_version(trajectory, rng):
    at = pick(rng, ~trajectory.mask)
    return replace(trajectory, version=changed(trajectory.version, at, trajectory.version[at] - 1))


def turn_index(trajectory, rng):
    at = int(rng.integers(len(trajectory.tokens)))
    return replace(trajectory, turn=changed(trajectory.turn, at, trajectory.turn[at] + rng.choice([-1, 1])))


def routing_entry(trajectory, rng):
    at = (int(rng.integers(len(trajectory.routing))), int(rng.integers(2)), int(rng.integers(2)))
    return replace(trajectory, routing=changed(trajectory.routing, at, trajectory.routing[at] ^ 1))


def shifted_rows(trajectory, rng):
    """Case R3: one row too few at the front, the last repeated to hide it."""
    at = int(rng.integers(len(trajectory.routing) - 1))
    rows = trajectory.routing.copy()
    rows[at:-1] = trajectory.routing[at + 1 :]
    return replace(trajectory, routing=rows)


def zero_row(trajectory, rng):
    """Case R8: a hole filled with expert 0."""
    return replace(trajectory, routing=changed(trajectory.routing, int(rng.integers(len(trajectory.routing))), 0))


def no_routing(trajectory, rng):
    return replace(trajectory, routing=None)


def doubled_token(trajectory, rng):
    """One token stands in the stream twice, in every column."""
    at = int(rng.integers(1, len(trajectory.tokens) - 1))
    columns = ("tokens", "mask", "logprobs", "turn", "version", "routing")
    return replace(trajectory, **{c: np.insert(v := getattr(trajectory, c), at, v[at], axis=0) for c in columns})


def lost_token(trajectory, rng):
    at = int(rng.integers(1, len(trajectory.tokens) - 1))
    columns = ("tokens", "mask", "logprobs", "turn", "version", "routing")
    return replace(trajectory, **{c: np.delete(getattr(trajectory, c), at, axis=0) for c in columns})


def boundary_field(trajectory, rng):
    boundaries = list(trajectory.boundaries)
    at = int(rng.integers(len(boundaries)))
    field = str(rng.choice(["turn", "kept", "inserted", "dropped", "residual"]))
    boundaries[at] = replace(boundaries[at], **{field: getattr(boundaries[at], field) + 1})
    return replace(trajectory, boundaries=tuple(boundaries))


def boundary_case(trajectory, rng):
    boundaries = list(trajectory.boundaries)
    at = int(rng.integers(len(boundaries)))
    other = [case for case in Case if case is not boundaries[at].case and not _alike(case, boundaries[at])]
    boundaries[at] = replace(boundaries[at], case=other[int(rng.integers(len(other)))])
    return replace(trajectory, boundaries=tuple(boundaries))


def _alike(case: Case, boundary: Boundary) -> bool:
    """Normalized and retokenized differ only in how they were recognised."""
    return {case, boundary.case} == {Case.NORMALIZED, Case.RETOKENIZED}


MUTATIONS = (
    sampled_id,
    context_id,
    logprob,
    swapped_logprobs,
    context_logprob,
    untrained_token,
    trained_context,
    moved_mask,
    sampled_version,
    context_version,
    turn_index,
    routing_entry,
    shifted_rows,
    zero_row,
    no_routing,
    doubled_token,
    lost_token,
    boundary_field,
    boundary_case,
)


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


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_every_corruption_of_a_column_is_found_every_time(rollouts, mutation):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        for rollout, trajectories in rollouts:
            at = int(rng.integers(len(trajectories)))
            corrupt = list(trajectories)
            corrupt[at] = mutation(trajectories[at], rng)
            assert errors(rollout, corrupt), f"{mutation.__name__} with seed {seed} went unseen"


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
