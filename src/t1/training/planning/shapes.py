"""What arithmetic about cost needs of a model, counted off its modules.

Boundary: shapes; the weights may be on the meta device. What a pass costs is said here in operations, what that is in
seconds is `plan.py`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from t1.training.parallel.experts import experts_of


@dataclass(frozen=True, slots=True)
class Shape:
    """A causal language model's sizes."""

    parameters: int
    active: int
    """Parameters that a token meets, without the embedding's table."""
    routed: int
    """Parameters of routed experts."""
    num_experts: int
    """Of a layer; 0 for a dense model."""
    routed_layers: int
    experts_per_token: int
    hidden: int
    attention_width: int
    """Σ over attending layers of heads × head_dim."""
    positions: int
    """Longest sequence that the model was made for; 0 where it does not say."""

    @property
    def row_bytes(self) -> int:
        """Routing of one token, as captures keep it."""
        return self.routed_layers * self.experts_per_token * (1 if self.num_experts <= 256 else 2)

    @property
    def quadratic_at(self) -> float:
        """Tokens at which causal attention costs as much as everything that is linear in the length.

        A forward over T tokens is 2·T·active operations in weights, and 2·T²·width in attention (QKᵀ and PV, two
        operations a product, half of the T² pairs each): equal at T = active / width.
        """
        return self.active / self.attention_width if self.attention_width else float("inf")

    def forward_operations(self, tokens: int) -> float:
        """Floating-point operations of a forward over one sequence."""
        return 2.0 * tokens * self.active + 2.0 * tokens * tokens * self.attention_width


def shape_of(model: PreTrainedModel) -> Shape:
    """Counted; weights that two modules share count once."""
    config: Any = model.config.get_text_config()
    accessor: Any = model
    homes, head = experts_of(model), accessor.get_output_embeddings()
    routed = {id(weight): weight.numel() for home in homes for weight in home.parameters()}
    num_experts = int(getattr(homes[0], "num_experts", 0)) if homes else 0
    chosen = int(getattr(config, "num_experts_per_tok", 0) or 0) if homes else 0
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    if head is not None:
        tables.discard(id(head.weight))
    total = sum(weight.numel() for weight in model.parameters())
    idle = sum(weight.numel() for weight in model.parameters() if id(weight) in tables)
    num_routed = sum(routed.values())
    return Shape(
        parameters=total,
        active=total - idle - num_routed + (num_routed * chosen // num_experts if homes else 0),
        routed=num_routed,
        num_experts=num_experts,
        routed_layers=len(homes),
        experts_per_token=chosen,
        hidden=config.hidden_size,
        attention_width=_attending(config) * config.num_attention_heads * _head_dim(config),
        positions=int(getattr(config, "max_position_embeddings", 0) or 0),
    )


def _attending(config: Any) -> int:
    """Layers whose cost grows with the square of the length."""
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    return sum(kind != "linear_attention" for kind in kinds)


def _head_dim(config: Any) -> int:
    return int(getattr(config, "head_dim", 0) or config.hidden_size // config.num_attention_heads)
