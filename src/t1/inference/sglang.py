"""SGLang behind the Sampler protocol, over `/generate`.

Start the server so that it says all that a trainer needs (SGLang 0.5.23, on GPUs):

    python -m sglang.launch_server --model-path DIR --skip-tokenizer-init --enable-return-routed-experts

Its kernels have no build for processors: this client is held to the contract by a fake server that was made from
SGLang's documented fields (`t1.testing.engines`). Boundary: SGLang's names and encodings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t1.errors import EngineError, EngineUnavailable
from t1.inference.captures import decode_int32
from t1.inference.remote import RemoteSampler, longest_context
from t1.inference.replies import Ask, Ended, Reply
from t1.types import FloatArray, IntArray


class SglangSampler(RemoteSampler):
    """A Sampler over one SGLang server."""

    async def _generate(self, ask: Ask) -> Reply:
        """One request; it changes nothing in the engine, so that it may be sent again when the connection breaks."""
        answer = await self._wire.post(
            "/generate",
            _body(ask, routed=bool(self._model.num_layers)),
            timeout_s=self._bounds.request_s,
            repeatable=True,
        )
        try:
            return self._reply(answer)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise EngineError(f"{self.url}/generate: an answer without sense: {error!r}") from None

    def _reply(self, answer: Mapping[str, Any]) -> Reply:
        """The answer's fields; those about the request stand in `meta_info`."""
        meta = answer["meta_info"]
        seen, rows = answer.get("prompt_token_ids"), meta.get("routed_experts")
        completion = np.array(answer["output_ids"], dtype=np.int32)
        return Reply(
            prompt=None if seen is None else np.array(seen, dtype=np.int32),
            completion=completion,
            logprobs=_logprobs(meta.get("output_token_logprobs"), completion),
            ended=_ended(meta["finish_reason"]),
            rows=None if rows is None else decode_int32(rows, self._model),
            spans=_spans(meta, len(completion)),
            cached_tokens=int(meta.get("cached_tokens") or 0),
        )

    async def _abort(self, ids: list[str]) -> None:
        for rid in ids:
            await self._wire.post("/abort_request", {"rid": rid}, timeout_s=self._bounds.control_s, repeatable=True)

    async def _load(self, path: Path) -> None:
        body = {"model_path": str(path), "flush_cache": True}
        answer = await self._wire.post("/update_weights_from_disk", body, timeout_s=self._bounds.publish_s)
        if not isinstance(answer, Mapping) or answer.get("success") is not True:
            raise EngineError(f"{self.url}: weights were not reloaded: {answer!r}")

    async def _swap(self, bring: Callable[[], Awaitable[None]], version: int) -> None:
        """The cache is flushed by a call of its own: older servers take `flush_cache` and do nothing (case L1)."""
        control_s = self._bounds.control_s
        await self._wire.post("/pause_generation", {"mode": "abort"}, timeout_s=control_s, repeatable=True)
        try:
            await bring()
            await self._wire.post("/flush_cache", timeout_s=control_s, repeatable=True)
            await self._label(version)
        finally:
            await self._wire.post("/continue_generation", {}, timeout_s=control_s, repeatable=True)

    async def _engine_version(self) -> str | None:
        """SGLang's label; "default" after a start."""
        answer = await self._wire.get("/get_model_info", timeout_s=self._bounds.control_s)
        found = answer.get("weight_version") if isinstance(answer, Mapping) else None
        return None if found is None else str(found)

    async def _label(self, version: int) -> None:
        body = {"new_version": str(version), "abort_all_requests": False}
        answer = await self._wire.post(
            "/update_weight_version", body, timeout_s=self._bounds.control_s, repeatable=True
        )
        if isinstance(answer, Mapping) and answer.get("success") is False:
            raise EngineUnavailable(f"{self.url}: weights could not be labelled: {answer!r}")

    async def _longest_context(self) -> int:
        return (await longest_context(self._wire, self._bounds.control_s))[0]


def _body(ask: Ask, *, routed: bool) -> dict[str, Any]:
    """The body for `/generate`. Stop ids are not trimmed, and no cached logits stand in for the first token's."""
    params = ask.params
    sampling: dict[str, Any] = {
        "max_new_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k or -1,
        "stop_token_ids": list(params.stop_ids),
        "ignore_eos": True,
        "no_stop_trim": True,
        "skip_special_tokens": False,
    }
    if params.seed is not None:
        sampling["sampling_seed"] = params.seed % 2**31
    body: dict[str, Any] = {
        "rid": ask.id,
        "input_ids": ask.prompt.tolist(),
        "sampling_params": sampling,
        "return_logprob": True,
        "logprob_start_len": -1,
        "return_prompt_token_ids": True,
        "cache_salt": f"t1-weights-{ask.version}",
        "stream": False,
    }
    if routed:
        body |= {"return_routed_experts": True, "routed_experts_start_len": ask.routing_start}
    return body


def _ended(reason: Any) -> Ended:
    """SGLang says why as {"type": …}."""
    kind = reason["type"] if isinstance(reason, Mapping) else reason
    return Ended(kind)


def _spans(meta: Mapping[str, Any], count: int) -> tuple[tuple[int, int, int], ...] | None:
    """(version, begin, end) where SGLang says so: per span, or one for all."""
    spans = meta.get("weight_versions")
    if spans:
        return tuple((int(span["version"]), int(span["start"]), int(span["end"])) for span in spans)
    version = meta.get("weight_version")
    if version is None or not str(version).lstrip("-").isdigit():
        return None
    return ((int(version), 0, count),)


def _logprobs(found: Any, completion: IntArray) -> FloatArray:
    """[C] of [log-probability, id, text] triples."""
    if not len(completion):
        return np.zeros(0, dtype=np.float32)
    if not found:
        raise EngineError("SGLang sent no log-probabilities although return_logprob was set")
    ids = [int(entry[1]) for entry in found]
    if ids != completion.tolist():
        raise EngineError(f"SGLang's log-probabilities are of {ids[:8]}…, its tokens are {completion[:8].tolist()}…")
    return np.array([entry[0] for entry in found], dtype=np.float32)
