"""The HTTP interfaces of vLLM and SGLang, spoken by a fake engine: paths, fields and encodings as those have them.

vLLM's were compared with a running server of version 0.30; SGLang's are its documented ones.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from t1.protocols import Sampler
from t1.testing.engines import Done, FakeEngine, Wanted
from t1.types import SamplingParams


class FakeVllm(FakeEngine):
    """vLLM 0.30 started with --enable-scale-out in development mode; `integers` = it names tokens as 0.32 does."""

    def __init__(self, sampler: Sampler, *, integers: bool = False, generate: bool = True, **settings: Any) -> None:
        """`generate` False = without --enable-scale-out: only `/v1/completions`."""
        self._integers, self._has_generate = integers, generate
        super().__init__(sampler, **settings)

    def routes(self) -> list[Route]:
        """The paths that the client uses, and `/openapi.json` that lists them."""
        routes = [
            self.route("/v1/completions", self._completions),
            self.route("/abort_requests", self._abort_requests),
            self.route("/pause", self.pause),
            self.route("/resume", self.go_on),
            self.route("/collective_rpc", self._rpc),
            self.route("/reset_prefix_cache", self._reset),
            self.route("/update_weight_version", self._label),
            self.route("/weight_info", self._info, get=True),
            self.route("/version", self._version, get=True),
            self.route("/v1/models", self.models, get=True),
        ]
        if self._has_generate:
            routes.append(self.route("/inference/v1/generate", self._generate))
        paths: dict[str, Any] = {route.path: {} for route in routes}

        async def describe(body: Any) -> Any:
            return {"paths": paths}

        return [*routes, self.route("/openapi.json", describe, get=True)]

    async def _generate(self, body: Any) -> Any:
        self.asked.append(body)
        params = body["sampling_params"]
        done = await self._do(body["token_ids"], params, f"generate-tokens-{body['request_id']}", body)
        ids = done.completion.tolist()
        names = [{"token_id": id} if self._integers else {"token": f"token_id:{id}"} for id in ids]
        content = [{**name, "logprob": float(value)} for name, value in zip(names, done.logprobs, strict=False)]
        choice = {**self._choice(done), "logprobs": {"content": content}}
        return {
            "request_id": body["request_id"],
            "choices": [choice],
            "prompt_token_ids": done.prompt.tolist() if body.get("return_token_ids") else None,
            "usage": _usage(done),
        }

    async def _completions(self, body: Any) -> Any:
        self.asked.append(body)
        done = await self._do(body["prompt"], body, f"cmpl-{body['request_id']}-0", body)
        names = [f"token_id:{id}" for id in done.completion.tolist()]
        logprobs = {"tokens": names, "token_logprobs": [float(value) for value in done.logprobs]}
        choice = {**self._choice(done), "logprobs": logprobs, "prompt_token_ids": done.prompt.tolist(), "text": ""}
        return {"id": f"cmpl-{body['request_id']}", "choices": [choice], "usage": _usage(done)}

    async def _do(self, prompt: list[int], params: Any, name: str, body: Any) -> Done:
        """Sample what a body asks for."""
        start = self.start_of(params.get("routed_experts_prompt_start", 0))
        asked = SamplingParams(
            temperature=params["temperature"],
            top_p=params["top_p"],
            top_k=params["top_k"],
            max_tokens=params["max_tokens"],
            stop_ids=tuple(params["stop_token_ids"]),
            seed=params.get("seed"),
        )
        wanted = Wanted(name, np.array(prompt, dtype=np.int32), asked, start, body.get("cache_salt") or "")
        return await self.complete(wanted)

    def _choice(self, done: Done) -> dict[str, Any]:
        """What both ways in say alike."""
        rows = None
        if done.rows is not None:
            stream = io.BytesIO()
            np.save(stream, done.rows.astype(np.uint8 if self.model.num_experts <= 256 else np.uint16))
            rows = base64.b64encode(stream.getvalue()).decode()
        return {"index": 0, "token_ids": done.completion.tolist(), "finish_reason": done.ended, "routed_experts": rows}

    async def _abort_requests(self, body: Any) -> Any:
        self.abort(body["request_ids"])
        return {"status": "aborted"}

    async def _rpc(self, body: Any) -> Any:
        """The worker extension of T1, and nothing else."""
        if body["method"] != "t1_reload":
            return JSONResponse({"detail": "no such method"}, status_code=500)
        error = await self.reload(body["args"][0])
        return {"results": [{"loaded": False, "error": error} if error else {"loaded": True, "experts": 2, "heads": 1}]}

    async def _reset(self, body: Any) -> Any:
        self.reset_cache()
        return {"success": True}

    async def _label(self, body: Any) -> Any:
        self.label = body["new_version"]
        return {"success": True, "new_version": self.label}

    async def _info(self, body: Any) -> Any:
        return {"weight_version": self.label}

    async def _version(self, body: Any) -> Any:
        return {"version": "0.32.0" if self._integers else "0.30.0"}


def _usage(done: Done) -> dict[str, Any]:
    """vLLM's counts."""
    return {
        "prompt_tokens": len(done.prompt),
        "completion_tokens": len(done.completion),
        "prompt_tokens_details": {"cached_tokens": done.cached},
    }


