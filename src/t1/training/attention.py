"""Causal attention within the segments of a pack, as an attention function of transformers.

Boundary: it sees queries, keys, values and the segments' lengths. No mask over the whole pack is ever made: on the CPU
each segment is one fused causal call, on CUDA the whole pack is one call of torch's variable-length kernel.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, PreTrainedModel

ATTENTION = "t1_packed"
"""The name under which transformers knows this attention."""


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    segment_lengths: tuple[int, ...] | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """[1, M, heads, head_dim] from query [1, heads, M, head_dim] and key, value [1, kv_heads, M, head_dim].

    `segment_lengths` add up to M; a row attends to itself and to earlier rows of its own segment.
    """
    if segment_lengths is None or sum(segment_lengths) != query.shape[2]:
        raise ValueError(
            f"{ATTENTION}: expected segment_lengths that add up to {query.shape[2]}, got {segment_lengths}"
        )
    if attention_mask is not None or dropout:
        raise ValueError(f"{ATTENTION}: packs have no padding mask and no attention dropout")
    if sliding_window is not None and max(segment_lengths) > sliding_window:
        raise ValueError(
            f"{ATTENTION}: a segment of {max(segment_lengths)} exceeds the sliding window {sliding_window}"
        )
    if query.device.type == "cuda" and query.dtype in (torch.bfloat16, torch.float16):
        return _one_kernel(query, key, value, segment_lengths, scaling), None
    grouped = query.shape[1] != key.shape[1]
    lengths = list(segment_lengths)
    parts = zip(*(torch.split(tensor, lengths, dim=2) for tensor in (query, key, value)), strict=True)
    outputs = [
        F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=grouped) for q, k, v in parts
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2), None


def _one_kernel(
    query: Tensor, key: Tensor, value: Tensor, segment_lengths: tuple[int, ...], scaling: float | None
) -> Tensor:
    """The same through torch's variable-length flash attention, which takes [M, heads, head_dim] in half precision."""
    bounds = torch.tensor([0, *itertools.accumulate(segment_lengths)], dtype=torch.int32, device=query.device)
    longest = max(segment_lengths)
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    grouped = q.shape[1] != k.shape[1]
    output = varlen_attn(
        q, k, v, bounds, bounds, longest, longest, scale=scaling, window_size=(-1, 0), enable_gqa=grouped
    )
    assert isinstance(output, Tensor)
    return output.unsqueeze(0)


def attend_within_segments(model: PreTrainedModel) -> None:
    """Make `model` attend within segments from now on; its forward then needs `segment_lengths`."""
    model.set_attn_implementation(ATTENTION)


AttentionInterface.register(ATTENTION, packed_attention)
