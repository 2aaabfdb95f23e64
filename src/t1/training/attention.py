"""Tokens see only their own segment of a pack: causal attention, and linear attention with a state of its own.

Boundary: it sees queries, keys, values, hidden states and the segments' lengths. No mask over the whole pack is ever
made: on the CPU each segment is one fused causal call, on CUDA the whole pack is one call of torch's variable-length
kernel. Linear (recurrent) layers know no segments, so they get each segment as a row of its own.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface, PreTrainedModel

from t1.errors import ConfigError

if TYPE_CHECKING:
    from t1.training.parallel.context import ContextRows, Piece

ATTENTION = "t1_packed"
"""The name under which transformers knows this attention."""
ATTENDS = frozenset({"full_attention", "sliding_attention"})
"""Kinds of layer that `packed_attention` computes."""
BLOCK = 512
"""Rows of queries at a time where a mask must be made for them."""
LINEAR = frozenset({"Qwen3NextGatedDeltaNet", "Qwen3_5GatedDeltaNet", "Qwen3_5MoeGatedDeltaNet"})
"""Classes of linear layers that are given segments as rows: causal, so that they do not see the padding behind."""


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
    s_aux: Tensor | None = None,
    segment_lengths: tuple[int, ...] | None = None,
    context: ContextRows | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """[1, M, heads, head_dim] from query [1, heads, M, head_dim] and key, value [1, kv_heads, M, head_dim].

    `segment_lengths` add up to M; a row attends to itself and to earlier rows of its own segment, at most
    `sliding_window` of them. `s_aux` [heads]: attention sinks, a logit a head that takes weight and has no value.
    With a `context`, the three have this rank's m of the M rows, and so has the result.
    """
    if context is not None and segment_lengths is not None:
        key, value = context.gather(key, 2), context.gather(value, 2)
        return _pieces(query, key, value, context.pieces(segment_lengths), scaling, sliding_window, s_aux), None
    if segment_lengths is None or sum(segment_lengths) != query.shape[2]:
        raise ValueError(
            f"{ATTENTION}: expected segment_lengths that add up to {query.shape[2]}, got {segment_lengths}"
        )
    if attention_mask is not None or dropout:
        raise ValueError(f"{ATTENTION}: packs have no padding mask and no attention dropout")
    kernel = query.device.type == "cuda" and query.dtype in (torch.bfloat16, torch.float16)
    if kernel and s_aux is None and query.shape[-1] == value.shape[-1]:
        return _one_kernel(query, key, value, segment_lengths, scaling, sliding_window), None
    lengths = list(segment_lengths)
    parts = zip(*(torch.split(tensor, lengths, dim=2) for tensor in (query, key, value)), strict=True)
    outputs = [_one_segment(q, k, v, scaling, sliding_window, s_aux) for q, k, v in parts]
    return torch.cat(outputs, dim=2).transpose(1, 2), None


def _one_segment(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None, sinks: Tensor | None
) -> Tensor:
    """[1, heads, Q, head_dim]: the last Q of the keys' T rows attend, each to itself and to those before it.

    A mask [Q, T] is made only where a window, sinks or earlier keys ask for it.
    """
    grouped, size, width = query.shape[1] != key.shape[1], query.shape[2], key.shape[2]
    windowed = window is not None and width > window
    if sinks is None and not windowed and size == width:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=grouped)
    seen = torch.ones(size, width, dtype=torch.bool, device=query.device).tril(width - size)
    if window is not None and windowed:
        seen = seen.triu(width - size + 1 - window)
    if sinks is None:
        return F.scaled_dot_product_attention(query, key, value, seen, scale=scaling, enable_gqa=grouped)
    # A sink is a key of zeros, whose logit is the mask's last column, and whose value is zeros.
    bias = torch.zeros(size, width, dtype=query.dtype, device=query.device).masked_fill(~seen, float("-inf"))
    column = sinks.to(query.dtype).view(1, -1, 1, 1).expand(1, -1, size, 1)
    bias = torch.cat([bias.expand(1, len(sinks), size, width), column], dim=3)
    key, value = F.pad(key, (0, 0, 0, 1)), F.pad(value, (0, 0, 0, 1))
    return F.scaled_dot_product_attention(query, key, value, bias, scale=scaling, enable_gqa=grouped)


def _pieces(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pieces: list[Piece],
    scaling: float | None,
    window: int | None,
    sinks: Tensor | None,
) -> Tensor:
    """[1, m, heads, head_dim] where every piece of the queries has its own range of keys.

    Queries go in blocks, so that no mask is larger than `BLOCK` times the longest segment.
    """
    outputs = []
    for start, stop, first, last in pieces:
        for low in range(start, stop, BLOCK):
            high = min(low + BLOCK, stop)
            keys = slice(first, last - (stop - high))
            outputs.append(
                _one_segment(query[:, :, low:high], key[:, :, keys], value[:, :, keys], scaling, window, sinks)
            )
    return torch.cat(outputs, dim=2).transpose(1, 2)


def _one_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    segment_lengths: tuple[int, ...],
    scaling: float | None,
    window: int | None,
) -> Tensor:
    """The same through torch's variable-length flash attention, which takes [M, heads, head_dim] in half precision."""
    bounds = torch.tensor([0, *itertools.accumulate(segment_lengths)], dtype=torch.int32, device=query.device)
    longest = max(segment_lengths)
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    grouped, left = q.shape[1] != k.shape[1], -1 if window is None else window - 1
    output = varlen_attn(
        q, k, v, bounds, bounds, longest, longest, scale=scaling, window_size=(left, 0), enable_gqa=grouped
    )
    assert isinstance(output, Tensor)
    return output.unsqueeze(0)


