"""Captures are decoded exactly as they were sent, or refused: nothing is padded, cut or believed."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest

from t1.errors import RoutingError
from t1.inference.captures import ModelShape, decode_int32, decode_npy, fit_rows
from t1.testing.samplers import RoutingShape, made_up_routing

from .engines import SHAPE

TOKENS = np.arange(1, 21, dtype=np.int32)
ROWS = made_up_routing(TOKENS[:-1], RoutingShape(2, 8, 2)).astype(np.int64)


def as_npy(rows: np.ndarray) -> str:
    """What vLLM sends."""
    stream = io.BytesIO()
    np.save(stream, rows)
    return base64.b64encode(stream.getvalue()).decode()


def as_int32(rows: np.ndarray) -> str:
    """What SGLang sends."""
    return base64.b64encode(rows.astype("<i4").tobytes()).decode()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_vllms_npy_comes_back_as_it_was(dtype: type) -> None:
    assert np.array_equal(decode_npy(as_npy(ROWS.astype(dtype))), ROWS)


def test_sglangs_raw_int32_comes_back_as_it_was() -> None:
    assert np.array_equal(decode_int32(as_int32(ROWS), SHAPE), ROWS)


def test_rows_of_dense_layers_are_left_out() -> None:
    """An engine that captures by hidden layer sends zeros for the layers that have no experts."""
    shape = ModelShape(64, num_layers=2, num_experts=8, top_k=2, num_hidden_layers=3, moe_layers=(1, 2))
    wide = np.concatenate([np.zeros_like(ROWS[:, :1]), ROWS], axis=1)
    for rows in (decode_npy(as_npy(wide)), decode_int32(as_int32(wide), shape), ROWS):
        fitted, _ = fit_rows(rows, num_tokens=20, start=0, model=shape)
        assert np.array_equal(fitted, ROWS)
        assert fitted.dtype == np.uint8


def test_rows_that_were_known_are_cut_off_and_counted() -> None:
    fitted, wasted = fit_rows(ROWS, num_tokens=20, start=15, model=SHAPE)
    assert np.array_equal(fitted, ROWS[15:])
    assert wasted == ROWS[:15].nbytes


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "--enable-return-routed-experts"),
        (ROWS[:-1], "expected 19 rows"),
        (np.concatenate([ROWS, ROWS[-1:]]), "expected 19 rows"),
        (np.concatenate([ROWS[:-1], np.zeros_like(ROWS[:1])]), "all zero"),
        (np.where(np.arange(19)[:, None, None] == 7, 3, ROWS), "names an expert twice"),
        (np.where(np.arange(19)[:, None, None] == 7, ROWS + 8, ROWS), "does not exist"),
        (ROWS - 8, "does not exist"),
        (ROWS[:, :, :1], "another model"),
        (ROWS[:, :1], "another model"),
    ],
    ids=["R1-none", "R3-short", "R3-long", "R8-zero", "twice", "range", "negative", "top-k", "layers"],
)
def test_a_capture_that_cannot_be_true_is_refused(rows: np.ndarray | None, message: str) -> None:
    """Cases R1, R3 and R8: missing, a row too few or too many, filled up with zeros."""
    with pytest.raises(RoutingError, match=message):
        fit_rows(rows, num_tokens=20, start=0, model=SHAPE)


@pytest.mark.parametrize(
    "text",
    [
        "not base64!",
        base64.b64encode(b"no npy").decode(),
        as_npy(ROWS)[: len(as_npy(ROWS)) // 2 // 4 * 4],
        as_npy(np.zeros((3, 2), dtype=np.uint8)),
        as_npy(np.asfortranarray(ROWS)),
        as_npy(ROWS.astype(np.float32)),
        base64.b64encode(
            b"\x93NUMPY\x01\x00v\x00"
            + b"{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999, 99999, 99999), }".ljust(117)
            + b"\n"
        ).decode(),
    ],
    ids=["base64", "magic", "cut", "two axes", "fortran", "floats", "huge"],
)
def test_hostile_npy_is_an_error_and_allocates_nothing(text: str) -> None:
    with pytest.raises(RoutingError, match="routing"):
        decode_npy(text)


def test_pickled_npy_is_never_unpickled() -> None:
    stream = io.BytesIO()
    np.save(stream, np.full((2, 2, 2), {"object": 1}, dtype=object), allow_pickle=True)
    with pytest.raises(RoutingError, match="expected integers"):
        decode_npy(base64.b64encode(stream.getvalue()).decode())


def test_int32_that_is_no_whole_row_is_refused() -> None:
    with pytest.raises(RoutingError, match="no whole"):
        decode_int32(base64.b64encode(np.arange(5, dtype="<i4").tobytes()).decode(), SHAPE)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"vocab_size": 9, "num_hidden_layers": 4}, ModelShape(9, num_hidden_layers=4)),
        (
            {"vocab_size": 9, "num_hidden_layers": 4, "num_local_experts": 8, "num_experts_per_tok": 2,
             "decoder_sparse_step": 2, "mlp_only_layers": [3]},
            ModelShape(9, 1, 8, 2, 4, (1,)),
        ),
        (
            {"text_config": {"vocab_size": 9, "num_hidden_layers": 3, "n_routed_experts": 16,
                             "num_experts_per_tok": 4, "first_k_dense_replace": 1}},
            ModelShape(9, 2, 16, 4, 3, (1, 2)),
        ),
    ],
    ids=["dense", "qwen", "deepseek"],
)  # fmt: skip
def test_the_shape_of_a_model_is_read_from_its_config(config: dict[str, object], expected: ModelShape) -> None:
    assert ModelShape.from_config(config) == expected
