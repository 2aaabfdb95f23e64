"""Reads which experts each fed token was sent to, from the router modules of the engine's model.

Boundary: it observes; replaying routes is the trainer's matter (t1.routing.replay).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from t1.errors import ConfigError
from t1.types import RoutingArray


class RouteRecorder:
    """Forward hooks on a model's routers, in order of layer; L of them (0 for a dense model), K experts a token."""

    def __init__(self, model: PreTrainedModel) -> None:
        routers = [module for module in model.modules() if type(module).__name__.lower().endswith("topkrouter")]
        config: Any = model.config.get_text_config()
        self.num_experts = int(getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None) or 0)
        if self.num_experts and not routers:
            raise ConfigError(f"{type(model).__name__}: routing of this Mixture-of-Experts family is not known to T1")
        self.num_layers = len(routers)
        self.top_k = int(config.num_experts_per_tok) if routers else 0
        self.dtype: type[np.uint8] | type[np.uint16] = np.uint8 if self.num_experts <= 256 else np.uint16
        self._caught: list[Tensor] = []
        self._hooks = [router.register_forward_hook(self._catch) for router in routers]

    def _catch(self, router: nn.Module, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        """Keep the [M, K] indices of one layer."""
        self._caught.append(output[2])

    def take(self) -> RoutingArray | None:
        """[M, L, K] of the forward since the last call; None for a dense model."""
        if not self.num_layers:
            return None
        caught, self._caught = self._caught, []
        if len(caught) != self.num_layers:
            raise RuntimeError(f"routers: {len(caught)} fired in one forward, expected {self.num_layers}")
        small = torch.uint8 if self.dtype is np.uint8 else torch.int32
        rows: Any = torch.stack(caught, dim=1).to(small).cpu().numpy()
        routing: RoutingArray = rows.astype(self.dtype, copy=False)
        return routing

    def remove(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()
