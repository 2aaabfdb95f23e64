"""The key-value store of the embedded engine, and the attention function that reads and fills it.

One forward feeds any number of tokens of any number of rows as one flat sequence [1, M], so that nothing is padded:
rows that feed one token attend together in one fused call over their slots, rows that feed more attend one by one.
Boundary: slots and positions; requests, sessions and sampling are unknown here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

ATTENTION = "t1_slots"
"""The name under which transformers knows this attention."""
MAX_GAP = 2
"""Idle slots between two busy ones that cost less to attend over than one more call would."""


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens `start` to `stop` (exclusive) of the row in `slot`, to be fed in one forward."""

    slot: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, eq=False)
class SlotRun:
    """Neighbouring slots whose rows feed one token each: one attention call. B slots, D of them busy."""

    first: int
    """Slot of the run's first row."""
    num_slots: int
    """B"""
    tokens: slice
    """Where the D tokens stand in the flat sequence."""
    rows: Tensor | None
    """int64[D] place of each token in the run; None when no slot is idle (D = B)."""
    longest: int
    """Keys of the longest row."""
    mask: Tensor | None
    """[B, 1, 1, longest] 0 where a row has a key, −inf after its end; None when all rows are equally long."""


@dataclass(frozen=True, slots=True, eq=False)
class SpanMask:
    """A row that feeds several tokens: one attention call."""

    span: Span
    tokens: slice
    """Where its tokens stand in the flat sequence."""
    mask: Tensor | None
    """bool[len(span), stop] True where a token may look; None for a row that starts at 0 (plain causal)."""


class KVStore:
    """Keys and values of every layer, [slots, kv_heads, capacity, head_dim] each; capacity grows with the need."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.capacity = 0
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def num_layers(self) -> int:
        """How many layers have attended so far."""
        return len(self._layers)

    def reserve(self, capacity: int) -> None:
        """Make room for rows of `capacity` tokens; what is stored stays."""
        if capacity <= self.capacity:
            return
        self.capacity = capacity
        for layer, (keys, values) in self._layers.items():
            grown = self._empty(keys), self._empty(values)
            for old, new in zip((keys, values), grown, strict=True):
                new[:, :, : old.shape[2]] = old
            self._layers[layer] = grown

    def layer(self, index: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer; `like` [1, kv_heads, M, head_dim] gives shape and kind at its first use."""
        if index not in self._layers:
            self._layers[index] = self._empty(like), self._empty(like)
        return self._layers[index]

    def _empty(self, like: Tensor) -> Tensor:
        """Zeros, since what is masked out must still be finite."""
        return like.new_zeros(self.num_slots, like.shape[1], self.capacity, like.shape[3])


@dataclass(frozen=True, slots=True, eq=False)
class Feed:
    """What one forward feeds, and where its keys and values go. M tokens in flat order."""

    store: KVStore
    slots: Tensor
    """int64[M]"""
    positions: Tensor
    """int64[M]"""
    runs: tuple[SlotRun, ...]
    spans: tuple[SpanMask, ...]


def lay_out(store: KVStore, spans: Sequence[Span], *, device: torch.device, dtype: torch.dtype) -> Feed:
    """The Feed of `spans`, one after another: first those of a single token in order of slot, then the others."""
    num_single = next((i for i, span in enumerate(spans) if len(span) > 1), len(spans))
    starts = list(itertools.accumulate((len(span) for span in spans), initial=0))
    slots = [span.slot for span in spans for _ in range(len(span))]
    positions = [position for span in spans for position in range(span.start, span.stop)]
    return Feed(
        store=store,
        slots=torch.tensor(slots, device=device),
        positions=torch.tensor(positions, device=device),
        runs=tuple(_runs(spans[:num_single], device, dtype)),
        spans=tuple(
            SpanMask(span, slice(start, start + len(span)), _causal_mask(span, device))
            for span, start in zip(spans[num_single:], starts[num_single:], strict=False)
        ),
    )


def _runs(spans: Sequence[Span], device: torch.device, dtype: torch.dtype) -> list[SlotRun]:
    """Single-token spans, in order of slot, cut where more than MAX_GAP idle slots lie between two."""
    if not spans:
        return []
    cuts = [i for i in range(1, len(spans)) if spans[i].slot - spans[i - 1].slot - 1 > MAX_GAP]
    return [_run(spans[begin:end], begin, device, dtype) for begin, end in itertools.pairwise([0, *cuts, len(spans)])]


def _run(spans: Sequence[Span], offset: int, device: torch.device, dtype: torch.dtype) -> SlotRun:
    """One run; an idle slot attends to its first key only, and nobody reads the answer."""
    first, num_slots = spans[0].slot, spans[-1].slot - spans[0].slot + 1
    lengths = [1] * num_slots
    for span in spans:
        lengths[span.slot - first] = span.stop
    longest, mask = max(lengths), None
    if min(lengths) < longest:
        hidden = torch.arange(longest, device=device) >= torch.tensor(lengths, device=device).unsqueeze(1)
        mask = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, float("-inf"))[:, None, None]
    dense = num_slots == len(spans)
    return SlotRun(
        first=first,
        num_slots=num_slots,
        tokens=slice(offset, offset + len(spans)),
        rows=None if dense else torch.tensor([span.slot - first for span in spans], device=device),
        longest=longest,
        mask=mask,
    )


def _causal_mask(span: Span, device: torch.device) -> Tensor | None:
    """Token i of the span sees the keys up to its own position."""
    if span.start == 0:
        return None
    columns = torch.arange(span.stop, device=device)
    return columns <= torch.arange(span.start, span.stop, device=device).unsqueeze(1)


def slot_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    feed: Feed,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """[1, M, heads, head_dim] from query [1, heads, M, head_dim] and key, value [1, kv_heads, M, head_dim]."""
    layer: Any = module
    keys, values = feed.store.layer(layer.layer_idx, key)
    keys[feed.slots, :, feed.positions] = key[0].transpose(0, 1)
    values[feed.slots, :, feed.positions] = value[0].transpose(0, 1)
    output = query.new_empty(query.shape[2], query.shape[1], value.shape[3])  # [M, heads, head_dim]
    for run in feed.runs:
        output[run.tokens] = _attend_run(run, query, keys, values, scaling)
    for part in feed.spans:
        output[part.tokens] = _attend_span(part, query, keys, values, scaling)
    return output.unsqueeze(0), None


def _attend_run(run: SlotRun, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
    """[D, heads, head_dim]; the query heads that share a key head stand as its rows, so that no key is repeated."""
    mine = query[0, :, run.tokens].transpose(0, 1)  # [D, heads, head_dim]
    if run.rows is not None:
        mine = mine.new_zeros(run.num_slots, *mine.shape[1:]).index_copy_(0, run.rows, mine)
    where = slice(run.first, run.first + run.num_slots)
    answer = F.scaled_dot_product_attention(
        mine.reshape(run.num_slots, keys.shape[1], -1, mine.shape[2]),
        keys[where, :, : run.longest],
        values[where, :, : run.longest],
        attn_mask=run.mask,
        scale=scaling,
    ).reshape(run.num_slots, -1, values.shape[3])
    return answer if run.rows is None else answer.index_select(0, run.rows)


def _attend_span(part: SpanMask, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
    """[len(span), heads, head_dim]"""
    slot, stop = part.span.slot, part.span.stop
    answer = F.scaled_dot_product_attention(
        query[:, :, part.tokens],
        keys[slot : slot + 1, :, :stop],
        values[slot : slot + 1, :, :stop],
        attn_mask=part.mask,
        is_causal=part.mask is None,
        scale=scaling,
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    return answer[0].transpose(0, 1)


AttentionInterface.register(ATTENTION, slot_attention)
