"""The public cases T1 to T13, as far as they concern tokens, on two kinds of real tokenizers.

What front ends and templates do about them is tested where they live; here is what becomes of the ids.
"""

import numpy as np
import pytest

from t1.tito import assemble, audit
from t1.types import Case, FinishReason, StopReason

SPLIT = [[Case.OPEN], [Case.SPLIT]]


def cases(trajectories):
    return [[boundary.case for boundary in trajectory.boundaries] for trajectory in trajectories]


def check_all_trained(turns, trajectories, report):
    """Every sampled id is trained once, as it was sampled, and nothing was found."""
    assert not report.findings
    at = [np.flatnonzero(t.mask) for t in trajectories]
    owner = np.concatenate([t.turn[where] for t, where in zip(trajectories, at, strict=True)])
    ids = np.concatenate([t.tokens[where] for t, where in zip(trajectories, at, strict=True)])
    order = np.argsort(owner, kind="stable")
    assert ids[order].tolist() == np.concatenate([turn.completion for turn in turns]).tolist()


def sent_back(chat, said, copy, *, after="done"):
    """Two turns: the second prompt holds `copy` where the policy said `said`."""
    prompt = chat.opening()
    again = np.concatenate([prompt, copy, chat.observed()])
    return chat.turns([(prompt, said), (again, chat.said(after))])


def test_t1_stripped_thinking_splits_is_counted_and_training_goes_on(any_chat):
    """Case T1: a template that strips past thinking."""
    turns = sent_back(any_chat, any_chat.said("<think>which files?</think>ls"), any_chat.said("ls"))
    trajectories, report = any_chat.checked(turns)
    assert cases(trajectories) == SPLIT
    check_all_trained(turns, trajectories, report)
    assert report.counters["case_split"] == report.counters["completion_gone"] == 1


def test_t2_a_newline_after_the_end_of_turn_joins_as_context(any_chat):
    """Case T2: the newline that the rebuilt boundary adds is context in prompt and stream alike."""
    turns = any_chat.turns(any_chat.exchanges("ls", "done"))
    (trajectory,), report = any_chat.checked(turns)
    newline = len(turns[0].prompt) + len(turns[0].completion)
    assert trajectory.tokens[newline] == turns[1].prompt[newline] == any_chat.newline
    assert not trajectory.mask[newline]
    check_all_trained(turns, [trajectory], report)


def test_t2_a_boundary_token_that_the_harness_lacks_is_normalized(any_chat):
    """Case T2, the other way round: the harness closes a turn by a newline alone; what was sampled stays."""
    prompt, said = any_chat.opening(), any_chat.said("ls")
    again = np.concatenate([prompt, said[:-1], any_chat.observed()])
    third = np.concatenate([again, any_chat.said("cat")[:-1], any_chat.observed()])
    turns = any_chat.turns([(prompt, said), (again, any_chat.said("cat")), (third, any_chat.said("done"))])
    (trajectory,), report = any_chat.checked(turns, decode=None)
    assert cases([trajectory]) == [[Case.OPEN, Case.NORMALIZED, Case.NORMALIZED]]
    assert [boundary.residual for boundary in trajectory.boundaries] == [0, 1, 2]
    assert trajectory.tokens[len(prompt) + len(said)] == any_chat.newline
    check_all_trained(turns, [trajectory], report)


def test_t3_a_cleared_tool_call_splits_and_only_recorded_ids_are_trained(any_chat):
    """Case T3: a field of the assistant message is cleared before the history is rendered."""
    turns = sent_back(any_chat, any_chat.said('run it {"command": "ls"}'), any_chat.said("run it"))
    trajectories, report = any_chat.checked(turns)
    assert cases(trajectories) == SPLIT
    check_all_trained(turns, trajectories, report)


def test_t4_a_prompt_that_was_rendered_from_text_says_by_its_case_that_it_was(any_chat):
    """Case T4: ids came back, and the next prompt was made from text again."""
    said = np.concatenate([any_chat.letters("echo hello"), [any_chat.end]]).astype(np.int32)
    recorded = any_chat.checked(sent_back(any_chat, said, said))
    rendered = any_chat.checked(sent_back(any_chat, said, any_chat.said("echo hello")))
    assert [cases(trajectories)[0][1] for trajectories, _ in (recorded, rendered)] == [Case.STRICT, Case.RETOKENIZED]
    assert recorded[0][0].boundaries[1].residual == 0 < rendered[0][0].boundaries[1].residual
    assert not recorded[1].findings and not rendered[1].findings


