"""What is asked of a remote engine, what it answers, and what of an answer is believed. No waiting, no network.

A request may be interrupted and go on, any number of times: `Gathered` joins its answers into one Sample, in which each
token has the version that sampled it and each routing row is the one of its first feeding (cases R5 and R7).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np

from t1.errors import EngineError, PromptMismatch, RoutingError
from t1.inference.captures import ModelShape, RawRows, fit_rows
from t1.types import FinishReason, FloatArray, IntArray, RoutingArray, Sample, SampleTimings, SamplingParams

RowsCheck: TypeAlias = Callable[[RoutingArray, IntArray], None]
"""(rows [N, L, K], their tokens [N]) → RoutingError for what only statistics tell: see `t1.routing.check_capture`."""


class Ended(StrEnum):
    """Why an engine stopped sampling."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """One request as the engine's dialect has to put it."""

    id: str
    prompt: IntArray
    """[P]"""
    params: SamplingParams
    """`max_tokens` fits the context."""
    session: str
    routing_start: int
    version: int
    """Of the weights, to salt the prefix cache with (case L1)."""


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """One answer, parsed by the dialect and checked here."""

    prompt: IntArray | None
    """[P] as the engine saw it; None where it does not say."""
    completion: IntArray
    """[C], empty when it was aborted early."""
    logprobs: FloatArray
    """[C]"""
    ended: Ended
    rows: RawRows | None = None
    """[N, H or L, K]"""
    spans: tuple[tuple[int, int, int], ...] | None = None
    """(version, begin, end) of the completion's tokens; None where the engine does not say."""
    cached_tokens: int = 0


@dataclass(slots=True)
class EngineMeter:
    """What went over the wire so far."""

    num_requests: int = 0
    num_interrupted: int = 0
    """Requests that a publish cut in two."""
    routing_bytes: int = 0
    wasted_bytes: int = 0
    """Of rows that were sent although they were known."""


def refuse(prompt: IntArray, params: SamplingParams, routing_start: int, *, max_context: int, vocab_size: int) -> None:
    """ValueError for a request that must not reach an engine; one unknown id takes a whole vLLM down."""
    prompt = np.asarray(prompt)
    if prompt.ndim != 1 or prompt.dtype.kind not in "iu" or len(prompt) == 0:
        raise ValueError(f"prompt: expected int32 [P ≥ 1], got {prompt.dtype} {list(prompt.shape)}")
    if len(prompt) + 1 > max_context:
        raise ValueError(f"prompt: {len(prompt)} tokens leave no room in a context of {max_context}")
    if prompt.min() < 0 or prompt.max() >= vocab_size:
        raise ValueError(f"prompt: expected ids in [0, {vocab_size}), got {prompt.min()} to {prompt.max()}")
    if not 0 <= routing_start <= len(prompt):
        raise ValueError(f"routing_start: expected 0 to {len(prompt)}, got {routing_start}")
    if params.max_tokens < 1:
        raise ValueError(f"max_tokens: expected at least 1, got {params.max_tokens}")
    if not 0.0 <= params.temperature < float("inf"):
        raise ValueError(f"temperature: expected a finite number of at least 0, got {params.temperature}")
    if not 0.0 < params.top_p <= 1.0 or params.top_k < 0:
        raise ValueError(f"expected 0 < top_p ≤ 1 and top_k ≥ 0, got {params.top_p} and {params.top_k}")


