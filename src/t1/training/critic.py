"""The critic: the policy's transformer with a scalar head.

Boundary: it learns of tokens only. Its router is its own: routes are replayed to make the trainer's policy the one that
was sampled, and nobody samples from a critic, whose experts soon mean something else than the policy's.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from t1.training.forward import body_of, hidden_states
from t1.training.packs import Pack


class Critic(nn.Module):
    """V(state): what the rest of the rollout will earn, read off the hidden state before an action."""

    def __init__(self, body: PreTrainedModel) -> None:
        super().__init__()
        self.body = body
        size, device = body.config.get_text_config().hidden_size, next(body.parameters()).device
        self.head = nn.Linear(size, 1, dtype=torch.float32, device=device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    @classmethod
    def from_policy(cls, policy: PreTrainedModel) -> Critic:
        """A critic that starts as a copy of the policy's body and says 0 everywhere."""
        return cls(copy.deepcopy(body_of(policy)))

    def start_at(self, value: float) -> None:
        """Make a critic that has not learned yet say `value` everywhere; one that has stays as it is.

        From 0 it would reach the mean return by moving its body for many steps, which spoils what the policy knew.
        """
        if not bool(self.head.weight.any()):
            nn.init.constant_(self.head.bias, value)

    def forward(self, pack: Pack) -> Tensor:
        """[A] float32 value of the state before each action."""
        rows = hidden_states(self.body, pack)[pack.action_rows]
        values: Tensor = self.head(rows.float())
        return values.squeeze(-1).clone()  # FSDP's hooks sit on what a module returns, and are lost on a view
