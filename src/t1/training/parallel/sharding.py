"""FSDP2 over the ranks of a layout, experts over a second axis of the same ranks; and the way back to whole tensors.

Mixed precision: weights are kept, and Adam's moments, in the dtype that the model was loaded in (float32 is right);
`compute` is what a layer's gathered copy, its activations and its matrix products have; gradients are summed over
ranks in float32. Every element of every weight lives on exactly one rank, with its gradient and its moments. Gradients
are *summed*: the loss already carries the minibatch's global denominator (case P5).
Boundary: modules in, the same modules sharded in place; packs, losses and optimizers are the trainers'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from t1.training.parallel.experts import experts_of, spread_experts
from t1.training.parallel.ranks import Meshes, Ranks

ExpertWeights: TypeAlias = frozenset[str]
"""Names of the weights that are spread by expert."""


def layers_of(module: nn.Module) -> list[nn.Module]:
    """The transformer layers, in order: the units in which weights are gathered and activations recomputed."""
    return [layer for layer in module.modules() if isinstance(layer, GradientCheckpointingLayer)]


def shard(
    module: nn.Module, ranks: Ranks, *, compute: torch.dtype = torch.float32, evenly: bool = False
) -> ExpertWeights:
    """Shard `module` in place over `ranks`; the names of its weights that are spread by expert.

    One unit a layer, one more for its experts where they are spread, one for the rest. Call it before an optimizer is
    made, with the same weights on every rank. `evenly`: see `spread_experts`.
    """
    meshes = ranks.meshes
    if meshes is None:
        return frozenset()
    precision = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32, cast_forward_inputs=False)
    spread: ExpertWeights = frozenset()
    if ranks.layout.experts > 1:
        spread_experts(module, meshes.experts.get_group("expert"), evenly=evenly)
        homes = experts_of(module)
        spread = frozenset(
            f"{prefix}.{name}"
            for prefix, home in module.named_modules()
            if home in homes
            for name, _ in home.named_parameters(recurse=False)
        )
        for home in homes:
            fully_shard(home, mesh=meshes.experts["replica"], mp_policy=precision, shard_placement_fn=_by_column)
    for layer in layers_of(module):
        fully_shard(layer, mesh=meshes.dense, mp_policy=precision)
    for head in (child for child in module.children() if isinstance(child, nn.Linear)):  # the critic's: in full
        fully_shard(head, mesh=meshes.dense, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32))
    fully_shard(module, mesh=meshes.dense, mp_policy=precision, reshard_after_forward=True)
    for unit in module.modules():
        if isinstance(unit, FSDPModule):
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)
    return spread


def materialize(module: nn.Module, device: torch.device) -> None:
    """Give a sharded module on the meta device memory for this rank's shards; numbers come by `fill`.

    Buffers that no checkpoint holds are made as transformers makes them. Weights that were one stay one.
    """
    homes: dict[int, list[tuple[nn.Module, str]]] = {}
    for owner in module.modules():
        for name, weight in owner.named_parameters(recurse=False):
            homes.setdefault(id(weight), []).append((owner, name))
    module.to_empty(device=device)
    for (first, known_as), *others in homes.values():
        for owner, name in others:
            setattr(owner, name, getattr(first, known_as))
    models: list[Any] = [part for part in module.modules() if isinstance(part, PreTrainedModel)]
    for model in models:
        for part in (part for part in model.modules() if part._non_persistent_buffers_set):
            model._init_weights(part)


def _by_column(weight: nn.Parameter) -> Shard:
    """Experts' weights are cut along their second axis: the first is the expert, which is spread already."""
    return Shard(1)


def whole(name: str, weight: Tensor, spread: ExpertWeights, meshes: Meshes | None) -> Tensor:
    """The distributed tensor that a sharded weight (or its gradient or moment) is a part of, over all ranks.

    A weight that is spread by expert and sharded by column becomes a tensor on the two-dimensional mesh.
    """
    if not isinstance(weight, DTensor) or name not in spread or meshes is None:
        return weight
    local, mesh = weight.to_local(), meshes.experts
    shape = torch.Size([weight.shape[0] * mesh.size(1), *weight.shape[1:]])
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(local, mesh, [Shard(1), Shard(0)], run_check=False, shape=shape, stride=stride)


def full_weights(module: nn.Module, spread: ExpertWeights, ranks: Ranks) -> Iterator[tuple[str, Tensor]]:
    """(name, whole weight) one after another, gathered when it is its turn; every rank must go through them."""
    for name, weight in module.state_dict(keep_vars=True).items():
        tensor = whole(name, weight.detach(), spread, ranks.meshes)
        yield name, tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def fill(module: nn.Module, spread: ExpertWeights, ranks: Ranks, weights: Mapping[str, Tensor]) -> None:
    """Copy whole `weights` (the same on every rank) into the shards of `module`: all of its weights, or some."""
    state = module.state_dict(keep_vars=True)
    for name, source in weights.items():
        copy_part(whole(name, state[name].detach(), spread, ranks.meshes), source)


@torch.no_grad()
def copy_part(target: Tensor, source: Tensor) -> None:
    """Copy this rank's part of `source` into `target`; shards of uneven sizes are torch.chunk's."""
    if not isinstance(target, DTensor):
        target.copy_(source)
        return
    part = source
    for axis, placement in enumerate(target.placements):
        assert isinstance(placement, Shard)
        parts = part.chunk(target.device_mesh.size(axis), dim=placement.dim)
        place = target.device_mesh.get_local_rank(axis)
        empty = part.narrow(placement.dim, 0, 0)
        part = parts[place] if place < len(parts) else empty
    target.to_local().copy_(part)
