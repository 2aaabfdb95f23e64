"""AdamW at a constant learning rate, and the one way to take a step with it.

Boundary: gradients in, new weights out; where the gradients come from is not known here.
"""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from t1.errors import IntegrityError


def adamw(model: nn.Module, *, lr: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW over all weights of `model`. Decay is for matrices; gains and biases have none.

    Weights that are sharded over different meshes stand in groups of their own.
    """
    weights = [p for p in model.parameters() if p.requires_grad]
    kinds: dict[tuple[bool, int], list[nn.Parameter]] = {(True, 0): [], (False, 0): []}
    for weight in weights:
        size = weight.device_mesh.size() if isinstance(weight, DTensor) else 0
        kinds.setdefault((weight.ndim >= 2, size), []).append(weight)
    groups = [
        {"params": members, "weight_decay": weight_decay if matrix else 0.0}
        for (matrix, size), members in kinds.items()
        if members or not size
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
    norm = _clip(weights, grad_clip)
    if not math.isfinite(norm):
        raise IntegrityError(f"the gradient's norm is {norm}; the weights are as they were before this step")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


def _clip(weights: list[nn.Parameter], grad_clip: float) -> float:
    """Scale the gradients to a total norm of at most `grad_clip`; the norm before.

    Of sharded weights every element lives on one rank: the squares of all shards add up to the square of the norm.
    """
    sharded = [weight for weight in weights if isinstance(weight, DTensor)]
    if not sharded:
        return float(nn.utils.clip_grad_norm_(weights, grad_clip))
    gradients = [_local(weight.grad) for weight in weights if weight.grad is not None]
    squares = torch.stack([gradient.float().square().sum() for gradient in gradients]).sum()
    dist.all_reduce(squares, group=max((w.device_mesh for w in sharded), key=lambda mesh: mesh.size()).get_group())
    norm = float(squares.sqrt())
    if norm > grad_clip:
        for gradient in gradients:
            gradient.mul_(grad_clip / (norm + 1e-6))
    return norm


def _local(gradient: torch.Tensor) -> torch.Tensor:
    """This rank's part."""
    local: torch.Tensor = gradient.to_local() if isinstance(gradient, DTensor) else gradient
    return local
