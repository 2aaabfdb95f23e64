"""Broken captures are refused, sound ones are not; rows of turns join without a row being made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1.errors import RoutingError
from t1.routing import check_capture, disagreement, join
from t1.types import FinishReason, Turn

LAYERS, EXPERTS, TOP_K = 3, 8, 2


def capture(rows: int, *, seed: int = 0, experts: int = EXPERTS, top_k: int = TOP_K, layers: int = LAYERS) -> Any:
    """Random distinct experts, uint8 [rows, layers, top_k]."""
    return np.random.default_rng(seed).random((rows, layers, experts)).argsort(-1)[..., :top_k].astype(np.uint8)


def check(routing: Any, *, rows: int = 40, tokens: Any = None, **changes: int) -> None:
    """check_capture for the model of this file."""
    shape = {"num_rows": rows, "num_experts": EXPERTS, "top_k": TOP_K, "num_layers": LAYERS, **changes}
    check_capture(routing, tokens=tokens, **shape)


TOKENS = np.arange(40, dtype=np.int32)


def test_a_sound_capture_passes() -> None:
    check(capture(40))
    check(capture(40), tokens=TOKENS)
    check(capture(0), rows=0)


def test_a_missing_capture_is_refused() -> None:
    """Case R6: missing is explicit."""
    with pytest.raises(RoutingError, match=r"missing, expected \[40, 3, 2\]"):
        check(None)


@pytest.mark.parametrize(
    "routing",
    [
        capture(39), capture(41), capture(40, layers=2), capture(40, top_k=1), capture(40).astype(np.int64),
        capture(40)[0],
    ],
    ids=["short", "long", "layers", "top-k", "dtype", "axes"],
)  # fmt: skip
def test_another_shape_is_refused_with_both_shapes(routing: Any) -> None:
    """Cases R3 and R8."""
    with pytest.raises(RoutingError, match=r"expected uint8 or uint16 \[40, 3, 2\], got"):
        check(routing)


def test_an_expert_out_of_range_is_refused() -> None:
    routing = capture(40)
    routing[7, 1, 0] = EXPERTS
    with pytest.raises(RoutingError, match="expert 8 out of range"):
        check(routing)


def test_rows_of_zeros_are_refused() -> None:
    """Cases R4 and R8: a short capture filled up with expert 0."""
    routing = capture(40)
    routing[30:] = 0
    with pytest.raises(RoutingError, match="10 of 40 rows are all zero, first 30"):
        check(routing)


def test_a_top_1_model_may_send_a_token_to_expert_0_in_every_layer_but_not_all_of_them() -> None:
    routing = capture(40, top_k=1)
    routing[5] = 0
    check(routing, top_k=1)
    with pytest.raises(RoutingError, match="all zero"):
        check(np.zeros_like(routing), top_k=1)


def test_an_expert_twice_in_a_layer_is_refused() -> None:
    routing = capture(40)
    routing[7, 1] = [3, 3]
    with pytest.raises(RoutingError, match=r"row 7, layer 1 names an expert twice: \[3, 3\]"):
        check(routing)


def test_a_tail_that_repeats_one_row_under_different_tokens_is_refused() -> None:
    """Case R4: padded rows repeat the previous row."""
    routing = capture(40)
    routing[29:] = routing[28]
    with pytest.raises(RoutingError, match="rows 28 to 39 are one row repeated under 12 different tokens"):
        check(routing, tokens=TOKENS)


def test_repeated_rows_under_one_repeated_token_are_no_fault() -> None:
    routing, tokens = capture(40), TOKENS.copy()
    routing[10:35], tokens[10:35] = routing[10], 7
    check(routing, tokens=tokens)


def test_a_router_that_often_repeats_is_not_accused_of_padding() -> None:
    """The rule measures a run by the capture's own rate of repeats."""
    rng = np.random.default_rng(0)
    two = capture(2)
    for _ in range(200):
        check(two[(rng.random(400) < 0.2).astype(int)], rows=400, tokens=np.arange(400, dtype=np.int32))


def test_one_row_for_all_tokens_is_refused_even_without_the_tokens() -> None:
    with pytest.raises(RoutingError, match="all 40 rows are the same row"):
        check(np.repeat(capture(1), 40, axis=0))


@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(2, 5))
def test_random_captures_pass(seed: int, rows: int, experts: int) -> None:
    """A tiny model repeats rows by chance, and is left alone."""
    routing = capture(rows, seed=seed, experts=experts, layers=1)
    check(routing, rows=rows, num_layers=1, num_experts=experts, tokens=np.arange(rows, dtype=np.int32))


def turn(size: int, completion: int, *, start: int, rows: Any) -> Turn:
    """A turn of `size` tokens in all, the last `completion` of them sampled."""
    zeros = np.zeros(completion, dtype=np.int32)
    prompt = np.zeros(size - completion, dtype=np.int32)
    return Turn(prompt, zeros, zeros.astype(np.float32), zeros, FinishReason.STOP, rows, start)


def test_turns_join_to_one_row_per_fed_token() -> None:
    rows = capture(29)
    turns = [
        turn(10, 4, start=0, rows=rows[:9]),
        turn(18, 3, start=9, rows=rows[9:17]),
        turn(30, 9, start=17, rows=rows[17:]),
    ]
    assert np.array_equal(join(turns), rows)


def test_where_two_turns_captured_a_position_the_first_one_counts() -> None:
    """Case R7: rows are append-only."""
    first, second = capture(9, seed=1), capture(17, seed=2)
    joined = join([turn(10, 4, start=0, rows=first), turn(18, 3, start=0, rows=second)])
    assert np.array_equal(joined, np.concatenate([first, second[9:]]))
    assert disagreement(first, second[:9]) > 0


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (turn(18, 3, start=11, rows=capture(6)), "turn 1: rows 9 to 11 were never captured"),
        (turn(18, 3, start=9, rows=None), "turn 1: no routing was captured"),
        (turn(8, 3, start=0, rows=capture(7)), "turn 1: ends at row 7, but 9 rows are held"),
        (turn(18, 3, start=9, rows=capture(8, layers=2)), r"turn 1: expected rows \[3, 2\], got \[2, 2\]"),
    ],
    ids=["gap", "missing", "shorter", "shape"],
)
def test_turns_that_do_not_fit_together_are_refused(second: Turn, reason: str) -> None:
    with pytest.raises(RoutingError, match=reason):
        join([turn(10, 4, start=0, rows=capture(9)), second])


@pytest.mark.parametrize(
    ("versions", "reason"),
    [
        (([2, 2, 2, 2], [1, 1, 1]), "turn 1: sampled by version 1 after version 2"),
        (([0, 0, 1, 0], [1, 1, 1]), "turn 0: sampled by version 0"),
    ],
    ids=["between turns", "within a turn"],
)
def test_rows_of_weights_that_were_gone_are_refused(versions: tuple[list[int], list[int]], reason: str) -> None:
    """Case R5: rows are bound to the version that fed them first, and versions only grow."""
    turns = [turn(10, 4, start=0, rows=capture(9)), turn(18, 3, start=9, rows=capture(8))]
    turns = [replace(t, versions=np.array(v, dtype=np.int32)) for t, v in zip(turns, versions, strict=True)]
    with pytest.raises(RoutingError, match=reason):
        join(turns)


def test_rows_that_an_engine_dropped_on_preemption_leave_a_gap_that_is_named() -> None:
    """Case R6: a request that was preempted comes back with the rows of its second life alone."""
    whole = capture(17)
    with pytest.raises(RoutingError, match="rows 9 to 13 were never captured"):
        join([turn(10, 4, start=0, rows=whole[:9]), turn(18, 3, start=13, rows=whole[13:])])


def test_a_later_turn_cannot_change_a_row_case_r7() -> None:
    first, later = capture(9, seed=1), capture(17, seed=2)
    before = first.copy()
    joined = join([turn(10, 4, start=0, rows=first), turn(18, 3, start=0, rows=later)])
    joined[:] = 0
    assert np.array_equal(first, before)


def test_no_turns_have_no_routing() -> None:
    with pytest.raises(RoutingError, match="no turns"):
        join([])


def test_disagreement_compares_sets_and_not_their_order() -> None:
    one = capture(10)
    assert disagreement(one, one[:, :, ::-1]) == 0
    other = one.copy()
    other[3, 1, 0] = next(e for e in range(EXPERTS) if e not in one[3, 1])
    assert disagreement(one, other) == pytest.approx(1 / 30)
    assert disagreement(one[:0], one[:0]) == 0
    with pytest.raises(ValueError, match="equal shapes"):
        disagreement(one, one[:5])