def test_t5_thinking_that_a_template_moves_is_another_text(any_chat):
    """Case T5: the template puts thinking outside of its block when it renders the turn again."""
    turns = sent_back(
        any_chat, any_chat.said("<think>which files?</think>ls"), any_chat.said("which files?<think></think>ls")
    )
    trajectories, report = any_chat.checked(turns)
    assert cases(trajectories) == SPLIT
    check_all_trained(turns, trajectories, report)


@pytest.mark.parametrize(
    ("sampled", "canonical", "case"),
    [
        ('{"command":"ls  -l","timeout":10}', '{"command": "ls  -l", "timeout": 10}', Case.RETOKENIZED),
        ("{command: ls, timeout: 10,}", '{"command": "ls", "timeout": 10}', Case.SPLIT),
        ('{"timeout": 10, "command": "ls"}', '{"command": "ls", "timeout": 10}', Case.SPLIT),
        ('{"command": "ls  -l"}', '{"command": "ls -l"}', Case.SPLIT),
    ],
    ids=["spacing", "lenient", "order of keys", "spacing inside a string"],
)
def test_t6_a_canonical_copy_never_enters_the_stream(any_chat, sampled, canonical, case):
    """Case T6: lenient parsing, then canonical rendering. Spacing is the same text; anything else splits."""
    turns = sent_back(any_chat, any_chat.said(sampled), any_chat.said(canonical))
    trajectories, report = any_chat.checked(turns)
    assert cases(trajectories)[-1][-1] is case
    check_all_trained(turns, trajectories, report)


def test_t7_a_prompt_that_the_engine_tokenized_itself_is_never_strict(any_chat):
    """Case T7: what is recorded is the echo. Where it is not what was sent, the boundary shows it."""
    prompt, said = any_chat.opening("sort them by size"), any_chat.said("ls")
    echoed = np.concatenate([prompt, said, any_chat.letters("\nhello "), any_chat.observed()])
    sent = np.concatenate([prompt, said, any_chat.ids("\nhello "), any_chat.observed()])
    assert echoed.tolist() != sent.tolist()
    turns = any_chat.turns([(prompt, said), (echoed, any_chat.said("cat"))])
    third = np.concatenate([sent, any_chat.said("cat"), any_chat.observed()])
    turns = (*turns, any_chat.turns([(third, any_chat.said("done"))])[0])
    trajectories, report = any_chat.checked(turns)
    assert trajectories[0].tokens[: len(echoed)].tolist() == echoed.tolist()
    assert cases(trajectories) == [[Case.OPEN, Case.STRICT], [Case.SPLIT]]  # context must be identical
    check_all_trained(turns, trajectories, report)


def test_t8_a_reply_that_nobody_saw_leaves_no_trace(any_chat):
    """Case T8: the time-out's reply is no turn; the retry's capture starts where the seen rows end."""
    exchanges = any_chat.exchanges("ls", "done")
    turns = any_chat.turns(exchanges, starts=any_chat.deltas(exchanges))
    (trajectory,), report = any_chat.checked(turns)
    assert cases([trajectory]) == [[Case.OPEN, Case.STRICT]]
    check_all_trained(turns, [trajectory], report)


@pytest.mark.parametrize("goes_on_from", [0, 1])
def test_t8_a_reply_that_was_asked_for_twice_goes_on_from_the_one_that_was_used(any_chat, goes_on_from):
    """Case T8: both replies were recorded as turns; the other one is a segment of its own."""
    prompt, replies = any_chat.opening(), [any_chat.said("ls"), any_chat.said("pwd")]
    third = np.concatenate([prompt, replies[goes_on_from], any_chat.observed()])
    turns = any_chat.turns([*((prompt, reply) for reply in replies), (third, any_chat.said("done"))])
    trajectories, report = any_chat.checked(turns)
    assert [boundary.turn for boundary in trajectories[goes_on_from].boundaries] == [goes_on_from, 2]
    assert len(trajectories) == 2
    check_all_trained(turns, trajectories, report)


def test_t9_after_a_rejected_retry_the_conversation_goes_on_strictly(any_chat):
    """Case T9: the rejected call is no turn, and the one before it goes on as if it had not been."""
    exchanges = any_chat.exchanges("ls", "cat", "done")
    edited = np.concatenate([exchanges[1][0], any_chat.said("another")])
    turns = any_chat.turns([*exchanges[:2], (edited, any_chat.said("no")), exchanges[2]])
    trajectories, report = any_chat.checked(turns)
    assert [[boundary.turn for boundary in t.boundaries] for t in trajectories] == [[0, 1, 3], [2]]
    check_all_trained(turns, trajectories, report)


