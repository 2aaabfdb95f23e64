"""Continuous batching, one step at a time: admit, feed, sample, finish.

Every step is one forward of all running rows: those that decode feed one token, those that start feed what their slot
lacks of the prompt, a bounded number of tokens a step. Boundary: synchronous and single-threaded; `engine.py` gives it
a thread and an asyncio face.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from t1.errors import ConfigError, EngineError, EngineUnavailable
from t1.inference.attention import ATTENTION, KVStore, Span, lay_out
from t1.inference.kernels import speed_up
from t1.inference.routes import RouteRecorder
from t1.inference.sampling import Draws, draw, uniforms
from t1.inference.sessions import Slot, SlotTable
from t1.types import FinishReason, IntArray, Sample, SampleTimings, SamplingParams

MIN_CAPACITY = 256
"""Tokens a slot has room for at first; doubled when a session outgrows it."""

Finish = Callable[["Sample | EngineError"], None]


@dataclass(slots=True, eq=False)
class Request:
    """One call of `sample` on its way."""

    prompt: IntArray
    params: SamplingParams
    session: str
    routing_start: int
    seed: int
    finish: Finish
    """Takes the sample, or the error that ended the request; called once, from the engine's thread."""
    submitted: float = field(default_factory=time.perf_counter)
    admitted: float = 0.0
    first_token: float = 0.0
    cached: int = 0
    slot: Slot | None = None
    completion: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)


