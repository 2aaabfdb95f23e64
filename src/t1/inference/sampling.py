"""Draws tokens, and says the log-probability of what was drawn under the distribution that it was drawn from.

Boundary: logits and numbers per row; nothing here knows a model, a request or a cache. A token is drawn by inverting
the cumulative distribution at a uniform number that depends on (seed, position) alone, so that neighbours in a batch
never change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from t1.types import SamplingParams

_MASK = (1 << 64) - 1


def mix(seed: npt.NDArray[np.uint64], counter: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """[n] well-mixed 64-bit words of (seed, counter): SplitMix64's finaliser over seed + counter × the golden ratio."""
    word = seed + (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = word ^ (word >> np.uint64(31))
    return mixed


def uniforms(seeds: Sequence[int], positions: Sequence[int]) -> npt.NDArray[np.float64]:
    """[n] numbers in [0, 1), a function of each (seed, position)."""
    seed = np.array([value & _MASK for value in seeds], dtype=np.uint64)
    spread = mix(seed, np.zeros_like(seed))  # neighbouring seeds must not be neighbouring counters
    words = mix(spread, np.array(positions, dtype=np.uint64))
    result: npt.NDArray[np.float64] = (words >> np.uint64(32)).astype(np.float64) / 2.0**32
    return result


def derive_seed(seed: int, counter: int) -> int:
    """The seed of request number `counter` of an engine seeded with `seed`."""
    one = np.array([seed & _MASK], dtype=np.uint64)
    return int(mix(mix(one, one), np.array([counter], dtype=np.uint64))[0])


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """What the rows of one step ask for. n rows."""

    params: Sequence[SamplingParams]
    """[n]"""
    uniforms: npt.NDArray[np.float64]
    """[n]"""


def check_params(params: SamplingParams) -> None:
    """Refuse numbers that describe no distribution."""
    if not params.temperature >= 0.0 or params.temperature == float("inf"):
        raise ValueError(f"temperature: expected a finite number of at least 0, got {params.temperature}")
    if not 0.0 < params.top_p <= 1.0:
        raise ValueError(f"top_p: expected a number in (0, 1], got {params.top_p}")
    if params.top_k < 0:
        raise ValueError(f"top_k: expected 0 (off) or more, got {params.top_k}")
    if params.max_tokens < 1:
        raise ValueError(f"max_tokens: expected at least 1, got {params.max_tokens}")


def draw(logits: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
    """Tokens int64[n] and their log-probabilities float32[n] from logits [n, V].

    Temperature, then top_k, then top_p; the log-probabilities are of what remains. Temperature 0 takes the most
    likely token and says its log-probability at temperature 1, nothing cut off.
    """
    params = draws.params
    logits = logits.float()
    if any(p.temperature not in (0.0, 1.0) for p in params):
        temperatures = torch.tensor([p.temperature or 1.0 for p in params], device=logits.device)
        logits = logits / temperatures.unsqueeze(1)
    cut = [i for i, p in enumerate(params) if p.temperature and (p.top_p < 1.0 or p.top_k)]
    if cut:
        rows = torch.tensor(cut, device=logits.device)
        logits = logits.index_copy(0, rows, truncate(logits[rows], [params[i] for i in cut]))
    logprobs = logits.log_softmax(-1)
    tokens = _invert(logprobs, torch.from_numpy(draws.uniforms).to(logits.device))
    if any(p.temperature == 0.0 for p in params):
        greedy = torch.tensor([p.temperature == 0.0 for p in params], device=logits.device)
        tokens = torch.where(greedy, logprobs.argmax(-1), tokens)
    return tokens, logprobs.gather(1, tokens.unsqueeze(1)).squeeze(1)


def _invert(logprobs: Tensor, uniform: Tensor) -> Tensor:
    """int64[n] the first token whose cumulative probability exceeds uniform × total: never one of probability 0."""
    cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
    target = uniform.unsqueeze(1) * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, target, right=True).squeeze(1)
    return tokens.clamp_(max=logprobs.shape[1] - 1)


def truncate(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """[n, V] logits, −inf outside the top_k most likely tokens and the smallest set that holds top_p of those."""
    ordered, index = logits.sort(dim=-1, descending=True, stable=True)
    vocabulary = logits.shape[1]
    top_k = torch.tensor([p.top_k or vocabulary for p in params], device=logits.device).unsqueeze(1)
    top_p = torch.tensor([p.top_p for p in params], device=logits.device, dtype=torch.float64).unsqueeze(1)
    ordered = ordered.masked_fill(torch.arange(vocabulary, device=logits.device) >= top_k, float("-inf"))
    probabilities = ordered.softmax(-1, dtype=torch.float64)
    before = probabilities.cumsum(-1) - probabilities
    ordered = ordered.masked_fill((before >= top_p) & (top_p < 1.0), float("-inf"))
    return torch.empty_like(logits).scatter_(1, index, ordered)
