"""The four cases on a real BPE, and the rows that each segment gets."""

import numpy as np
import pytest

from t1.errors import RoutingError
from t1.tito import assemble, truncate
from t1.types import Case, RolloutId


def cases(trajectories):
    return [[boundary.case for boundary in trajectory.boundaries] for trajectory in trajectories]


def sampled(trajectories):
    return np.concatenate([trajectory.tokens[trajectory.mask] for trajectory in trajectories]).tolist()


def everything(turns):
    return np.concatenate([turn.completion for turn in turns]).tolist()


def test_an_append_only_conversation_is_one_strict_segment(chat):
    turns = chat.turns(chat.exchanges("ls", "echo hello", "done"))
    (trajectory,), report = chat.checked(turns)
    assert cases([trajectory]) == [[Case.OPEN, Case.STRICT, Case.STRICT]]
    assert trajectory.tokens.tolist() == [*turns[2].prompt, *turns[2].completion]
    assert sampled([trajectory]) == everything(turns)
    np.testing.assert_array_equal(trajectory.logprobs[trajectory.mask], np.concatenate([t.logprobs for t in turns]))
    assert not trajectory.logprobs[~trajectory.mask].any()
    assert all(boundary.residual == boundary.dropped == 0 for boundary in trajectory.boundaries)
    assert not report.findings
    assert report.counters["completion_exact"] == 2


def test_context_carries_the_turn_that_brought_it_and_the_version_that_sampled_next(chat):
    turns = chat.turns(chat.exchanges("ls", "done"), versions=[3, 4])
    (trajectory,), report = chat.checked(turns)
    first = len(turns[0].prompt) + len(turns[0].completion)
    assert set(trajectory.turn[:first]) == {0} and set(trajectory.turn[first:]) == {1}
    assert set(trajectory.version[:first]) == {3} and set(trajectory.version[first:]) == {4}
    assert not report.findings


def test_a_rollout_without_turns_has_no_segments():
    assert assemble(RolloutId("task", 0, 0), ()) == ()


def test_whitespace_before_the_stop_id_is_normalized_and_its_row_kept(chat):
    prompt = chat.opening()
    said = np.concatenate([chat.ids("ls\n"), [chat.end]]).astype(np.int32)
    again = np.concatenate([prompt, chat.said("ls"), chat.observed()])
    turns = chat.turns([(prompt, said), (again, chat.said("done"))], starts=[0, len(prompt) + len(chat.said("ls")) - 1])
    (trajectory,), report = chat.checked(turns, decode=None)
    assert cases([trajectory]) == [[Case.OPEN, Case.NORMALIZED]]
    np.testing.assert_array_equal(trajectory.routing, np.concatenate([turn.routing for turn in turns]))
    assert not report.findings


def test_an_accepted_edit_is_carried_on_while_it_stands_in_the_history(chat):
    prompt = chat.opening()
    odd = np.concatenate([chat.letters("echo hello"), [chat.end]]).astype(np.int32)
    second = np.concatenate([prompt, chat.said("echo hello"), chat.observed()])
    third = np.concatenate([second, chat.said("cat"), chat.observed()])
    turns = chat.turns([(prompt, odd), (second, chat.said("cat")), (third, chat.said("done"))])
    (trajectory,), report = chat.checked(turns)
    assert cases([trajectory]) == [[Case.OPEN, Case.RETOKENIZED, Case.RETOKENIZED]]
    assert trajectory.boundaries[1].residual == trajectory.boundaries[2].residual
    assert not report.findings


def test_a_history_that_is_tokenized_anew_later_is_found_in_the_middle(chat):
    prompt = chat.opening()
    odd = np.concatenate([chat.letters("echo hello"), [chat.end]]).astype(np.int32)
    second = np.concatenate([prompt, odd, chat.observed()])
    third = np.concatenate([prompt, chat.said("echo hello"), chat.observed(), chat.said("cat"), chat.observed()])
    fourth = np.concatenate([second, chat.said("cat"), chat.observed(), chat.said("pwd"), chat.observed()])
    turns = chat.turns(
        [(prompt, odd), (second, chat.said("cat")), (third, chat.said("pwd")), (fourth, chat.said("done"))]
    )
    (trajectory,), report = chat.checked(turns)
    assert cases([trajectory]) == [[Case.OPEN, Case.STRICT, Case.RETOKENIZED, Case.STRICT]]
    assert trajectory.boundaries[3].residual == 0
    assert not report.findings


