"""Routing captures as engines send them: decoded exactly, and refused at the border when they cannot be true.

vLLM sends base64 of a `.npy`, SGLang base64 of raw int32. Boundary: one request's capture; how the rows of turns join,
and the statistics that tell padding from text, are the matter of `t1.routing`. A row is a set: engines order it as they
like. Axes: N rows, H hidden layers as the engine counts, L Mixture-of-Experts layers, K experts per token.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from t1.errors import CheckpointError, RoutingError
from t1.types import RoutingArray

RawRows = npt.NDArray[Any]
"""[N, H or L, K] of any integer type."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What a client must know of the model behind an engine. `num_layers` 0 = dense: no routes."""

    vocab_size: int
    num_layers: int = 0
    """L"""
    num_experts: int = 0
    top_k: int = 0
    """K"""
    num_hidden_layers: int = 0
    """H; engines that capture by hidden layer send rows of zeros for the dense ones."""
    moe_layers: tuple[int, ...] = ()
    """Which of the H layers have experts."""

    @classmethod
    def from_pretrained(cls, path: Path) -> ModelShape:
        """Read it from a local Hugging Face directory."""
        try:
            config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path / 'config.json'}: {error}") from None
        return cls.from_config(config)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ModelShape:
        """Read it from a Hugging Face config's keys; those of the text model where there are several."""
        text: Mapping[str, Any] = config.get("text_config") or config
        hidden = int(text["num_hidden_layers"])
        counts = (text.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts"))
        num_experts = int(next((count for count in counts if count), 0))
        if not num_experts:
            return cls(int(text["vocab_size"]), num_hidden_layers=hidden)
        layers = tuple(layer for layer in range(hidden) if _has_experts(text, layer))
        top_k = int(text["num_experts_per_tok"])
        return cls(int(text["vocab_size"]), len(layers), num_experts, top_k, hidden, layers)


def _has_experts(text: Mapping[str, Any], layer: int) -> bool:
    """Whether a hidden layer of a Mixture-of-Experts model is sparse, by the keys of the families that mix."""
    if layer in (text.get("mlp_only_layers") or ()) or layer < int(text.get("first_k_dense_replace") or 0):
        return False
    types = text.get("mlp_layer_types")
    if types:
        return bool(types[layer] == "sparse")
    return (layer + 1) % int(text.get("decoder_sparse_step") or 1) == 0


def decode_npy(text: str) -> RawRows:
    """[N, H, K] from base64 of a `.npy` (vLLM). Nothing in it is executed, and no size in it is believed."""
    raw = _decode_base64(text)
    stream = io.BytesIO(raw)
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except (ValueError, SyntaxError, TypeError) as error:
        raise RoutingError(f"routing: not a .npy: {error}") from None
    body = raw[stream.tell() :]
    if fortran or dtype.hasobject or dtype.kind not in "iu" or len(shape) != 3:
        raise RoutingError(f"routing: expected integers [N, layers, experts] in C order, got {dtype} {list(shape)}")
    if len(body) != int(np.prod(shape, dtype=object)) * dtype.itemsize:
        raise RoutingError(f"routing: {dtype} {list(shape)} does not fit in {len(body)} bytes")
    return np.frombuffer(body, dtype=dtype).reshape(shape)


def decode_int32(text: str, model: ModelShape) -> RawRows:
    """[N, H or L, K] from base64 of raw little-endian int32 (SGLang); the layers are H where the bytes allow it."""
    flat = np.frombuffer(_whole_words(_decode_base64(text)), dtype="<i4")
    for layers in (model.num_hidden_layers, model.num_layers):
        width = layers * model.top_k
        if width and len(flat) % width == 0:
            return flat.reshape(-1, layers, model.top_k)
    raise RoutingError(f"routing: {len(flat)} numbers are no whole rows of {model.num_layers} × {model.top_k}")


def _whole_words(raw: bytes) -> bytes:
    """`raw`, refused unless it is int32s."""
    if len(raw) % 4:
        raise RoutingError(f"routing: {len(raw)} bytes are no whole int32s")
    return raw


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise RoutingError(f"routing: not base64: {error}") from None


def fit_rows(rows: RawRows | None, *, num_tokens: int, start: int, model: ModelShape) -> tuple[RoutingArray, int]:
    """([num_tokens − 1 − start, L, K], bytes that were sent for nothing), or RoutingError.

    An engine that does not know where to begin sends every row; those before `start` are cut off here.
    """
    if rows is None:
        raise RoutingError(
            "routing: the engine sent none; start it with --enable-return-routed-experts (vLLM and SGLang alike)"
        )
    want = num_tokens - 1 - start
    wasted = 0
    if start and len(rows) == num_tokens - 1:
        wasted, rows = rows[:start].nbytes, rows[start:]
    if len(rows) != want:
        raise RoutingError(f"routing: expected {want} rows for {num_tokens} tokens from {start} on, got {len(rows)}")
    rows = _sparse_layers(rows, model)
    _check_rows(rows, model)
    small: type[np.uint8] | type[np.uint16] = np.uint8 if model.num_experts <= 256 else np.uint16
    narrow: Any = rows.astype(small)
    return narrow, wasted


def _sparse_layers(rows: RawRows, model: ModelShape) -> RawRows:
    """[N, L, K]: without the dense layers, where the engine sends them too."""
    _, layers, top_k = rows.shape
    if top_k == model.top_k and layers == model.num_layers:
        return rows
    if top_k == model.top_k and layers == model.num_hidden_layers:
        return rows[:, list(model.moe_layers)]
    raise RoutingError(
        f"routing: expected [{len(rows)}, {model.num_layers}, {model.top_k}], got {list(rows.shape)}: another model?"
    )


def _check_rows(rows: RawRows, model: ModelShape) -> None:
    """Refuse rows of zeros, experts that do not exist, experts named twice, and one row that stands for all."""
    if rows.size == 0:
        return
    if (low := int(rows.min())) < 0 or (high := int(rows.max())) >= model.num_experts:
        raise RoutingError(f"routing: expert {low if low < 0 else high} of {model.num_experts} does not exist")
    zero = (rows == 0).all(axis=(1, 2))  # [N]
    if model.num_experts > 1 and zero.any() and (model.top_k > 1 or zero.all()):
        raise RoutingError(f"routing: {int(zero.sum())} of {len(zero)} rows are all zero, first {int(zero.argmax())}")
    ordered = np.sort(rows, axis=2)
    if (ordered[:, :, 1:] == ordered[:, :, :-1]).any():
        raise RoutingError("routing: a row names an expert twice")
