"""A net that learns: its module, sharded over its ranks, and the optimizer of its shards.

Boundary: it knows weights and how to step them; what its module computes, and from what, is the trainer's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from t1.training.optimization import adamw, set_rate, take_step
from t1.training.parallel.ranks import Ranks
from t1.training.parallel.sharding import ExpertWeights, copy_part, fill, full_weights, materialize, shard, whole

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True, eq=False)
class Net:
    """One of a trainer's nets."""

    module: nn.Module
    optimizer: torch.optim.AdamW
    ranks: Ranks
    spread: ExpertWeights
    """Names of the weights that are spread by expert."""

    @classmethod
    def of(cls, module: nn.Module, ranks: Ranks, *, lr: float, weight_decay: float, compute: torch.dtype) -> Net:
        """Shard `module` in place over `ranks` and make its optimizer.

        One on the meta device gets memory for its shards, which are to be filled: see `loading.load_nets`.
        """
        spread = shard(module, ranks, compute=compute)
        if ranks.meshes is not None and any(weight.is_meta for weight in module.parameters()):
            materialize(module, torch.device(ranks.meshes.dense.device_type))
        return cls(module, adamw(module, lr=lr, weight_decay=weight_decay), ranks, spread)

    def step(self, *, grad_clip: float) -> float:
        """See `take_step`."""
        return take_step(self.optimizer, grad_clip=grad_clip)

    def set_rate(self, lr: float) -> None:
        """Use this learning rate from now on."""
        set_rate(self.optimizer, lr)

    def full_weights(self) -> Iterator[tuple[str, Tensor]]:
        """(name, whole weight), gathered one by one; every rank of the group goes through all of them."""
        return full_weights(self.module, self.spread, self.ranks)

    def fill(self, weights: Mapping[str, Tensor]) -> None:
        """Take over whole weights, the same on every rank: all of them, or some."""
        fill(self.module, self.spread, self.ranks, weights)

    def fill_moments(self, name: str, step: float, moments: Mapping[str, Tensor]) -> None:
        """Go on with Adam where a whole weight's moments were after `step` steps; the same on every rank."""
        weight = self.module.get_parameter(name)
        for kind, own in self._moments(weight).items():
            copy_part(whole(name, own, self.spread, self.ranks.meshes), moments[kind].to(own.device))
        self.optimizer.state[weight]["step"].fill_(step)

    def state(self) -> dict[str, Tensor]:
        """Weights and moments by name as tensors of the whole group, which share memory with the shards.

        Adam's moments exist from its first step on; before it, zeros are put there, with which it would begin.
        """
        state: dict[str, Tensor] = {}
        for name, weight in self.module.named_parameters():
            moments = self._moments(weight)
            for kind, tensor in (("weight", weight.detach()), *moments.items()):
                state[f"{kind}.{name}"] = whole(name, tensor, self.spread, self.ranks.meshes)
            state[f"step.{name}"] = self.optimizer.state[weight]["step"]
        return state

    def num_bytes(self) -> dict[str, int]:
        """Bytes on this rank by kind: weights, gradients as they will be, moments."""
        weights = sum(_local_bytes(weight) for weight in self.module.parameters())
        return {"weights": weights, "gradients": weights, "optimizer": len(MOMENTS) * weights}

    def _moments(self, weight: nn.Parameter) -> dict[str, Tensor]:
        """Adam's two moments of a weight."""
        state: dict[str, Any] = self.optimizer.state[weight]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=weight.device)
            state.update({kind: torch.zeros_like(weight.detach()) for kind in MOMENTS})
        return {kind: state[kind] for kind in MOMENTS}


def _local_bytes(weight: Tensor) -> int:
    """Bytes of this rank's part."""
    local = weight.to_local() if isinstance(weight, DTensor) else weight
    return local.numel() * local.element_size()
