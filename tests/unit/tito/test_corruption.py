"""The auditor sees every corruption of every column, each time, and says which rule was broken.

`TABLE` is the list: column, what is done to it, and the rules of which at least one must be found. What a turn carries
for people (action, observation, timings) trains nothing; page checksums guard it in the stored file.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from t1.rollouts.store import write_step
from t1.tito import assemble, audit
from t1.tito.audit_rules import RULES
from t1.training.offline_audit import audit_run
from t1.types import Boundary, Case, FinishReason, Trajectory, Turn

SEEDS = range(12)
COLUMNS = ("tokens", "mask", "logprobs", "turn", "version", "routing")


@dataclass(frozen=True)
class Corruption:
    """One row of the table."""

    column: str
    name: str
    change: Callable
    rules: frozenset[str]

    @property
    def of_turns(self):
        return self.column.startswith("turns")


TABLE: list[Corruption] = []


def corruption(column, *rules):
    """Put the function into the table."""
    assert set(rules) <= set(RULES)

    def register(change):
        TABLE.append(Corruption(column, change.__name__, change, frozenset(rules)))
        return change

    return register


def changed(array, index, value):
    """A copy with one entry changed."""
    copy = array.copy()
    copy[index] = value
    return copy


def pick(rng, where):
    """A random index where `where` is True."""
    return int(rng.choice(np.flatnonzero(where)))


def inner(trajectory):
    """[T] True at sampled tokens, but for the last: a trajectory ends with one."""
    return changed(trajectory.mask, -1, False)


def outer(trajectory):
    """[T] True at context, but for the first token: a trajectory starts with one."""
    return changed(~trajectory.mask, 0, False)


# --------------------------------------------------------------------------------------------------------------------
# Trajectories


@corruption("tokens", "loss-drift")
def one_sampled_id(trajectory: Trajectory, rng):
    at = pick(rng, trajectory.mask)
    return replace(trajectory, tokens=changed(trajectory.tokens, at, (trajectory.tokens[at] + 1) % 400))


@corruption("tokens", "loss-drift")
def two_sampled_ids_swapped(trajectory, rng):
    at = np.flatnonzero(trajectory.mask)
    first = rng.choice(at)
    second = rng.choice(at[trajectory.tokens[at] != trajectory.tokens[first]])
    return replace(trajectory, tokens=changed(trajectory.tokens, [first, second], trajectory.tokens[[second, first]]))


@corruption("tokens", "context", "boundary", "other-text")
def one_context_id(trajectory, rng):
    at = pick(rng, ~trajectory.mask)
    return replace(trajectory, tokens=changed(trajectory.tokens, at, (trajectory.tokens[at] + 1) % 400))


@corruption("logprobs", "wrong-logprob")
def one_logprob_by_one_bit(trajectory, rng):
    at = pick(rng, trajectory.mask)
    return replace(trajectory, logprobs=changed(trajectory.logprobs, at, np.nextafter(trajectory.logprobs[at], -9)))


@corruption("logprobs", "wrong-logprob")
def two_logprobs_swapped(trajectory, rng):
    at = rng.choice(np.flatnonzero(trajectory.mask), 2, replace=False)
    return replace(trajectory, logprobs=changed(trajectory.logprobs, at, trajectory.logprobs[at[::-1]]))


@corruption("logprobs", "context-logprob")
def a_logprob_for_context(trajectory, rng):
    return replace(trajectory, logprobs=changed(trajectory.logprobs, pick(rng, ~trajectory.mask), -0.5))


@corruption("mask", "not-trained")
def one_sampled_token_masked(trajectory, rng):
    return replace(trajectory, mask=changed(trajectory.mask, pick(rng, inner(trajectory)), False))


@corruption("mask", "trained-twice")
def one_context_token_trained(trajectory, rng):
    return replace(trajectory, mask=changed(trajectory.mask, pick(rng, outer(trajectory)), True))


@corruption("mask", "loss-drift", "not-trained", "trained-twice", "mask")
def one_token_trained_for_another(trajectory, rng):
    mask = changed(trajectory.mask, pick(rng, inner(trajectory)), False)
    return replace(trajectory, mask=changed(mask, pick(rng, outer(trajectory)), True))


@corruption("version", "wrong-version")
def one_sampled_version(trajectory, rng):
    at = pick(rng, trajectory.mask)
    return replace(trajectory, version=changed(trajectory.version, at, trajectory.version[at] + 1))


@corruption("version", "wrong-version")
def one_context_version(trajectory, rng):
    at = pick(rng, ~trajectory.mask)
    return replace(trajectory, version=changed(trajectory.version, at, trajectory.version[at] - 1))


@corruption("turn", "wrong-turn", "not-trained", "trained-twice")
def one_turn_index(trajectory, rng):
    at = int(rng.integers(len(trajectory.tokens)))
    return replace(trajectory, turn=changed(trajectory.turn, at, trajectory.turn[at] + rng.choice([-1, 1])))


@corruption("routing", "routing-row")
def one_expert(trajectory, rng):
    at = (int(rng.integers(len(trajectory.routing))), int(rng.integers(2)), int(rng.integers(2)))
    return replace(trajectory, routing=changed(trajectory.routing, at, trajectory.routing[at] ^ 1))


@corruption("routing", "routing-row")
def rows_shifted_by_one(trajectory, rng):
    """Case R3: one row too few at the front, the last repeated to hide it."""
    at = int(rng.integers(len(trajectory.routing) - 1))
    rows = trajectory.routing.copy()
    rows[at:-1] = trajectory.routing[at + 1 :]
    return replace(trajectory, routing=rows)


@corruption("routing", "routing-row")
def a_hole_filled_with_the_row_before(trajectory, rng):
    """Case R4."""
    rows = trajectory.routing
    at = pick(rng, (rows[1:] != rows[:-1]).any(axis=(1, 2))) + 1
    return replace(trajectory, routing=changed(rows, at, rows[at - 1]))


@corruption("routing", "routing-zero")
def a_hole_filled_with_zeros(trajectory, rng):
    """Case R8."""
    return replace(trajectory, routing=changed(trajectory.routing, int(rng.integers(len(trajectory.routing))), 0))


@corruption("routing", "routing-range")
def an_expert_that_does_not_exist(trajectory, rng):
    at = int(rng.integers(len(trajectory.routing)))
    return replace(trajectory, routing=changed(trajectory.routing, (at, 0, 0), 200))


@corruption("routing", "routing-missing")
def no_rows_at_all(trajectory, rng):
    return replace(trajectory, routing=None)


@corruption("every column", "context", "not-trained", "trained-twice", "mask", "boundary", "routing-row")
def one_token_owned_twice(trajectory, rng):
    """It stands in the stream twice, in every column."""
    at = int(rng.integers(1, len(trajectory.tokens) - 1))
    return replace(trajectory, **{c: np.insert(v := getattr(trajectory, c), at, v[at], axis=0) for c in COLUMNS})


@corruption("every column", "context", "not-trained", "trained-twice", "mask", "boundary", "routing-row")
def one_token_lost(trajectory, rng):
    at = int(rng.integers(1, len(trajectory.tokens) - 1))
    return replace(trajectory, **{c: np.delete(getattr(trajectory, c), at, axis=0) for c in COLUMNS})


@corruption("segment", "segments")
def another_number(trajectory, rng):
    return replace(trajectory, segment=trajectory.segment + int(rng.choice([-1, 1])))


@corruption("rollout", "segments")
def another_rollout(trajectory, rng):
    return replace(trajectory, rollout=replace(trajectory.rollout, member=9))


def with_boundary(trajectory, rng, change):
    """One boundary changed."""
    boundaries = list(trajectory.boundaries)
    at = int(rng.integers(len(boundaries)))
    boundaries[at] = change(boundaries[at])
    return replace(trajectory, boundaries=tuple(boundaries))


@corruption("boundaries", "boundary", "residual")
def one_number_by_one(trajectory, rng):
    field = str(rng.choice(["turn", "kept", "inserted", "dropped", "residual"]))
    return with_boundary(trajectory, rng, lambda b: replace(b, **{field: getattr(b, field) + int(rng.choice([-1, 1]))}))


@corruption("boundaries", "boundary", "residual", "context")
def one_kept_token_called_dropped(trajectory, rng):
    """All sums stay right."""

    def change(b: Boundary):
        return replace(b, kept=b.kept - 1, dropped=b.dropped + 1, residual=max(b.residual + 1, b.dropped + 1))

    return with_boundary(trajectory, rng, change)


@corruption("boundaries", "boundary", "context", "other-text")
def another_case(trajectory, rng):
    """But not retokenized for normalized: that only hides how well it was recognised."""

    def change(b: Boundary):
        skip = {b.case} | ({Case.RETOKENIZED} if b.case is Case.NORMALIZED else set())
        others = [case for case in Case if case not in skip]
        return replace(b, case=others[int(rng.integers(len(others)))])

    return with_boundary(trajectory, rng, change)


@corruption("boundaries", "boundary")
def a_boundary_lost(trajectory, rng):
    at = int(rng.integers(len(trajectory.boundaries)))
    return replace(trajectory, boundaries=trajectory.boundaries[:at] + trajectory.boundaries[at + 1 :])


# --------------------------------------------------------------------------------------------------------------------
# Raw turns


def with_turn(turns: tuple[Turn, ...], rng, change):
    """One turn changed."""
    at = int(rng.integers(len(turns)))
    return tuple(change(turn) if index == at else turn for index, turn in enumerate(turns))


@corruption("turns.prompt", "context", "boundary", "other-text")
def one_prompt_id(turns, rng):
    def change(turn):
        at = int(rng.integers(len(turn.prompt)))
        return replace(turn, prompt=changed(turn.prompt, at, (turn.prompt[at] + 1) % 400))

    return with_turn(turns, rng, change)


@corruption("turns.completion", "loss-drift")
def one_completion_id(turns, rng):
    def change(turn):
        at = int(rng.integers(len(turn.completion)))
        return replace(turn, completion=changed(turn.completion, at, (turn.completion[at] + 1) % 400))

    return with_turn(turns, rng, change)


@corruption("turns.logprobs", "wrong-logprob")
def one_reported_logprob(turns, rng):
    def change(turn):
        at = int(rng.integers(len(turn.logprobs)))
        return replace(turn, logprobs=changed(turn.logprobs, at, np.nextafter(turn.logprobs[at], -9)))

    return with_turn(turns, rng, change)


@corruption("turns.versions", "wrong-version")
def one_reported_version(turns, rng):
    def change(turn):
        at = int(rng.integers(len(turn.versions)))
        return replace(turn, versions=changed(turn.versions, at, turn.versions[at] + 1))

    return with_turn(turns, rng, change)


@corruption("turns.finish", "finish")
def another_finish(turns, rng):
    return with_turn(turns, rng, lambda turn: replace(turn, finish=FinishReason.LENGTH))


@corruption("turns.routing", "routing-row")
def one_captured_expert(turns, rng):
    def change(turn):
        used = min(len(turn.completion), len(turn.routing))  # an older row that is captured again is not trained
        at = (len(turn.routing) - 1 - int(rng.integers(used)), int(rng.integers(2)), 0)
        return replace(turn, routing=changed(turn.routing, at, turn.routing[at] ^ 1))

    return with_turn(turns, rng, change)


@corruption("turns.routing_start", "routing-gap")
def a_capture_that_starts_late(turns, rng):
    first = turns[0]
    late = int(rng.integers(1, len(first.prompt)))
    return (replace(first, routing=first.routing[late:], routing_start=late), *turns[1:])


@corruption("turns", "loss-drift", "trained-twice", "not-trained", "mask")
def two_turns_swapped(turns, rng):
    at = int(rng.integers(len(turns) - 1))
    return (*turns[:at], turns[at + 1], turns[at], *turns[at + 2 :])


@corruption("turns", "trained-twice", "loss-drift")
def a_turn_lost(turns, rng):
    at = int(rng.integers(len(turns)))
    return turns[:at] + turns[at + 1 :]


@corruption("turns", "not-trained", "loss-drift")
def a_turn_recorded_twice(turns, rng):
    at = int(rng.integers(len(turns)))
    return turns[:at] + turns[at : at + 1] + turns[at:]


# --------------------------------------------------------------------------------------------------------------------
# Tests


def edited(chat):
    """(prompt, completion) of a conversation whose history comes back through other ids, and once without a stop id."""
    prompt, odd = chat.opening(), np.concatenate([chat.letters("echo hello"), [chat.end]]).astype(np.int32)
    second = np.concatenate([prompt, chat.said("echo hello"), chat.observed()])
    third = np.concatenate([second, chat.said("cat"), chat.observed()])
    return [(prompt, odd), (second, chat.said("cat")), (third, chat.said("done"))]


def normalized(chat):
    """(prompt, completion) where the harness drops the white space before a stop id."""
    prompt, said = chat.opening(), np.concatenate([chat.ids("ls\n"), [chat.end]]).astype(np.int32)
    second = np.concatenate([prompt, chat.said("ls"), chat.observed()])
    return [(prompt, said), (second, chat.said("done"))]


@pytest.fixture(scope="module")
def rollouts(chat):
    """(rollout, trajectories): strict, split, interleaved, retokenized and normalized ones."""
    strict, side = chat.exchanges("ls", "echo hello", "done"), chat.exchanges("pwd", "cat", "yes")
    side = [(np.concatenate([chat.opening("look"), prompt]), said) for prompt, said in side]
    prompt = chat.opening()
    fresh = np.concatenate([prompt, chat.observed("try once more")])
    split = [(prompt, chat.said("grep x")), (fresh, chat.said("cat")), (prompt, chat.said("done"))]
    sessions = [
        chat.turns(strict, starts=chat.deltas(strict), versions=[3, 3, 4]),
        chat.turns(split, starts=[0, 0, 0]),
        chat.turns(
            [one for pair in zip(strict, side, strict=True) for one in pair],
            starts=[one for pair in zip(chat.deltas(strict), chat.deltas(side), strict=True) for one in pair],
            versions=[2, 3, 3, 3, 4, 5],
        ),
        chat.turns(edited(chat), starts=[0, 0, 0]),
        chat.turns(normalized(chat), starts=[0, 0]),
    ]
    made = []
    for turns in sessions:
        rollout = chat.rollout(turns)
        made.append((rollout, assemble(rollout.id, turns, boundary_ids=chat.boundary_ids, decode=chat.decode)))
    return made


def corrupted(rollout, trajectories, corruption, seed):
    """(rollout, trajectories) with one of them changed."""
    rng = np.random.default_rng(seed)
    if corruption.of_turns:
        return replace(rollout, turns=corruption.change(rollout.turns, rng)), trajectories
    at = int(rng.integers(len(trajectories)))
    changed = corruption.change(trajectories[at], rng)
    return rollout, (*trajectories[:at], changed, *trajectories[at + 1 :])


def test_the_rollouts_are_sound_and_of_every_case(rollouts, chat):
    seen = set()
    for rollout, trajectories in rollouts:
        report = audit(
            rollout,
            trajectories,
            vocab_size=400,
            num_experts=8,
            decode=chat.decode,
            boundary_ids=chat.boundary_ids,
        )
        assert not report.findings
        seen |= {boundary.case for trajectory in trajectories for boundary in trajectory.boundaries}
    assert seen == set(Case)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.column}-{row.name}")
def test_every_corruption_of_a_column_is_found_every_time(rollouts, chat, row):
    for seed in SEEDS:
        for kind, (rollout, trajectories) in enumerate(rollouts):
            report = audit(
                *corrupted(rollout, trajectories, row, seed),
                vocab_size=400,
                num_experts=8,
                decode=chat.decode,
                boundary_ids=chat.boundary_ids,
            )
            rules = {finding.rule for finding in report.findings}
            assert rules & row.rules, f"seed {seed}, rollout {kind}: found {rules or 'nothing'}"


STORED = [row for row in TABLE if row.column != "rollout"]  # the store itself refuses another rollout's trajectory


@pytest.mark.parametrize("row", STORED, ids=lambda row: f"{row.column}-{row.name}")
def test_every_corruption_of_what_is_stored_is_found_offline(rollouts, chat, row, tmp_path):
    for seed, (rollout, trajectories) in enumerate(rollouts):
        one, parts = corrupted(rollout, trajectories, row, seed)
        write_step(tmp_path / "step.parquet", [one], parts)
        report = audit_run(tmp_path, vocab_size=400, num_experts=8, decode=chat.decode, boundary_ids=chat.boundary_ids)
        assert row.rules & set(report.as_dict()["findings"])
        assert report.exit_code == 1 or row.rules == {"finish"}


def test_every_column_of_turns_and_trajectories_is_in_the_table():
    of_people = {"action", "observation", "timings", "sandbox_s"}
    named = {row.column for row in TABLE}
    assert named >= {f"turns.{name}" for name in Turn.__slots__ if name not in of_people}
    assert named >= set(Trajectory.__slots__)
    assert len({(row.column, row.name) for row in TABLE}) == len(TABLE)


def test_no_corruption_is_an_accident_of_its_seed(rollouts):
    """Each changes what it says that it changes: seeds lead to different results."""
    _, trajectories = rollouts[0]
    for row in (row for row in TABLE if row.column in COLUMNS and row.name != "no_rows_at_all"):
        results = [corrupted(*rollouts[0], row, seed)[1] for seed in SEEDS]
        columns = [getattr(result[0], row.column).tobytes() for result in results]
        assert all(column != getattr(trajectories[0], row.column).tobytes() for column in columns), row.name
        assert any(a != b for a, b in pairwise(columns)), row.name
