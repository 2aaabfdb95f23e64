"""Several conversations in one session: each turn joins the stream that it continues best, and credit follows time."""

from dataclasses import replace

import numpy as np
import pytest

from t1.tito import assemble, audit
from t1.types import Boundary, Case, Severity


def cases(trajectories):
    return [[boundary.case for boundary in trajectory.boundaries] for trajectory in trajectories]


def owners(trajectories):
    return [[boundary.turn for boundary in trajectory.boundaries] for trajectory in trajectories]


def talk(chat, *texts, opening="list the files"):
    """(prompt, completion) of an append-only conversation that starts with its own message."""
    prompt, exchanges = chat.opening(opening), []
    for text in texts:
        exchanges.append((prompt, chat.said(text)))
        prompt = np.concatenate([prompt, chat.said(text), chat.observed()])
    return exchanges


def interleaved(chat, first, second, **options):
    """The turns A1 B1 A2 B2 …, each branch with delta captures of its own."""
    order = [one for pair in zip(first, second, strict=True) for one in pair]
    starts = [start for pair in zip(chat.deltas(first), chat.deltas(second), strict=True) for start in pair]
    return chat.turns(order, starts=starts, **options)


def errors(report):
    return [finding.rule for finding in report.findings if finding.severity is Severity.ERROR]


def test_two_conversations_that_take_turns_are_two_strict_segments(chat):
    turns = interleaved(chat, talk(chat, "ls", "cat", "done"), talk(chat, "pwd", "echo x", "yes", opening="look"))
    trajectories, report = chat.checked(turns)
    assert owners(trajectories) == [[0, 2, 4], [1, 3, 5]]
    assert cases(trajectories) == [[Case.OPEN, Case.STRICT, Case.STRICT], [Case.SPLIT, Case.STRICT, Case.STRICT]]
    assert not report.findings
    assert report.counters["completion_exact"] == 4 and report.counters["completion_gone"] == 0


def test_rows_of_a_turn_go_on_where_its_own_branch_ended(chat):
    turns = interleaved(chat, talk(chat, "ls", "cat"), talk(chat, "pwd", "echo x", opening="look"))
    trajectories, report = chat.checked(turns)
    for branch, trajectory in enumerate(trajectories):
        own = np.concatenate([turn.routing for turn in turns[branch::2]])
        np.testing.assert_array_equal(trajectory.routing, own)
    assert not report.findings


def test_a_side_call_does_not_end_the_main_conversation(chat):
    main = talk(chat, "ls", "cat", "done")
    aside = [(chat.opening("a title for this"), chat.said("files"))]
    trajectories, report = chat.checked(chat.turns([main[0], *aside, main[1], *aside, main[2]]))
    assert owners(trajectories) == [[0, 2, 4], [1], [3]]
    assert not report.findings


def test_a_fork_of_one_history_is_trained_once_and_is_context_for_the_other(chat):
    """Two sub-agents start from the same history: whoever goes on first keeps the stream."""
    first, *_ = talk(chat, "ls", "done")
    left, right = (np.concatenate([*first, chat.observed(text)]) for text in ("go left", "go right"))
    further = np.concatenate([right, chat.said("cat"), chat.observed()])
    exchanges = [first, (left, chat.said("yes")), (right, chat.said("cat")), (further, chat.said("done"))]
    trajectories, report = chat.checked(chat.turns(exchanges, starts=[0] * 4))
    assert owners(trajectories) == [[0, 1], [2, 3]]
    assert not trajectories[1].mask[: len(right)].any()
    assert not report.findings


def test_strict_in_an_older_segment_goes_before_an_edit_in_the_last_one(chat):
    """The prompt starts with the first stream; up to a boundary token it also goes on from the second."""
    prompt, said = chat.opening(), chat.said("ls")
    bare = np.concatenate([said[:-1], [chat.newline, chat.end]]).astype(np.int32)
    third = np.concatenate([prompt, said, chat.observed()])
    trajectories, report = chat.checked(chat.turns([(prompt, said), (prompt, bare), (third, chat.said("done"))]))
    assert owners(trajectories) == [[0, 2], [1]]
    assert cases(trajectories)[0] == [Case.OPEN, Case.STRICT]
    assert not report.findings


def test_normalized_in_an_older_segment_goes_before_retokenized_in_the_last_one(chat):
    prompt, said = chat.opening(), chat.said("echo hello")
    odd = np.concatenate([chat.letters("echo hello"), [chat.end]]).astype(np.int32)
    third = np.concatenate([prompt, said[:-1], chat.observed()])  # the stop id is missing
    trajectories, report = chat.checked(chat.turns([(prompt, said), (prompt, odd), (third, chat.said("done"))]))
    assert owners(trajectories) == [[0, 2], [1]]
    assert cases(trajectories)[0] == [Case.OPEN, Case.NORMALIZED]
    assert not report.findings


def test_a_retokenized_turn_joins_a_branch_that_is_not_the_last(chat):
    main = talk(chat, "echo hello", "done")
    odd = np.concatenate([chat.letters("echo hello"), [chat.end]]).astype(np.int32)
    aside = talk(chat, "files", opening="a title for this")
    trajectories, report = chat.checked(chat.turns([(main[0][0], odd), *aside, main[1]]))
    assert owners(trajectories) == [[0, 2], [1]]
    assert cases(trajectories)[0] == [Case.OPEN, Case.RETOKENIZED]
    assert not report.findings
    exact, report = chat.checked(chat.turns([(main[0][0], odd), *aside, main[1]]), on_residual="split")
    assert owners(exact) == [[0], [1], [2]]
    assert not report.findings


