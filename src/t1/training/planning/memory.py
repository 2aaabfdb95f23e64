"""How much memory a rank of a layout will hold: the trainer's own modules, sharded over ranks that do not exist.

Weights, gradients and moments are read off the shards of the whole model on the meta device. What one forward and
backward needs beside them is counted while they run on fake tensors, with the real sharding and every collective: all
of it where the model is small (`trace`). Of a large one only what each token adds is counted so, on one period of its
layers with few experts and a short vocabulary; gathered weights and kept inputs are added from the shapes (`estimate`).
Boundary: bytes; time, networks and GPUs are `plan.py`'s. One such group can be open in a process at a time.
"""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from t1.training.actor import Actor
from t1.training.attention import attend_within_segments
from t1.training.critic import Critic
from t1.training.forward import MAX_LOGITS, body_of
from t1.training.nets import MOMENTS
from t1.training.packs import Pack, join
from t1.training.parallel.context import slice_pack
from t1.training.parallel.layout import Layout
from t1.training.parallel.ranks import Ranks
from t1.training.parallel.sharding import layers_of, shard
from t1.types import RolloutId, Trajectory

TRACED_TOKENS = (512, 1024)
"""Tokens of a rank in the two traces whose difference says what a token adds."""
SMALL = 1 << 26
"""Layers × tokens × hidden size up to which everything is traced and nothing estimated."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a net is trained, as far as it takes memory."""

    compute: torch.dtype = torch.bfloat16
    """Of gathered weights and activations."""
    master: torch.dtype = torch.float32
    """Of the weights that are kept, and of Adam's moments."""
    checkpointing: bool = True
    """Activations of a layer are computed again in the backward pass."""


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of one net on one rank."""

    weights: int
    gradients: int
    moments: int
    working: int
    """The most that a forward and backward holds beside them: gathered weights, activations, buffers of collectives."""
    kept: int
    """The part of `working` that is kept from forward to backward: each layer's input."""
    gathered: int
    """The part of `working` that is whole weights, and gradients on their way to their ranks (see `gathered`)."""


@contextmanager
def imaginary_ranks(layout: Layout) -> Iterator[Ranks]:
    """The first of `layout.world` ranks, of which the others do not exist: collectives return at once."""
    dist.init_process_group("fake", rank=0, world_size=layout.world, store=FakeStore())
    try:
        yield Ranks.open(layout)
    finally:
        dist.destroy_process_group()


def meta_model(config: PreTrainedConfig, dtype: torch.dtype = torch.bfloat16) -> PreTrainedModel:
    """The whole model, without memory."""
    loader: Any = AutoModelForCausalLM
    with torch.device("meta"):
        model: PreTrainedModel = loader.from_config(copy.deepcopy(config), dtype=dtype)
    return model


