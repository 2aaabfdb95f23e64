"""Replays recorded routes in a forward and backward pass, and records the routes that a model takes by itself.

In a replayed forward the router's *selection* is the recorded row; the weights of the selected experts are gathered
from the live router, so that gradients reach it. Rows are addressed by (layer, position): a hook per layer reads its
own [N, K] ids, any number of times, which keeps activation checkpointing safe as long as the context is open around
forward *and* backward. Boundary: a model and a tensor of ids; the rules for captures are in `capture.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from t1.errors import ConfigError, RoutingError

Scores: TypeAlias = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""(router, logits [N, E], ids [N, K]) → the weights [N, K] that the router would give to these experts."""


def softmax_scores(router: Any, logits: Tensor, ids: Tensor) -> Tensor:
    """Softmax over all experts in float32, gathered; renormalised where `norm_topk_prob` says so (or is not asked)."""
    scores = logits.softmax(-1, dtype=torch.float).gather(1, ids)
    if getattr(router, "norm_topk_prob", True):
        scores = scores / scores.sum(dim=-1, keepdim=True)
    return scores.to(logits.dtype)


ADAPTERS: Mapping[str, Scores] = {
    "Qwen2MoeTopKRouter": softmax_scores,
    "Qwen3MoeTopKRouter": softmax_scores,
    "Qwen3_5MoeTopKRouter": softmax_scores,
}
"""Router class → how it weighs selected experts. Such a router returns (logits, scores, ids); one line a family."""


def routers(model: nn.Module) -> list[nn.Module]:
    """A model's routers in order of layer; none for a dense one. Raises ConfigError for a family without adapter."""
    found = [module for module in model.modules() if type(module).__name__ in ADAPTERS]
    if not found and _num_experts(model):
        raise ConfigError(f"{type(model).__name__}: routing of this Mixture-of-Experts family is not known to T1")
    return found


def _num_experts(model: nn.Module) -> int:
    """What the model's config says; 0 for a dense model."""
    config: Any = getattr(model, "config", None)
    if config is None:
        return 0
    text = config.get_text_config()
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    return int(next((count for name in names if (count := getattr(text, name, None))), 0))


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
    capture = Capture(num_layers=len(found), num_experts=_num_experts(model))

    def hook(layer: int) -> Callable[..., None]:
        def keep(router: nn.Module, inputs: Any, output: tuple[Tensor, Tensor, Tensor]) -> None:
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


@contextmanager
def replaying(model: nn.Module, routing: Tensor) -> Iterator[Replay]:
    """A context, for forward *and* backward, in which `model` routes by `routing` [N, L, K].

    Each forward in it must feed exactly those N tokens, in that order. Raises RoutingError for another count of tokens,
    layers or experts, for an expert out of range, and for a router that never fired.
    """
    found = routers(model)
    replay = Replay([0] * len(found))
    rows = _rows_by_layer(model, found, routing)

    def hook(layer: int, scores: Scores, ids: Tensor) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
        def select(
            router: nn.Module, inputs: Any, output: tuple[Tensor, Tensor, Tensor]
        ) -> tuple[Tensor, Tensor, Tensor]:
            logits = output[0]
            if len(logits) != len(ids):
                raise RoutingError(f"layer {layer}: {len(logits)} tokens are fed, {len(ids)} rows are replayed")
            replay.fired[layer] += 1
            return logits, scores(router, logits, ids), ids

        return select

    handles = [
        router.register_forward_hook(hook(layer, ADAPTERS[type(router).__name__], ids))
        for layer, (router, ids) in enumerate(zip(found, rows, strict=True))
    ]
    try:
        yield replay
        if not all(replay.fired):
            raise RoutingError(f"replay: some routers never fired: {replay.fired}")
    finally:
        for handle in handles:
            handle.remove()


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
