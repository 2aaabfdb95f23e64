"""The trainer's model as a preflight's reference: full forwards, their log-probabilities and their routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from t1.inference.routes import RouteRecorder
from t1.types import FloatArray, IntArray, RoutingArray

NOISE = 0.2
"""Standard deviation of what `perturb` adds, as a share of each weight's own."""


class TransformersReference:
    """Scores with a transformers model, whose weights `perturb` changes and `restore` brings back bit by bit."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._kept: dict[str, Tensor] | None = None

    def score(self, tokens: IntArray, num_prompt: int, temperature: float) -> tuple[FloatArray, RoutingArray | None]:
        """(log-probabilities [T − num_prompt], routes [T − 1, L, K] or None) of `tokens` [T] from one full forward."""
        recorder = RouteRecorder(self._model)
        ids = torch.from_numpy(tokens[:-1]).long().unsqueeze(0).to(self._model.device)
        try:
            with torch.inference_mode():
                logits = self._model(input_ids=ids, use_cache=False).logits[0, num_prompt - 1 :]  # [C, V]
            routing = recorder.take()
        finally:
            recorder.remove()
        targets = torch.from_numpy(tokens[num_prompt:]).long().to(logits.device)
        scores = (logits.float() / (temperature or 1.0)).log_softmax(-1).gather(1, targets.unsqueeze(1)).squeeze(1)
        logprobs: Any = scores.cpu().numpy().astype(np.float32)
        return logprobs, routing

    def weights(self) -> Mapping[str, Any]:
        """The model's tensors, live."""
        return {name: weight.detach() for name, weight in self._model.state_dict().items()}

    def perturb(self) -> None:
        """Add noise to every matrix, experts above all: vLLM is known to keep old ones."""
        if self._kept is not None:
            raise RuntimeError("perturbed already")
        self._kept = {name: weight.clone() for name, weight in self.weights().items()}
        generator = torch.Generator().manual_seed(0)
        for weight in self.weights().values():
            if weight.ndim > 1:
                noise = torch.randn(weight.shape, generator=generator).to(weight)
                weight.add_(noise * (NOISE * weight.float().std()).to(weight))

    def restore(self) -> None:
        """The weights before `perturb`."""
        if self._kept is not None:
            for name, weight in self.weights().items():
                weight.copy_(self._kept[name])
            self._kept = None
