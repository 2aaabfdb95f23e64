"""A text stack's trajectory says the same text, through ids that may not be those that were sampled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1.training.gap.text import as_text, stretch_differences, trained_as_text
from t1.types import Boundary, Case, IntArray, RolloutId, Trajectory

PIECES = ["", "a", "b", "c", "ab", "bc", "abc", " "]
"""Token id → text; id 0 is the stop id."""
STOP = 0


def decode(ids: IntArray) -> str:
    kept = ids[:-1] if len(ids) and ids[-1] == STOP else ids
    return "".join(PIECES[i] for i in kept)


def encode(text: str) -> IntArray:
    """The longest token that fits, from the left."""
    ids = []
    while text:
        best = max((i for i in range(1, len(PIECES)) if text.startswith(PIECES[i])), key=lambda i: len(PIECES[i]))
        ids.append(best)
        text = text[len(PIECES[best]) :]
    return np.array(ids, dtype=np.int32)


def trajectory(*turns: tuple[list[int], list[int]]) -> Trajectory:
    """(context, completion) of each turn; the log-probability of token t is −t/10."""
    tokens = np.concatenate([np.array(ids, dtype=np.int32) for turn in turns for ids in turn])
    mask = np.concatenate([np.repeat([False, True], [len(c), len(d)]) for c, d in turns])
    turn = np.concatenate([np.full(len(c) + len(d), i, dtype=np.int32) for i, (c, d) in enumerate(turns)])
    logprobs = np.where(mask, -np.arange(len(tokens)) / 10, 0).astype(np.float32)
    zeros = np.zeros(len(tokens), dtype=np.int32)
    boundaries = tuple(Boundary(i, Case.STRICT if i else Case.OPEN) for i in range(len(turns)))
    return Trajectory(RolloutId("t", 0, 0), 0, tokens, mask, logprobs, turn, zeros, None, boundaries)


def test_a_canonical_spelling_comes_back_as_it_was() -> None:
    sampled = trajectory(([7, 1], [6, STOP]), ([7], [4, 7, 1, STOP]))
    text = as_text(sampled, decode=decode, encode=encode)
    assert text is not None and text.num_lost == 0
    assert np.array_equal(text.trajectory.tokens, sampled.tokens)
    assert np.array_equal(text.trajectory.mask, sampled.mask)
    assert np.array_equal(text.trajectory.turn, sampled.turn)
    assert np.array_equal(text.origin, np.arange(len(sampled.tokens)))
    differences = stretch_differences(text, sampled.logprobs[sampled.mask] + 1, sampled.logprobs[sampled.mask])
    np.testing.assert_allclose(differences, 1, atol=1e-6)


def test_another_spelling_is_compared_where_the_texts_meet_case_t13() -> None:
    """Sampled a·bc·space·a·stop, re-encoded abc·space·a·stop: a stretch of two against one, the rest unchanged."""
    sampled = trajectory(([7], [1, 5, 7, 1, STOP]), ([3], [2, STOP]))
    text = as_text(sampled, decode=decode, encode=encode)
    assert text is not None
    assert text.trajectory.tokens.tolist() == [7, 6, 7, 1, STOP, 3, 2, STOP]
    assert text.origin.tolist() == [0, -1, 3, 4, 5, 6, 7, 8]
    assert text.sampled_stretch.tolist() == [0, 0, 1, 2, 3, 4, 5]
    assert text.stretch.tolist() == [0, 1, 2, 3, 4, 5]
    assert text.num_lost == 2
    sampler = sampled.logprobs[sampled.mask]
    trained = np.array([-1.3, -0.3, -0.4, -0.5, -0.7, -0.9], dtype=np.float32)
    differences = stretch_differences(text, trained, sampler)
    np.testing.assert_allclose(differences, [-0.5, -0.5, 0, 0, 0, 0, -0.1], atol=1e-6)


def test_one_stretch_may_have_more_tokens_than_were_sampled() -> None:
    """The context is never touched, though its text could be spelled otherwise too."""

    def by_letter(text: str) -> IntArray:
        return np.array([PIECES.index(letter) for letter in text], dtype=np.int32)

    sampled = trajectory(([1, 2], [6, 7]))
    text = as_text(sampled, decode=decode, encode=by_letter)
    assert text is not None
    assert text.trajectory.tokens.tolist() == [1, 2, 1, 2, 3, 7]
    assert text.stretch.tolist() == [0, 0, 0, 1] and text.sampled_stretch.tolist() == [0, 1]


def test_text_that_is_lost_altogether_has_nothing_to_compare() -> None:
    def nothing(text: str) -> IntArray:
        return np.zeros(0, dtype=np.int32)

    text = as_text(trajectory(([7], [1, 2, STOP])), decode=decode, encode=nothing)
    assert text is not None and text.num_lost == 2
    assert text.sampled_stretch.tolist() == [-1, -1, 1]
    assert as_text(trajectory(([7], [1, 2])), decode=decode, encode=nothing) is None


completions = st.lists(st.integers(1, len(PIECES) - 1), min_size=1, max_size=12)


@given(st.lists(st.tuples(completions, completions, st.booleans()), min_size=1, max_size=4))
def test_any_spelling_keeps_its_text_its_context_and_the_sum_of_its_log_probabilities(
    turns: list[tuple[list[int], list[int], bool]],
) -> None:
    sampled = trajectory(*((context, [*ids, STOP] if stops else ids) for context, ids, stops in turns))
    text = as_text(sampled, decode=decode, encode=encode)
    assert text is not None
    ours = text.trajectory
    assert [PIECES[i] for i in ours.tokens[~ours.mask]] == [PIECES[i] for i in sampled.tokens[~sampled.mask]]
    assert "".join(PIECES[i] for i in ours.tokens) == "".join(PIECES[i] for i in sampled.tokens)
    kept = text.origin >= 0
    assert np.array_equal(ours.tokens[kept], sampled.tokens[text.origin[kept]])
    assert (np.diff(text.origin[kept]) > 0).all()
    trained = np.random.default_rng(0).normal(size=ours.num_actions).astype(np.float32)
    sampler = sampled.logprobs[sampled.mask]
    differences = stretch_differences(text, trained, sampler)
    assert differences.sum() == pytest.approx(float(trained.sum() - sampler.sum()), abs=1e-3)


def test_a_stretch_of_other_ids_has_the_sampled_log_probabilities_in_equal_shares() -> None:
    sampled = trajectory(([7], [1, 5, 7, 1, STOP]), ([3], [2, STOP]))
    text = trained_as_text(sampled, decode=decode, encode=encode)
    assert text is not None and text.routing is None
    assert text.tokens.tolist() == [7, 6, 7, 1, STOP, 3, 2, STOP]
    assert text.logprobs[text.mask].tolist() == pytest.approx([-0.1 - 0.2, -0.3, -0.4, -0.5, -0.7, -0.8])
    assert (text.logprobs[~text.mask] == 0).all()
    assert text.logprobs.sum() == pytest.approx(sampled.logprobs.sum())
    assert np.array_equal(text.version, np.zeros(8))


def test_what_is_trained_as_text_keeps_the_versions_of_its_turns() -> None:
    sampled = trajectory(([7], [1, STOP]), ([3], [2, STOP]))
    sampled = replace(sampled, version=np.array([3, 3, 3, 3, 4, 4], dtype=np.int32))
    text = trained_as_text(sampled, decode=decode, encode=encode)
    assert text is not None and text.version[text.mask].tolist() == [3, 3, 4, 4]
