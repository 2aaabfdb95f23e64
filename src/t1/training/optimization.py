"""AdamW at a constant learning rate, and the one way to take a step with it.

Boundary: gradients in, new weights out; where the gradients come from is not known here.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from t1.errors import IntegrityError


def adamw(model: nn.Module, *, lr: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW over all weights of `model`. Decay is for matrices; gains and biases have none."""
    weights = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in weights if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in weights if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Use this learning rate from now on: a checkpoint's state brings the rate that it was saved with."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def take_step(optimizer: torch.optim.Optimizer, *, grad_clip: float) -> float:
    """Clip the gradients to a total norm of `grad_clip`, step, forget them. Returns the norm before clipping.

    Raises IntegrityError, with the weights untouched, when the norm is not finite.
    """
    weights = [p for group in optimizer.param_groups for p in group["params"]]
    norm = float(nn.utils.clip_grad_norm_(weights, grad_clip))
    if not math.isfinite(norm):
        raise IntegrityError(f"the gradient's norm is {norm}; the weights are as they were before this step")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm
