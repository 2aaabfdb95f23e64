"""Replays recorded routes in a forward and backward pass, and records the routes that a model takes by itself.

In a replayed forward the router's *selection* is the recorded row; the weights of the selected experts are gathered
from the live router, so that gradients reach it. Rows are addressed by (layer, position): a hook per layer reads its
own [N, K] ids, any number of times, which keeps activation checkpointing safe as long as the context is open around
forward *and* backward. Boundary: a model and a tensor of ids; the rules for captures are in `capture.py`, how a family
weighs its experts is in `replay_families.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from t1.errors import ConfigError, RoutingError
from t1.routing.replay_families import ADAPTERS, Weigh, num_experts, routers

__all__ = ["ADAPTERS", "Capture", "Replay", "capturing", "differ", "replaying", "routers"]

Routed: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""What a router returns: logits [N, E], weights [N, K], ids [N, K]."""


@dataclass(slots=True, eq=False)
class Capture:
    """The routes of the latest forward in a `capturing` context."""

    ids: dict[int, Tensor] = field(default_factory=dict)
    """Layer → int64[N, K]."""
    num_layers: int = 0
    num_experts: int = 0

    def routing(self) -> Tensor:
        """uint8 (int32 above 256 experts) [N, L, K]"""
        if not self.num_layers:
            raise RoutingError("a dense model has no routing")
        if len(self.ids) != self.num_layers:
            raise RoutingError(f"capture: {len(self.ids)} of {self.num_layers} routers fired")
        rows = torch.stack([self.ids[layer] for layer in range(self.num_layers)], dim=1)
        return rows.to(torch.uint8 if self.num_experts <= 256 else torch.int32)


@contextmanager
def capturing(model: nn.Module) -> Iterator[Capture]:
    """A context whose Capture has the routes of the latest forward of `model`."""
    found = routers(model)
    capture = Capture(num_layers=len(found), num_experts=num_experts(model))

    def hook(layer: int) -> Callable[..., None]:
        def keep(router: nn.Module, inputs: Any, output: Routed) -> None:
            capture.ids[layer] = output[2].detach()

        return keep

    handles = [router.register_forward_hook(hook(layer)) for layer, router in enumerate(found)]
    try:
        yield capture
    finally:
        for handle in handles:
            handle.remove()


@dataclass(slots=True, eq=False)
class Replay:
    """What happened in a `replaying` context."""

    fired: list[int]
    """[L] how often each router was replayed: once a forward, and once more where a checkpoint is recomputed."""
    flips: list[Tensor]
    """[L] bool[N] rows whose set of experts is not the one that the live router chose, in each layer's first firing."""

    @property
    def flipped(self) -> Tensor:
        """bool[N] rows that were flipped in any layer: what replay kept from going another way."""
        return torch.stack(self.flips).any(dim=0)


@contextmanager
def replaying(model: nn.Module, routing: Tensor) -> Iterator[Replay]:
    """A context, for forward *and* backward, in which `model` routes by `routing` [N, L, K].

    Each forward in it must feed exactly those N tokens, in that order. Raises RoutingError for another count of tokens,
    layers or experts, for an expert out of range, and for routers that did not all fire equally often, at least once.
    Raises ConfigError where the model would add a load-balancing loss, or noise, to what is replayed.
    """
    found = routers(model)
    _refuse_extras(model)
    rows = _rows_by_layer(model, found, routing)
    replay = Replay([0] * len(found), [])
    handles = [model.register_forward_pre_hook(_refuse_balancing, with_kwargs=True)]
    for layer, (router, ids) in enumerate(zip(found, rows, strict=True)):
        handles.append(router.register_forward_hook(_select(replay, layer, ADAPTERS[type(router).__name__], ids)))
    try:
        yield replay
        if not all(replay.fired) or len(set(replay.fired)) > 1:
            raise RoutingError(f"replay: some routers fired less often than others, or never: {replay.fired}")
    finally:
        for handle in handles:
            handle.remove()


def _select(replay: Replay, layer: int, weigh: Weigh, ids: Tensor) -> Callable[..., Routed]:
    """A forward hook that puts the rows of one layer, `ids` int64[N, K], in place of its router's choice."""

    def select(router: nn.Module, inputs: Any, output: Routed) -> Routed:
        logits, _, chosen = output
        if len(logits) != len(ids):
            raise RoutingError(f"layer {layer}: {len(logits)} tokens are fed, {len(ids)} rows are replayed")
        if not replay.fired[layer]:
            replay.flips.append(differ(ids, chosen))
        replay.fired[layer] += 1
        return logits, weigh(router, logits, ids), ids

    return select


@torch.no_grad()
def differ(one: Tensor, other: Tensor) -> Tensor:
    """bool[…] where two sets of distinct experts, given as ids [… , K] in any order, are not the same set."""
    return ~(one.unsqueeze(-1) == other.unsqueeze(-2)).any(dim=-1).all(dim=-1)


def _refuse_extras(model: nn.Module) -> None:
    """No load-balancing loss while replaying (design law 4), and no noise before the routers."""
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if config is not None else None
    if getattr(text, "output_router_logits", False):
        raise ConfigError(
            "replay: the model's config has output_router_logits, which adds a load-balancing loss; set it to false"
        )
    if noise := getattr(text, "router_jitter_noise", 0.0):
        raise ConfigError(f"replay: router_jitter_noise {noise} makes another policy than was sampled; set it to 0")


def _refuse_balancing(model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
    """The same for a single call."""
    if named.get("output_router_logits"):
        raise ConfigError("replay: output_router_logits adds a load-balancing loss; leave it out")


def _rows_by_layer(model: nn.Module, found: list[nn.Module], routing: Tensor) -> tuple[Tensor, ...]:
    """L × int64[N, K], checked once against the model."""
    shape = list(routing.shape)
    if not found:
        raise RoutingError(f"{type(model).__name__}: a dense model cannot replay routing {shape}")
    router: Any = found[0]
    wanted = [len(found), int(router.top_k)]
    if routing.ndim != 3 or shape[1:] != wanted:
        raise RoutingError(f"routing: expected [N, {wanted[0]}, {wanted[1]}], got {shape}")
    if routing.numel() and not 0 <= int(routing.min()) <= int(routing.max()) < router.num_experts:
        raise RoutingError(f"routing: expert {int(routing.max())} out of range, the model has {router.num_experts}")
    device = router.weight.device
    return routing.to(device, torch.int64).transpose(0, 1).contiguous().unbind(0)