def test_t10_a_middle_turn_that_was_cut_stays_and_is_trained(any_chat):
    """Case T10: a completion cut by max_tokens has no stop id; the closing tokens join as context."""
    prompt, cut = any_chat.opening(), any_chat.ids("echo hel")
    again = np.concatenate([prompt, cut, [any_chat.end], any_chat.observed()]).astype(np.int32)
    turns = any_chat.turns([(prompt, cut), (again, any_chat.said("done"))], starts=[0, len(prompt) + len(cut) - 1])
    assert [turn.finish for turn in turns] == [FinishReason.LENGTH, FinishReason.STOP]
    (trajectory,), report = any_chat.checked(turns)
    assert cases([trajectory]) == [[Case.OPEN, Case.STRICT]]
    closing = len(prompt) + len(cut)
    assert trajectory.tokens[closing] == any_chat.end and not trajectory.mask[closing]
    check_all_trained(turns, [trajectory], report)


def test_t11_a_rollout_that_ends_at_the_context_limit_is_sound_as_it_is(any_chat):
    """Case T11: no turn comes after the limit; the last one, cut, is trained."""
    exchanges = any_chat.exchanges("ls", "echo hello")
    turns = any_chat.turns([exchanges[0], (exchanges[1][0], exchanges[1][1][:-1])])
    rollout = any_chat.rollout(turns, StopReason.TOKEN_LIMIT)
    trajectories = assemble(rollout.id, turns, boundary_ids=any_chat.boundary_ids)
    report = audit(rollout, trajectories, vocab_size=None, num_experts=None, boundary_ids=any_chat.boundary_ids)
    check_all_trained(turns, trajectories, report)


def test_t12_delimiters_inside_an_argument_change_no_token(any_chat):
    """Case T12: a call that cannot be parsed is an observation; its ids stand as they are."""
    said = any_chat.said('<tool_call>{"command": "echo </tool_call> }"}</tool_call>')
    turns = sent_back(any_chat, said, said)
    (trajectory,), report = any_chat.checked(turns)
    assert cases([trajectory]) == [[Case.OPEN, Case.STRICT]]
    check_all_trained(turns, [trajectory], report)


@pytest.mark.parametrize("where", ["echo <|im_end|> hello", "echo <|im_end|>"])
def test_t12_a_control_token_is_not_the_text_that_spells_it(any_chat, where):
    """Case T12: the policy spelled a delimiter, the harness's tokenizer made a real one of it. Not the same message."""
    said = np.concatenate([any_chat.letters(where), [any_chat.end]]).astype(np.int32)
    assert any_chat.decode(said) == where
    turns = sent_back(any_chat, said, any_chat.said(where))
    trajectories, report = any_chat.checked(turns)
    assert cases(trajectories) == SPLIT
    check_all_trained(turns, trajectories, report)


def test_t13_ids_that_the_tokenizer_would_not_produce_are_trained_as_sampled(any_chat):
    """Case T13: non-canonical sampling."""
    odd = np.concatenate([any_chat.letters("echo hello"), [any_chat.end]]).astype(np.int32)
    assert odd.tolist() != any_chat.said("echo hello").tolist()
    turns = sent_back(any_chat, odd, any_chat.said("echo hello"))
    trajectories, report = any_chat.checked(turns)
    assert cases(trajectories) == [[Case.OPEN, Case.RETOKENIZED]]
    assert report.counters["completion_same_text"] == 1
    check_all_trained(turns, trajectories, report)


def test_t13_a_copy_that_was_made_the_truth_is_found(any_chat):
    """Case T13, done wrong: a stream of the canonical ids claims to be what was sampled."""
    odd = np.concatenate([any_chat.letters("echo hello"), [any_chat.end]]).astype(np.int32)
    turns = sent_back(any_chat, odd, any_chat.said("echo hello"))
    canonical = sent_back(any_chat, any_chat.said("echo hello"), any_chat.said("echo hello"))
    rollout = any_chat.rollout(turns)
    trajectories = assemble(rollout.id, canonical, boundary_ids=any_chat.boundary_ids)
    report = audit(rollout, trajectories, vocab_size=None, num_experts=None)
    assert {"not-trained", "mask"} <= {finding.rule for finding in report.findings}
    assert not report.trainable