class FakeSglang(FakeEngine):
    """SGLang 0.5.23 by its documented fields."""

    def routes(self) -> list[Route]:
        """The paths that the client uses."""
        return [
            self.route("/generate", self._generate),
            self.route("/abort_request", self._abort_request),
            self.route("/pause_generation", self.pause),
            self.route("/continue_generation", self.go_on),
            self.route("/update_weights_from_disk", self._update),
            self.route("/flush_cache", self._flush),
            self.route("/update_weight_version", self._label),
            self.route("/get_model_info", self._info, get=True),
            self.route("/v1/models", self.models, get=True),
        ]

    async def _generate(self, body: Any) -> Any:
        self.asked.append(body)
        params = body["sampling_params"]
        asked = SamplingParams(
            temperature=params["temperature"],
            top_p=params["top_p"],
            top_k=max(0, params["top_k"]),
            max_tokens=params["max_new_tokens"],
            stop_ids=tuple(params["stop_token_ids"]),
            seed=params.get("sampling_seed"),
        )
        start = self.start_of(body.get("routed_experts_start_len", 0))
        prompt = np.array(body["input_ids"], dtype=np.int32)
        done = await self.complete(Wanted(body["rid"], prompt, asked, start, body.get("cache_salt") or ""))
        ids = done.completion.tolist()
        meta: dict[str, Any] = {
            "id": body["rid"],
            "finish_reason": {"type": done.ended},
            "prompt_tokens": len(prompt),
            "completion_tokens": len(ids),
            "cached_tokens": done.cached,
            "weight_version": done.label,
            "output_token_logprobs": [[float(p), id, None] for p, id in zip(done.logprobs, ids, strict=False)],
        }
        if done.label.isdigit():
            meta["weight_versions"] = [{"version": done.label, "start": 0, "end": len(ids)}]
        if done.rows is not None and body.get("return_routed_experts"):
            meta["routed_experts"] = base64.b64encode(done.rows.astype("<i4").tobytes()).decode()
        return {"output_ids": ids, "prompt_token_ids": done.prompt.tolist(), "meta_info": meta}

    async def _abort_request(self, body: Any) -> Any:
        self.abort([body["rid"]])
        return Response(status_code=200)

    async def _update(self, body: Any) -> Any:
        error = await self.reload(body["model_path"])
        if error:
            return JSONResponse({"success": False, "message": error}, status_code=400)
        self.label = body.get("weight_version") or self.label
        if body.get("flush_cache"):
            self.reset_cache()
        return {"success": True, "message": "Succeeded to update model weights."}

    async def _flush(self, body: Any) -> Any:
        self.reset_cache()
        return Response("Cache flushed.", media_type="text/plain")

    async def _label(self, body: Any) -> Any:
        self.label = body["new_version"]
        return {"success": True, "new_version": self.label}

    async def _info(self, body: Any) -> Any:
        return {"model_path": "fake", "is_generation": True, "weight_version": self.label}