def attend_within_segments(model: PreTrainedModel) -> None:
    """Make `model` stay within segments from now on; its forward then needs `segment_lengths`. Safe to call twice.

    Raises ConfigError for kinds of attention that `packed_attention` would compute as another kind.
    """
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    if strange := sorted(kind for kind in kinds - ATTENDS - {"linear_attention"} if "attention" in kind):
        raise ConfigError(f"{type(model).__name__}: T1 does not know how to pack {', '.join(strange)} layers")
    model.set_attn_implementation(ATTENTION)
    for module in model.modules():
        if type(module).__name__ in LINEAR and _rows_of_segments not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(_rows_of_segments, with_kwargs=True)
            module.register_forward_hook(_back_in_line, with_kwargs=True)


def knows_segments(model: PreTrainedModel) -> bool:
    """Whether every layer keeps the segments of a pack apart; a model without it gets one segment a pack."""
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    others = kinds - ATTENDS
    if others != {"linear_attention"}:
        return not others
    return any(type(module).__name__ in LINEAR for module in model.modules())


def _rows_of_segments(
    module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Before a linear layer: hidden_states [1, M, H] become [S, longest, H], padded behind."""
    lengths, context = named.get("segment_lengths"), named.get("context")
    if lengths is None or (len(lengths) == 1 and context is None):
        return inputs, named
    hidden = named["hidden_states"] if context is None else context.gather(named["hidden_states"], 1)
    segments = torch.split(hidden[0], list(lengths))
    return inputs, {**named, "hidden_states": pad_sequence(list(segments), batch_first=True)}


def _back_in_line(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Tensor) -> Tensor:
    """After it: [S, longest, H] become [1, M, H] again, or this rank's rows of them."""
    lengths, context = named.get("segment_lengths"), named.get("context")
    if lengths is None or (len(lengths) == 1 and context is None):
        return output
    joined = torch.cat([row[:length] for row, length in zip(output, lengths, strict=True)])
    return (joined if context is None else joined[context.rows]).unsqueeze(0)


AttentionInterface.register(ATTENTION, packed_attention)