def held(config: PreTrainedConfig, layout: Layout, *, tokens: int, recipe: Recipe) -> dict[str, Held]:
    """What one rank holds of the "policy" and of its "critic" while packs of `tokens`, half actions, are trained on."""
    local = -(-tokens // layout.context)
    width, layers = recipe.compute.itemsize, config.num_hidden_layers
    kept = layers * local * config.hidden_size * width if recipe.checkpointing else 0
    found: dict[str, Held] = {}
    with imaginary_ranks(layout) as ranks:
        small = layers * tokens * config.hidden_size <= SMALL
        adds = 0.0 if small else bytes_a_token(config, ranks, recipe)
        for name in ("policy", "critic"):
            net = sharded_net(config, ranks, recipe, critic=name == "critic")
            weights = sum(_bytes(_local(weight)) for weight in net.parameters())
            if small:
                working = trace(config, ranks, tokens, recipe, critic=name == "critic")
            else:
                working = kept + estimate(config, net, local, adds, recipe, critic=name == "critic")
            inputs = min(kept, working)
            whole = min(gathered(net, recipe), working - inputs)
            found[name] = Held(weights, weights, len(MOMENTS) * weights, working, inputs, whole)
    return found


def sharded_net(config: PreTrainedConfig, ranks: Ranks, recipe: Recipe, *, critic: bool) -> nn.Module:
    """The whole net as this rank's shards, without memory."""
    net = _net(meta_model(config, recipe.master), critic)
    shard(net, ranks, compute=recipe.compute)
    return net


def estimate(config: PreTrainedConfig, net: nn.Module, local: int, adds: float, recipe: Recipe, *, critic: bool) -> int:
    """What `trace` would find beside the inputs that are kept: a layer's backward, or the logits of a chunk.

    Logits exist in the head's dtype and in float32, and so do their gradients.
    """
    layer = round(adds * local) + gathered(net, recipe)
    logits = 0 if critic else min(MAX_LOGITS, -(-local // 2) * config.vocab_size)
    return max(layer, 2 * (recipe.compute.itemsize + torch.float32.itemsize) * logits)


def bytes_a_token(config: PreTrainedConfig, ranks: Ranks, recipe: Recipe) -> float:
    """What `trace` grows by with each token of this rank, without the inputs that are kept of each layer."""
    layers = period_of(config) if recipe.checkpointing else config.num_hidden_layers
    small = copy.deepcopy(config)
    small.num_hidden_layers, small.vocab_size = layers, 512
    if getattr(config, "layer_types", None):
        small.layer_types = list(config.layer_types)[:layers]
    if getattr(config, "num_experts", 0):
        small.num_experts = max(config.num_experts_per_tok, ranks.layout.experts)
    few, more = (trace(small, ranks, rows * ranks.layout.context, recipe) for rows in TRACED_TOKENS)
    adds = (more - few) / (TRACED_TOKENS[1] - TRACED_TOKENS[0])
    return adds - layers * config.hidden_size * recipe.compute.itemsize if recipe.checkpointing else adds


def gathered(net: nn.Module, recipe: Recipe) -> int:
    """Bytes of whole weights at a backward's worst: all outside layers, a layer, the next, and a layer's gradients.

    Gradients are there once as the backward made them and once in float32, on their way to the ranks that own them.
    """
    layers, width = layers_of(net), recipe.compute.itemsize
    sizes = [sum(weight.numel() for weight in layer.parameters()) for layer in layers]
    inside = {id(weight) for layer in layers for weight in layer.parameters()}
    rest = sum(weight.numel() for weight in net.parameters() if id(weight) not in inside)
    return rest * width + max(sizes) * (2 * width + width + torch.float32.itemsize)


def period_of(config: PreTrainedConfig) -> int:
    """After how many layers the kinds of layer repeat."""
    kinds = list(getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers)
    for period in range(1, len(kinds)):
        if all(kind == kinds[i % period] for i, kind in enumerate(kinds)):
            return period
    return len(kinds)


def _net(model: PreTrainedModel, critic: bool) -> nn.Module:
    """The module that a trainer shards. It takes the model: a copy of fake tensors copies what frees their storages."""
    attend_within_segments(model)
    return Critic(body_of(model)) if critic else Actor(model)


def trace(config: PreTrainedConfig, ranks: Ranks, tokens: int, recipe: Recipe, *, critic: bool = False) -> int:
    """The most that the second of two forwards and backwards over `tokens` holds beside weights and gradients."""
    pack = made_up_pack(tokens)
    if ranks.layout.context > 1:
        assert ranks.meshes is not None
        pack = slice_pack(pack, ranks.meshes.context.get_group("context"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # FSDP asks fake tensors where they lie, also when it forgets them
        with FakeTensorMode(allow_non_fake_inputs=True):
            peak = _peak(config, ranks, pack, recipe, critic=critic)
        gc.collect()
    return peak


def _peak(config: PreTrainedConfig, ranks: Ranks, pack: Pack, recipe: Recipe, *, critic: bool) -> int:
    """The same of a pack, inside a fake tensor mode."""
    loader: Any = AutoModelForCausalLM
    model: Any = loader.from_config(copy.deepcopy(config), dtype=recipe.master)
    module = _net(model, critic)
    if recipe.checkpointing:
        body: Any = module.body if isinstance(module, Critic) else model
        body.activation_checkpointing_enable({"use_reentrant": False})
    shard(module.train(), ranks, compute=recipe.compute, evenly=True)
    torch.autograd.backward(module(pack).sum())
    with LiveBytes() as live:
        torch.autograd.backward(module(pack).sum())
    return int(live.peak)


def made_up_pack(tokens: int) -> Pack:
    """One trajectory of `tokens`, of which every second one was sampled."""
    mask = np.arange(tokens) % 2 == 1
    mask[-1] = True
    zeros = np.zeros(tokens, np.int32)
    one = Trajectory(RolloutId("plan", 0, 0), 0, zeros, mask, zeros.astype(np.float32), zeros, zeros, None, ())
    return join([one], [np.arange(one.num_actions)])


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the tensors that come to be while it is open, and go."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now: int = 0
        self.peak: int = 0
        self._seen: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and count what it returned unless that shares older memory."""
        before = {_local(leaf).untyped_storage() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and (storage := _local(leaf).untyped_storage()) not in before:
                self._count(storage)
        return result

    def _count(self, storage: Any) -> None:
        """One more storage, until it is gone."""
        if storage in self._seen:
            return
        size = self._seen[storage] = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, size)

    def _forget(self, size: int) -> None:
        self.now -= size


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _local(weight: Tensor) -> Tensor:
    """This rank's part."""
    return weight.to_local() if isinstance(weight, DTensor) else weight