def test_json_spacing_of_a_tool_call_is_the_same_text(chat):
    prompt = chat.opening()
    again = np.concatenate([prompt, chat.said('{"command":"grep  x","timeout":10}'), chat.observed()])
    turns = chat.turns([(prompt, chat.said('{"command": "grep  x", "timeout": 10}')), (again, chat.said("done"))])
    (trajectory,), report = chat.checked(turns)
    assert cases([trajectory]) == [[Case.OPEN, Case.RETOKENIZED]]
    assert not report.findings


@pytest.mark.parametrize("changed", ["grep y", "", "grep x and more"])
def test_other_text_splits(chat, changed):
    prompt = chat.opening()
    again = np.concatenate([prompt, chat.said(changed), chat.observed()])
    turns = chat.turns([(prompt, chat.said("grep x")), (again, chat.said("done"))])
    trajectories, report = chat.checked(turns)
    assert cases(trajectories) == [[Case.OPEN], [Case.SPLIT]]
    assert sampled(trajectories) == everything(turns)
    assert not report.findings


def test_without_decode_other_ids_split(chat):
    prompt = chat.opening()
    again = np.concatenate([prompt, chat.said("echo hello"), chat.observed()])
    odd = np.concatenate([chat.letters("echo hello"), [chat.end]]).astype(np.int32)
    trajectories, report = chat.checked(chat.turns([(prompt, odd), (again, chat.said("done"))]), decode=None)
    assert cases(trajectories) == [[Case.OPEN], [Case.SPLIT]]
    assert report.counters["completion_unverified"] == 1


def test_on_residual_split_keeps_only_exact_streams(chat):
    prompt = chat.opening()
    odd = np.concatenate([chat.letters("echo hello"), [chat.end]]).astype(np.int32)
    second = np.concatenate([prompt, chat.said("echo hello"), chat.observed()])
    third = np.concatenate([second, chat.said("cat"), chat.observed()])
    turns = chat.turns([(prompt, odd), (second, chat.said("cat")), (third, chat.said("done"))])
    trajectories, report = chat.checked(turns, on_residual="split")
    assert cases(trajectories) == [[Case.OPEN], [Case.SPLIT, Case.STRICT]]
    assert report.counters["residual"] == 0


# --------------------------------------------------------------------------------------------------------------------
# Routing


def test_rows_of_delta_captures_join_to_one_row_a_fed_token(chat):
    exchanges = chat.exchanges("ls", "echo hello", "done")
    turns = chat.turns(exchanges, starts=chat.deltas(exchanges))
    (trajectory,), report = chat.checked(turns)
    np.testing.assert_array_equal(trajectory.routing, np.concatenate([turn.routing for turn in turns]))
    assert len(trajectory.routing) == len(trajectory.tokens) - 1
    assert report.counters["routing_disagreements"] == 0


def test_the_first_capture_of_a_position_wins_and_disagreement_is_counted(chat):
    """Case R7: a later turn that captures old positions again changes no row."""
    exchanges = chat.exchanges("ls", "done")
    turns = chat.turns(exchanges, starts=[0, 0])
    (trajectory,), report = chat.checked(turns)
    held = len(turns[0].routing)
    np.testing.assert_array_equal(trajectory.routing[:held], turns[0].routing)
    np.testing.assert_array_equal(trajectory.routing[held:], turns[1].routing[held:])
    again = (turns[1].routing[:held] != turns[0].routing).any(axis=(1, 2)).sum()
    assert report.counters["routing_disagreements"] == again > 0
    assert not report.findings