@dataclass(slots=True, eq=False)
class Gathered:
    """The answers to one request, checked one by one; `name` is the engine's, for messages."""

    name: str
    prompt: IntArray
    """[P]"""
    routing_start: int
    model: ModelShape
    meter: EngineMeter
    check_rows: RowsCheck | None = None
    completion: list[IntArray] = field(default_factory=list)
    logprobs: list[FloatArray] = field(default_factory=list)
    versions: list[IntArray] = field(default_factory=list)
    rows: list[RoutingArray] = field(default_factory=list)
    cached_tokens: int = 0
    """Of the first answer."""

    def tokens(self) -> IntArray:
        """[P + C so far]"""
        return np.concatenate([self.prompt, *self.completion])

    def next_row(self) -> int:
        """The first position whose row is not there yet."""
        return self.routing_start if not self.rows else sum(map(len, self.rows)) + self.routing_start

    def take(self, ask: Ask, reply: Reply) -> None:
        """Check one answer, and keep it."""
        self._check(ask, reply)
        versions = self._check_versions(ask, reply)
        if len(reply.completion) == 0:
            return
        if self.model.num_layers:
            self.rows.append(self._check_routing(ask, reply))
        if not self.completion:
            self.cached_tokens = reply.cached_tokens
        self.completion.append(reply.completion)
        self.logprobs.append(np.minimum(reply.logprobs, np.float32(0.0)))
        self.versions.append(versions)

    def sample(self, finish: FinishReason, timings: SampleTimings) -> Sample:
        """All answers as one."""
        rows: Any = np.concatenate(self.rows) if self.rows else None
        return Sample(
            prompt=self.prompt,
            completion=np.concatenate(self.completion),
            logprobs=np.concatenate(self.logprobs),
            versions=np.concatenate(self.versions),
            finish=finish,
            routing=rows,
            routing_start=self.routing_start,
            timings=timings,
        )

    def _check(self, ask: Ask, reply: Reply) -> None:
        """Ids seen, tokens, log-probabilities, stop id."""
        count = len(reply.completion)
        if reply.prompt is not None and not np.array_equal(reply.prompt, ask.prompt):
            raise PromptMismatch(f"{self.name}: {_first_difference(ask.prompt, reply.prompt)}")
        if count == 0 and reply.ended is not Ended.ABORT:
            raise EngineError(f"{self.name}: a completion without a token")
        if count > ask.params.max_tokens:
            raise EngineError(f"{self.name}: {count} tokens, at most {ask.params.max_tokens} were asked for")
        if count and not 0 <= int(reply.completion.min()) <= int(reply.completion.max()) < self.model.vocab_size:
            raise EngineError(f"{self.name}: sampled an id outside [0, {self.model.vocab_size}): another model?")
        if len(reply.logprobs) != count or not np.isfinite(reply.logprobs).all() or (reply.logprobs > 1e-5).any():
            raise EngineError(f"{self.name}: expected {count} finite log-probabilities of at most 0")
        if reply.ended is Ended.STOP and int(reply.completion[-1]) not in ask.params.stop_ids:
            last = int(reply.completion[-1])
            raise EngineError(f"{self.name}: stopped after {last}, which is no stop id that was asked for: was it cut?")

    def _check_versions(self, ask: Ask, reply: Reply) -> IntArray:
        """[C] the version that the request was sent under; an engine that knows better refutes it."""
        count = len(reply.completion)
        place = 0
        for version, begin, end in reply.spans or ((ask.version, 0, count),):
            if begin != place or end < begin:
                raise EngineError(f"{self.name}: weight versions {reply.spans} do not tile {count} tokens")
            if version != ask.version and end > begin:
                raise RoutingError(
                    f"{self.name}: sampled under weights version {version}, sent under {ask.version}: somebody else "
                    "publishes to this engine, and neither rows nor log-probabilities can be told apart"
                )
            place = end
        if place != count:
            raise EngineError(f"{self.name}: weight versions {reply.spans} do not tile {count} tokens")
        return np.full(count, ask.version, dtype=np.int32)

    def _check_routing(self, ask: Ask, reply: Reply) -> RoutingArray:
        """[P + C − 1 − routing_start, L, K] of one answer."""
        total = len(ask.prompt) + len(reply.completion)
        rows, wasted = fit_rows(reply.rows, num_tokens=total, start=ask.routing_start, model=self.model)
        self.meter.routing_bytes += 0 if reply.rows is None else reply.rows.nbytes
        self.meter.wasted_bytes += wasted
        if self.check_rows is not None:
            self.check_rows(rows, np.concatenate([ask.prompt, reply.completion])[ask.routing_start : -1])
        return rows


def _first_difference(sent: IntArray, seen: IntArray) -> str:
    """Where two prompts part."""
    if len(sent) != len(seen):
        return f"{len(sent)} prompt ids were sent, the engine saw {len(seen)}"
    place = int(np.flatnonzero(sent != seen)[0])
    return f"prompt id {place} was sent as {sent[place]}, the engine saw {seen[place]}"
