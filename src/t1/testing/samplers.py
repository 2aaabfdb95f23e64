"""A Sampler that plays a script: no model, no torch, no waiting. Held to the same contract test as the real engine.

Everything in a Sample that the script does not say (log-probabilities, routing rows) is made up, valid, and a function
of the tokens alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from t1.errors import EngineError, EngineUnavailable
from t1.types import FinishReason, IntArray, RoutingArray, Sample, SamplingParams

Script: TypeAlias = Sequence[Sequence[int]] | Callable[[IntArray], Sequence[int]]
"""The completions of a session, turn by turn, or a function from a prompt [P] to its completion."""


@dataclass(frozen=True, slots=True)
class RoutingShape:
    """The model that a ScriptedSampler pretends to be."""

    num_layers: int = 2
    num_experts: int = 8
    top_k: int = 2


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One call of `sample`, for assertions."""

    prompt: IntArray
    """[P]"""
    params: SamplingParams
    session: str
    routing_start: int


class ScriptedSampler:
    """Plays completions. A list is played from its start by every session.

    A scripted completion is cut after its first stop id and after `max_tokens`. Where it has no stop id, the first of
    `stop_ids` follows it; where there are no stop ids, it is repeated up to `max_tokens`: as a model, it always either
    stops or runs out of tokens.
    """

    def __init__(
        self,
        script: Script,
        *,
        max_context: int = 4096,
        version: int = 0,
        routing: RoutingShape | None = None,
        failures: Mapping[int, Exception] | None = None,
        delay_s: float = 0.0,
    ) -> None:
        """`failures`: number of the call (from 0) → what it raises. `delay_s`: how long a request is pending."""
        self._script, self._max_context, self._version = script, max_context, version
        self._routing, self._failures, self._delay_s = routing, dict(failures or {}), delay_s
        self._turns: Counter[str] = Counter()
        self._closed = asyncio.Event()
        self.asked: list[Asked] = []
        """Every call so far."""
        self.closed_sessions: list[str] = []
        self.published: list[tuple[Mapping[str, Any], int]] = []

    @property
    def version(self) -> int:
        """The weights version that new tokens are sampled with."""
        return self._version

    @property
    def max_context(self) -> int:
        """Longest prompt + completion, in tokens."""
        return self._max_context

    async def sample(self, prompt: IntArray, params: SamplingParams, *, session: str, routing_start: int = 0) -> Sample:
        """The next completion of the session's script."""
        if len(prompt) == 0 or len(prompt) + 1 > self._max_context:
            raise ValueError(f"prompt: expected 1 to {self._max_context - 1} tokens, got {len(prompt)}")
        if not 0 <= routing_start <= len(prompt):
            raise ValueError(f"routing_start: expected 0 to {len(prompt)}, got {routing_start}")
        if params.max_tokens < 1:
            raise ValueError(f"max_tokens: expected at least 1, got {params.max_tokens}")
        prompt = np.array(prompt, dtype=np.int32)
        self.asked.append(Asked(prompt, params, session, routing_start))
        failure = self._failures.get(len(self.asked) - 1)
        if failure is None:
            await self._wait()
        if self._closed.is_set():
            raise EngineUnavailable("the scripted sampler is closed")
        if failure is not None:
            raise failure
        return self._play(prompt, params, session, routing_start)

    async def close_session(self, session: str) -> None:
        """Note it; the session's script starts again."""
        self.closed_sessions.append(session)
        self._turns.pop(session, None)

    async def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """Note it; only the version changes."""
        self.published.append((weights, version))
        self._version = version

    async def aclose(self) -> None:
        """Stop; pending requests end with EngineUnavailable."""
        self._closed.set()

    async def _wait(self) -> None:
        """Be pending for `delay_s`, or until closed."""
        try:
            async with asyncio.timeout(self._delay_s):
                await self._closed.wait()
        except TimeoutError:
            pass

    def _play(self, prompt: IntArray, params: SamplingParams, session: str, routing_start: int) -> Sample:
        """The sample of one turn."""
        turn = self._turns[session]
        self._turns[session] += 1
        if callable(self._script):
            scripted = list(self._script(prompt))
        elif turn < len(self._script):
            scripted = list(self._script[turn])
        else:
            raise EngineError(f"the script has {len(self._script)} completions; session {session} asks for one more")
        limit = min(params.max_tokens, self._max_context - len(prompt))
        completion, finish = _finish(scripted, params.stop_ids, limit)
        tokens = np.concatenate([prompt, np.array(completion, dtype=np.int32)])
        start, size = len(prompt), len(completion)
        return Sample(
            prompt=prompt,
            completion=tokens[start:],
            logprobs=made_up_logprobs(tokens)[start:],
            versions=np.full(size, self._version, dtype=np.int32),
            finish=finish,
            routing=None if self._routing is None else made_up_routing(tokens[:-1], self._routing)[routing_start:],
            routing_start=routing_start,
        )


def _finish(scripted: list[int], stop_ids: tuple[int, ...], limit: int) -> tuple[list[int], FinishReason]:
    """The completion as a model would end it."""
    stop = next((i for i, token in enumerate(scripted) if token in stop_ids), None)
    if stop is not None:
        scripted = scripted[: stop + 1]
    elif stop_ids:
        scripted = [*scripted, stop_ids[0]]
    elif scripted:
        scripted = (scripted * (limit // len(scripted) + 1))[:limit]
    else:
        raise ValueError("script: an empty completion needs a stop id to end with")
    if len(scripted) > limit:
        return scripted[:limit], FinishReason.LENGTH
    stopped = scripted[-1] in stop_ids
    return scripted, FinishReason.STOP if stopped else FinishReason.LENGTH


def made_up_logprobs(tokens: IntArray) -> Any:
    """float32[T] in [−2, 0), a function of each token and its position."""
    spread = (tokens.astype(np.int64) * 31 + np.arange(len(tokens)) * 17) % 64
    return (-(spread + 1) / 32).astype(np.float32)


def made_up_routing(tokens: IntArray, shape: RoutingShape) -> RoutingArray:
    """[T, L, K] distinct experts, a function of each token and its position."""
    counter: Any = tokens.astype(np.uint64) * np.uint64(1_000_003) + np.arange(len(tokens), dtype=np.uint64)
    slots: Any = np.arange(shape.num_layers * shape.num_experts, dtype=np.uint64)
    salt: Any = (slots + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
    words: Any = (counter[:, None] * np.uint64(0x9E3779B97F4A7C15)) ^ salt  # [T, L·E]
    words = (words ^ (words >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
    ranked = (words >> np.uint64(8)).reshape(len(tokens), shape.num_layers, shape.num_experts).argsort(axis=2)
    experts: Any = ranked[:, :, : shape.top_k].astype(np.uint8 if shape.num_experts <= 256 else np.uint16)
    routing: RoutingArray = experts
    return routing