class EngineCore:
    """Runs requests on one model, which it owns from now on. At most `max_rows` at once; others wait in order."""

    def __init__(
        self, model: PreTrainedModel, *, max_context: int, max_rows: int, version: int, max_step_tokens: int
    ) -> None:
        _check_supported(model, max_context)
        if max_context < 2 or max_rows < 1 or max_step_tokens < 2:
            raise ValueError(f"engine: no room to work in: {max_context=}, {max_rows=}, {max_step_tokens=}")
        self.model = model
        self.recorder = RouteRecorder(model)
        self.model.train(False)
        self.model.requires_grad_(False)
        self.model.set_attn_implementation(ATTENTION)
        speed_up(model)
        self.version = version
        self.max_context = max_context
        self.max_step_tokens = max_step_tokens
        self.device, self.dtype = model.device, model.dtype
        self.table = SlotTable(
            max_rows, num_layers=self.recorder.num_layers, top_k=self.recorder.top_k, dtype=self.recorder.dtype
        )
        self.store = KVStore(max_rows)
        self.waiting: deque[Request] = deque()
        self.running: dict[int, Request] = {}

    # -- commands ----------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self.waiting.append(request)

    def cancel(self, request: Request) -> None:
        """Drop a request wherever it is; what it fed stays cached for its session."""
        if request.slot is not None and self.running.get(request.slot.index) is request:
            self._leave(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    def close_session(self, session: str) -> None:
        """Forget a session's cache."""
        self.table.close(session)

    def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """Copy weights in and drop every cache. Refuses (ValueError) a set that does not fit, before it copies any.

        A running request goes on under the new version: its tokens are fed again, so that no key or value of the old
        weights is read (case L1), and the rows that it already has stay, as those of the first feeding (case R7).
        """
        targets = matching_weights(self.model, weights)
        with torch.no_grad():
            for target, source in targets:
                target.copy_(source)
        self.version = version
        self.table.invalidate()

    def fail(self, reason: str) -> None:
        """End every request with EngineUnavailable."""
        pending = [*self.running.values(), *self.waiting]
        self.running.clear()
        self.waiting.clear()
        for request in pending:
            request.finish(EngineUnavailable(reason))

    @property
    def has_work(self) -> bool:
        """Something waits or runs."""
        return bool(self.waiting or self.running)

    # -- a step ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Admit who fits, feed every running row, sample where a prompt is complete."""
        self._admit()
        spans = self._plan()
        if not spans:
            return
        self._reserve(max(self.table.slots[index].known for index in self.running) + 1)
        ready = [i for i, span in enumerate(spans) if span.stop == self.table.slots[span.slot].known]
        with torch.inference_mode():
            logits = self._forward(spans, ready)
            if ready:
                self._sample([self.running[spans[i].slot] for i in ready], logits)

    def _admit(self) -> None:
        """Give slots to waiting requests, in order; those whose session is at home first, so that it is not evicted."""
        if not self.waiting or len(self.running) == len(self.table.slots):
            return
        queue, now = list(self.waiting), time.perf_counter()
        at_home = [r for r in queue if self.table.find(r.session) is not None]
        for request in [*at_home, *(r for r in queue if r not in at_home)] if at_home else queue:
            if (slot := self.table.claim(request.session)) is None:
                continue
            self.waiting.remove(request)
            self._reserve(len(request.prompt) + 1)
            request.slot, request.admitted = slot, now
            request.cached = self.table.write(slot, request.prompt)
            self.running[slot.index] = request

    def _reserve(self, num_tokens: int) -> None:
        """Grow the slots, by doubling, to hold a session of `num_tokens`."""
        capacity = max(self.table.capacity, MIN_CAPACITY)
        while capacity < num_tokens:
            capacity *= 2
        self.table.reserve(capacity)
        self.store.reserve(capacity)

    def _plan(self) -> list[Span]:
        """What to feed: one token of each decoding row in order of slot, then prompts within the step's budget."""
        singles, longer, budget = [], [], self.max_step_tokens
        for index in sorted(self.running):
            slot = self.table.slots[index]
            if slot.known - slot.fed == 1:
                singles.append(Span(index, slot.fed, slot.known))
            elif budget > 1:
                longer.append(Span(index, slot.fed, min(slot.known, slot.fed + budget)))
                budget -= len(longer[-1])
        return singles + longer

    def _forward(self, spans: list[Span], ready: list[int]) -> Tensor:
        """[len(ready), V] the logits after each ready span; keys, values and routing rows are stored on the way."""
        feed = lay_out(self.store, spans, device=self.device, dtype=self.dtype)
        tokens = np.concatenate([self.table.tokens(s.slot, s.start, s.stop) for s in spans])
        ends = np.cumsum([len(span) for span in spans])
        output = self.model(
            input_ids=torch.from_numpy(tokens).to(self.device, torch.int64).unsqueeze(0),
            position_ids=feed.positions.unsqueeze(0),
            use_cache=False,
            logits_to_keep=torch.from_numpy(ends[ready] - 1).to(self.device),
            feed=feed,
        )
        if (rows := self.recorder.take()) is not None:
            self.table.record(feed.slots.cpu().numpy(), feed.positions.cpu().numpy(), rows)
        for span in spans:
            slot = self.table.slots[span.slot]
            slot.fed, slot.num_rows = span.stop, max(slot.num_rows, span.stop)
        logits: Tensor = output.logits[0]
        return logits

    def _sample(self, requests: list[Request], logits: Tensor) -> None:
        """Draw the next token of each request [n] from logits [n, V]; end those that are done."""
        positions = [len(r.prompt) + len(r.completion) for r in requests]
        draws = Draws([r.params for r in requests], uniforms([r.seed for r in requests], positions))
        tokens, logprobs = draw(logits, draws)
        now = time.perf_counter()
        for request, token, logprob in zip(requests, tokens.tolist(), logprobs.tolist(), strict=True):
            assert request.slot is not None
            request.first_token = request.first_token or now
            if not math.isfinite(logprob):
                self._leave(request)
                request.finish(EngineError(f"logits are not finite under weights version {self.version}"))
                continue
            request.completion.append(token)
            request.logprobs.append(logprob)
            request.versions.append(self.version)
            if token in request.params.stop_ids:
                self._complete(request, FinishReason.STOP, now)
            elif len(request.completion) == min(request.params.max_tokens, self.max_context - len(request.prompt)):
                self._complete(request, FinishReason.LENGTH, now)
            else:
                self.table.append(request.slot, token)

    def _complete(self, request: Request, finish: FinishReason, now: float) -> None:
        """Hand out the sample; the session rests in its slot."""
        slot, rows = request.slot, None
        assert slot is not None
        if self.recorder.num_layers:
            rows = self.table.rows(slot, request.routing_start, len(request.prompt) + len(request.completion) - 1)
        sample = Sample(
            prompt=request.prompt,
            completion=np.array(request.completion, dtype=np.int32),
            logprobs=np.minimum(np.array(request.logprobs, dtype=np.float32), np.float32(0)),
            versions=np.array(request.versions, dtype=np.int32),
            finish=finish,
            routing=rows,
            routing_start=request.routing_start,
            timings=SampleTimings(
                queue_s=request.admitted - request.submitted,
                prefill_s=request.first_token - request.admitted,
                decode_s=now - request.first_token,
                cached_tokens=request.cached,
            ),
        )
        self._leave(request)
        request.finish(sample)

    def _leave(self, request: Request) -> None:
        """Free the row."""
        assert request.slot is not None
        del self.running[request.slot.index]
        self.table.release(request.slot)


def matching_weights(model: PreTrainedModel, weights: Mapping[str, Any]) -> list[tuple[Tensor, Tensor]]:
    """(ours, theirs) for each weight. Refuses missing, unknown and misshapen ones; one of a tied pair is enough."""
    own = model.state_dict(keep_vars=True)
    if unknown := sorted(set(weights) - set(own)):
        raise ValueError(f"weights: {len(unknown)} unknown names, first {unknown[0]}")
    given = {own[name].data_ptr() for name in weights}
    if missing := sorted(name for name, tensor in own.items() if tensor.data_ptr() not in given):
        raise ValueError(f"weights: {len(missing)} missing names, first {missing[0]}")
    for name, tensor in weights.items():
        if tensor.shape != own[name].shape:
            raise ValueError(f"weights: {name}: expected {list(own[name].shape)}, got {list(tensor.shape)}")
    return [(own[name].detach(), tensor.detach()) for name, tensor in weights.items()]


def _check_supported(model: PreTrainedModel, max_context: int) -> None:
    """Refuse layers that keep another state than keys and values, and windows shorter than the context."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None)
    if window is not None and (getattr(config, "use_sliding_window", True) or "sliding_attention" in kinds):
        kinds -= {"sliding_attention"} if window >= max_context else set()
        if window < max_context:
            raise ConfigError(f"sliding window {window}: the embedded engine needs max_context ≤ {window}")
    if other := kinds - {"full_attention"}:
        raise ConfigError(f"{type(model).__name__}: the embedded engine knows no {', '.join(sorted(other))} layers")
    if any(name.endswith("sinks") for name, _ in model.named_parameters()):
        raise ConfigError(f"{type(model).__name__}: the embedded engine knows no attention sinks; sample with vLLM")
    if getattr(config, "kv_lora_rank", None):
        raise ConfigError(f"{type(model).__name__}: the embedded engine knows no latent attention; sample with vLLM")
    limit = getattr(config, "max_position_embeddings", None)
    if limit is not None and max_context > limit:
        raise ConfigError(f"max_context: the model has {limit} positions, got {max_context}")