def test_the_longest_stream_wins_where_several_fit(chat):
    main = talk(chat, "ls", "cat", "done")
    forked = np.concatenate([*main[0], chat.observed("once more")])
    exchanges = [main[0], (forked, chat.said("yes")), main[1], main[2]]
    trajectories, report = chat.checked(chat.turns(exchanges))
    assert owners(trajectories) == [[0, 1], [2, 3]]
    assert not report.findings


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_streams_that_both_fit_exactly_the_longer_one_goes_on(chat, first):
    """One reply was cut where the other went on, so the prompt begins with both streams."""
    prompt, whole = chat.opening(), chat.said("echo hello")
    replies = [whole, whole[:2]] if first == 0 else [whole[:2], whole]
    third = np.concatenate([prompt, whole, chat.observed()])
    turns = chat.turns([*((prompt, reply) for reply in replies), (third, chat.said("done"))])
    trajectories, report = chat.checked(turns)
    assert sorted(map(len, owners(trajectories))) == [1, 2]
    assert owners(trajectories)[first] == [first, 2]
    assert not report.findings


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_streams_that_both_fit_with_edits_the_longer_one_goes_on(chat, first):
    prompt, short = chat.opening(), chat.said("ls")
    long = np.concatenate([short[:-1], [chat.newline, chat.end]]).astype(np.int32)
    replies = [long, short] if first == 0 else [short, long]
    third = np.concatenate([prompt, short[:-1], chat.observed()])
    turns = chat.turns([*((prompt, reply) for reply in replies), (third, chat.said("done"))])
    trajectories, report = chat.checked(turns)
    assert owners(trajectories)[first] == [first, 2]
    assert trajectories[first].boundaries[1].case is Case.NORMALIZED
    assert not report.findings


def test_text_is_compared_with_the_branches_that_grew_last(chat):
    asides = [(chat.opening(f"a title {index}"), chat.said("files")) for index in range(12)]
    prompt, odd = chat.opening(), np.concatenate([chat.letters("echo hello"), [chat.end]]).astype(np.int32)
    again = np.concatenate([prompt, chat.said("echo hello"), chat.observed()])
    lately, report = chat.checked(chat.turns([*asides, (prompt, odd), (again, chat.said("done"))]))
    assert owners(lately)[-1] == [12, 13] and not report.findings
    long_ago, report = chat.checked(chat.turns([(prompt, odd), *asides, (again, chat.said("done"))]))
    assert owners(long_ago)[-1] == [13] and not report.findings  # split: sound, only less context shared


def test_versions_may_step_back_between_branches_but_not_within_one(chat):
    """Two samplers of a fleet are updated one after the other: each branch sees versions that only grow."""
    branches = talk(chat, "ls", "cat"), talk(chat, "pwd", "echo x", opening="look")
    _, report = chat.checked(interleaved(chat, *branches, versions=[4, 3, 5, 4]))
    assert not report.findings
    _, report = chat.checked(interleaved(chat, *branches, versions=[4, 3, 3, 4]))
    assert errors(report) == ["version-order"]


def test_a_completion_in_the_stream_of_the_other_branch_is_found(chat):
    """Both branches say the same, so that every trained number is right and only the context is another's."""
    turns = interleaved(chat, talk(chat, "ls", "done"), talk(chat, "pwd", "done", opening="look"))
    turns = (*turns[:3], replace(turns[3], logprobs=turns[2].logprobs))
    rollout = chat.rollout(turns)
    other = {0: 0, 1: 1, 2: 3, 3: 2}
    swapped = [
        replace(
            segment,
            turn=np.array([other[turn] for turn in segment.turn.tolist()], dtype=np.int32),
            boundaries=tuple(replace(boundary, turn=other[boundary.turn]) for boundary in segment.boundaries),
        )
        for segment in assemble(rollout.id, turns)
    ]
    report = audit(rollout, swapped, vocab_size=None, num_experts=None)
    assert "context" in errors(report) and "loss-drift" not in errors(report)


def test_segments_out_of_time_order_are_found_whatever_their_numbers(chat):
    turns = interleaved(chat, talk(chat, "ls", "cat"), talk(chat, "pwd", "echo x", opening="look"))
    rollout = chat.rollout(turns)
    first, second = assemble(rollout.id, turns)
    swapped = (replace(second, segment=0), replace(first, segment=1))
    assert errors(audit(rollout, swapped, vocab_size=None, num_experts=None)) == ["segments"]


def test_a_split_that_was_not_needed_is_a_warning(chat):
    first, second = chat.turns(talk(chat, "ls", "done"))
    rollout = chat.rollout((first, second))
    (alone,) = assemble(rollout.id, (first,))
    (other,) = assemble(rollout.id, (second,))
    opened = replace(
        other, segment=1, turn=other.turn + 1, boundaries=(Boundary(1, Case.SPLIT, 0, len(second.prompt)),)
    )
    report = audit(rollout, (alone, opened), vocab_size=None, num_experts=None)
    assert [(finding.rule, finding.severity) for finding in report.findings] == [("needless-split", Severity.WARNING)]
    assert report.trainable


@pytest.mark.parametrize("num_asides", [1, 30])
def test_many_open_branches_do_not_hide_the_main_one(chat, num_asides):
    """Text is compared with the branches that grew last; ids are compared with all of them."""
    main = talk(chat, "ls", "done")
    asides = [(chat.opening(f"a title {index}"), chat.said("files")) for index in range(num_asides)]
    trajectories, report = chat.checked(chat.turns([main[0], *asides, main[1]]))
    assert owners(trajectories)[0] == [0, num_asides + 1]
    assert len(trajectories) == num_asides + 1
    assert not report.findings