def test_a_capture_that_starts_late_is_refused(chat):
    exchanges = chat.exchanges("ls", "done")
    starts = chat.deltas(exchanges)
    with pytest.raises(RoutingError, match="1 rows late"):
        chat.checked(chat.turns(exchanges, starts=[0, starts[1] + 1]))


def test_a_turn_without_a_capture_among_others_is_refused(chat):
    exchanges = chat.exchanges("ls", "done")
    turns = (chat.turns(exchanges, starts=[0, 0])[0], chat.turns(exchanges)[1])
    with pytest.raises(RoutingError, match=r"turns \[1\]: no capture"):
        chat.checked(turns)


def test_with_routing_a_token_that_was_never_fed_splits_instead_of_getting_a_row(chat):
    prompt, said = chat.opening(), chat.said("ls")
    again = np.concatenate([prompt, said[:-1], chat.observed()])
    exchanges = [(prompt, said), (again, chat.said("done"))]
    trajectories, report = chat.checked(chat.turns(exchanges, starts=[0, 0]))
    assert cases(trajectories) == [[Case.OPEN], [Case.SPLIT]]
    assert not report.findings


def test_a_split_segment_borrows_the_rows_of_the_prefix_that_was_fed_before(chat):
    prompt, said = chat.opening(), chat.said("grep x")
    again = np.concatenate([prompt, chat.observed("try once more")])
    turns = chat.turns([(prompt, said), (again, chat.said("done"))], starts=[0, len(prompt)])
    trajectories, report = chat.checked(turns)
    assert cases(trajectories) == [[Case.OPEN], [Case.SPLIT]]
    expected = np.concatenate([turns[0].routing[: len(prompt)], turns[1].routing])
    np.testing.assert_array_equal(trajectories[1].routing, expected)
    assert not report.findings


def test_rows_made_by_other_weights_are_not_borrowed(chat):
    """Case R5: a row belongs to the weights that made it."""
    prompt, said = chat.opening(), chat.said("grep x")
    again = np.concatenate([prompt, chat.observed("try once more")])
    turns = chat.turns([(prompt, said), (again, chat.said("done"))], starts=[0, len(prompt)], versions=[5, 6])
    with pytest.raises(RoutingError, match="no turn of version 6"):
        chat.checked(turns)


def test_a_retokenized_history_takes_each_row_from_the_turn_that_fed_the_token(chat):
    prompt = chat.opening()
    odd = np.concatenate([chat.letters("echo hello"), [chat.end]]).astype(np.int32)
    again = np.concatenate([prompt, chat.said("echo hello"), chat.observed()])
    turns = chat.turns([(prompt, odd), (again, chat.said("done"))], starts=[0, 0])
    (trajectory,), report = chat.checked(turns)
    new = len(chat.observed()) + len(turns[1].completion)
    np.testing.assert_array_equal(trajectory.routing, np.concatenate([turns[0].routing, turns[1].routing[-new:]]))
    assert not report.findings


# --------------------------------------------------------------------------------------------------------------------
# Truncation


def test_truncation_cuts_every_column_at_the_last_sampled_token(chat):
    """Case R2: tokens and routes are cut together."""
    exchanges = chat.exchanges("ls", "echo hello", "done")
    (trajectory,), _ = chat.checked(chat.turns(exchanges, starts=chat.deltas(exchanges)))
    second = len(exchanges[1][0]) + len(exchanges[1][1])
    short = truncate(trajectory, second + 2)
    assert len(short.tokens) == second
    assert len(short.routing) == second - 1
    for column in ("tokens", "mask", "logprobs", "turn", "version"):
        np.testing.assert_array_equal(getattr(short, column), getattr(trajectory, column)[:second])
    np.testing.assert_array_equal(short.routing, trajectory.routing[: second - 1])
    assert [boundary.turn for boundary in short.boundaries] == [0, 1]
    assert truncate(trajectory, 10**6).tokens.tolist() == trajectory.tokens.tolist()
    with pytest.raises(ValueError, match="no sampled token"):
        truncate(trajectory, len(exchanges[0][0]))
