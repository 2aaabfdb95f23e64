"""The policy as one module that answers one question: how likely was each action of a pack?

Boundary: it adds no weights and no names; the model's own parameters are its parameters. FSDP gathers weights when a
module is called, so what needs a weight (body, and head) has to happen inside one call.
"""

from __future__ import annotations

from torch import Tensor, nn
from transformers import PreTrainedModel

from t1.training.forward import action_logprobs
from t1.training.packs import Pack


class Actor(nn.Module):
    """log π(action | what came before)."""

    def __init__(self, model: PreTrainedModel, *, temperature: float = 1.0) -> None:
        super().__init__()
        self.model, self.temperature = model, temperature

    def forward(self, pack: Pack) -> Tensor:
        """[A] float32"""
        return action_logprobs(self.model, pack, temperature=self.temperature)
