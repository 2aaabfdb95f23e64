"""Muon: momentum whose every matrix is made orthogonal before the step (K. Jordan et al., 2024).

`torch.optim.Muon` takes matrices only; this one takes stacks of them too, since the experts of a layer are one tensor
[E, out, in]. Pre-training only: a policy is trained with AdamW.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def orthogonalized(matrices: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """[..., m, n] each matrix with its singular values driven towards 1 by a quintic Newton-Schulz iteration.

    X ← a X + (b A + c A²) X with A = X Xᵀ.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x: torch.Tensor = matrices / (torch.linalg.matrix_norm(matrices, keepdim=True) + 1e-7)
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else x.mT


class Muon(torch.optim.Optimizer):
    """w ← (1 − lr·λ) w − lr · √max(1, out/in) · orthogonalized(nesterov momentum of the gradient)."""

    def __init__(
        self, params: Iterable[torch.nn.Parameter], lr: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                momentum = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
                momentum.lerp_(weight.grad, 1 - group["momentum"])
                direction = orthogonalized(weight.grad.lerp(momentum, group["momentum"]))
                scale = max(1.0, weight.shape[-2] / weight.shape[-1]) ** 0.5
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(direction, alpha=-group["lr"] * scale)
