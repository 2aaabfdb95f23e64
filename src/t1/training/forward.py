"""What a model says about the actions of a pack: log-probabilities of a policy, values of a critic.

Boundary: forward passes only; losses, optimizers and batches are elsewhere. Rows that predict no action never reach the
language-model head, and logits are made a chunk of actions at a time, so [N, vocabulary] is never held.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from t1.training.attention import knows_segments
from t1.training.packs import Pack

MAX_LOGITS = 1 << 24
"""How many logits one chunk may hold (64 MiB in float32)."""


def body_of(model: PreTrainedModel) -> PreTrainedModel:
    """The transformer under a causal language model's head."""
    accessor: Any = model
    body: PreTrainedModel | None = accessor.get_decoder()
    if body is None or body is model:
        raise ValueError(f"{type(model).__name__}: no transformer body under a language-model head")
    return body


def pack_limit(model: PreTrainedModel, max_tokens: int) -> int:
    """How many tokens a pack of this model may hold: one trajectory where some layer would mix neighbours."""
    return max_tokens if knows_segments(model) else 1


def hidden_states(body: PreTrainedModel, pack: Pack) -> Tensor:
    """[M, H] the last hidden state of each token fed here. Refuses a pack whose segments the model would mix."""
    if len(pack.segment_lengths) > 1 and not knows_segments(body):
        kinds = ", ".join(sorted(set(body.config.get_text_config().layer_types)))
        raise ValueError(
            f"{type(body).__name__}: layers of {kinds} carry state from one trajectory into the next, got a pack of "
            f"{len(pack.segment_lengths)}; pack with `pack_limit`"
        )
    output: Any = body(
        input_ids=pack.tokens[pack.fed].unsqueeze(0),
        position_ids=pack.positions.unsqueeze(0),
        use_cache=False,
        segment_lengths=pack.fed_lengths,
        **({} if pack.context is None else {"context": pack.context}),
    )
    last: Tensor = output.last_hidden_state
    return last[0]


def action_logprobs(model: PreTrainedModel, pack: Pack, *, temperature: float = 1.0) -> Tensor:
    """[A] log π(action | what came before), in float32, of logits / temperature: the distribution that was sampled."""
    rows = hidden_states(body_of(model), pack)[pack.action_rows]
    accessor: Any = model
    head: nn.Linear = accessor.get_output_embeddings()
    return head_logprobs(head, rows, pack.tokens[pack.actions], temperature=temperature)


def head_logprobs(
    head: nn.Linear, rows: Tensor, targets: Tensor, *, temperature: float = 1.0, max_logits: int = MAX_LOGITS
) -> Tensor:
    """[A] log-probability of `targets` [A] by `head` over `rows` [A, H]; at most `max_logits` logits exist at once.

    Where one chunk does not hold them all, each chunk's logits are made again in the backward pass.
    """
    size = max(1, max_logits // head.weight.shape[0])
    if len(rows) <= size:
        return _chunk_logprobs(head, rows, targets, temperature)
    chunks = zip(torch.split(rows, size), torch.split(targets, size), strict=True)
    return torch.cat(
        [checkpoint(_chunk_logprobs, head, part, wanted, temperature, use_reentrant=False) for part, wanted in chunks]
    )


def _chunk_logprobs(head: nn.Linear, rows: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """[A] of one chunk."""
    logits: Tensor = head(rows).float()
    if temperature != 1.0:
        logits = logits / temperature
    return -F.cross_entropy(logits, targets, reduction="none")
