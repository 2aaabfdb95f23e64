"""Tokens per second of the embedded engine, beside `transformers.generate` on the same static batch.

A Qwen3-MoE of hidden 128, 4 layers, 16 experts, top-4, vocabulary 512; every agent has a prompt of 64 tokens and
samples 128. `generate` gets the same weights, prompts, attention and expert kernel, samples at temperature 1 too, and
captures neither log-probabilities nor routes, both of which the engine does. Pairs alternate in one process, which
side goes first alternates too; medians over pairs, prompt included.

Beside it: what the client of a remote engine costs for one such request (`client_ms`, the engine's answer being there
already), and a real vLLM over HTTP on the same shape where `make test-vllm` has installed one, else null. The last line
is one JSON object.

    python bench/bench_engine.py [--threads 1] [--pairs 11] [--rows 1 8 32] [--without-vllm]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from transformers import PreTrainedModel, Qwen3MoeConfig

from t1.inference import TorchEngine, load_model
from t1.inference.captures import ModelShape
from t1.inference.remote import EngineBounds
from t1.inference.vllm import VllmSampler
from t1.testing.vllm_server import serving
from t1.types import IntArray, SamplingParams

VOCABULARY, PROMPT, NEW = 512, 64, 128


def main() -> None:
    """Print a line for each pair and the JSON line."""
    options = _options()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    reference = load_model(_config())
    model = load_model(_config())
    model.load_state_dict(reference.state_dict())
    engine, generate, ratios = {}, {}, {}
    for rows in options.rows:
        pairs = asyncio.run(_pairs(model, reference, rows, options))
        ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(one / other for one, other in pairs)
        print(f"{rows} rows: engine {ours:.0f}, generate {theirs:.0f} tokens/s, median ratio {ratio:.2f}")
        engine[str(rows)], generate[str(rows)], ratios[str(rows)] = round(ours), round(theirs), round(ratio, 3)
    client_ms = asyncio.run(_client_ms())
    print(f"client of a remote engine: {client_ms:.2f} ms a request")
    vllm = _vllm_rates(reference, options)
    line = {
        "tokens_per_s": engine, "generate_tokens_per_s": generate, "ratio": ratios, "threads": options.threads,
        "vllm_tokens_per_s": vllm, "client_ms": round(client_ms, 3),
    }  # fmt: skip
    print(json.dumps(line))


def _options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--without-vllm", action="store_true", help="as if it were not installed")
    return parser.parse_args()


def _config() -> Qwen3MoeConfig:
    """The shape of the design's table."""
    return Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, intermediate_size=128, moe_intermediate_size=128, num_experts=16, num_experts_per_tok=4,
        norm_topk_prob=True, max_position_embeddings=512,
    )  # fmt: skip


async def _pairs(
    model: PreTrainedModel, reference: PreTrainedModel, rows: int, options: argparse.Namespace
) -> list[tuple[float, float]]:
    """(engine, generate) tokens/s of each pair, after one that is not counted."""
    engine = TorchEngine(model, max_context=PROMPT + NEW, max_rows=rows, num_threads=options.threads)
    rng = np.random.default_rng(rows)
    pairs = []
    for index in range(options.pairs + 1):
        prompts = rng.integers(0, VOCABULARY, (rows, PROMPT)).astype(np.int32)
        if index % 2:
            ours = await _engine_rate(engine, prompts, index)
            theirs = _generate_rate(reference, prompts)
        else:
            theirs = _generate_rate(reference, prompts)
            ours = await _engine_rate(engine, prompts, index)
        pairs.append((ours, theirs))
        print(f"  {rows} rows: engine {ours:.0f}, generate {theirs:.0f} tokens/s")
    await engine.aclose()
    return pairs[1:]


async def _engine_rate(engine: TorchEngine, prompts: IntArray, index: int) -> float:
    """Tokens/s of one concurrent request per prompt [rows, P]."""
    params = SamplingParams(max_tokens=NEW)
    started = time.perf_counter()
    await asyncio.gather(
        *(engine.sample(prompt, params, session=f"{index}/{row}") for row, prompt in enumerate(prompts))
    )
    return len(prompts) * NEW / (time.perf_counter() - started)


def _generate_rate(model: PreTrainedModel, prompts: IntArray) -> float:
    """Tokens/s of transformers' static batch over prompts [rows, P]."""
    ids = torch.from_numpy(prompts).long()
    started = time.perf_counter()
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=True,
        temperature=1.0, top_k=0, top_p=1.0, pad_token_id=0, eos_token_id=None,
    )  # fmt: skip
    elapsed = time.perf_counter() - started
    assert made.shape[1] == PROMPT + NEW
    return len(prompts) * NEW / elapsed


class Canned(httpx.AsyncBaseTransport):
    """An engine that has its answer ready, for one prompt."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer."""
        return httpx.Response(200, content=self._content)


def _canned(prompt: IntArray) -> bytes:
    """What vLLM answers to `prompt` [P]: NEW tokens, their log-probabilities, P + NEW − 1 routing rows."""
    ids = np.arange(NEW) % VOCABULARY
    rows = np.random.default_rng(0).random((len(prompt) + NEW - 1, 4, 16)).argsort(axis=2)[:, :, :4]
    stream = io.BytesIO()
    np.save(stream, rows.astype(np.uint8))
    names = [f"token_id:{id}" for id in ids]
    content = [
        {"token": t, "logprob": -1.25, "bytes": None, "top_logprobs": [{"token": t, "logprob": -1.25}]} for t in names
    ]
    choice = {
        "index": 0, "token_ids": ids.tolist(), "finish_reason": "length", "logprobs": {"content": content},
        "routed_experts": base64.b64encode(stream.getvalue()).decode(),
    }  # fmt: skip
    return json.dumps({"choices": [choice], "prompt_token_ids": prompt.tolist(), "usage": {}}).encode()


def _client(url: str, **settings: Any) -> VllmSampler:
    """A client of an engine with the bench's model."""
    shape = ModelShape.from_config(_config().to_dict())
    return VllmSampler(url, model=shape, max_context=PROMPT + NEW, **settings)


async def _client_ms(requests: int = 400) -> float:
    """Milliseconds that `sample` takes when the engine takes none: the median."""
    prompt = np.arange(PROMPT, dtype=np.int32)
    sampler = _client("http://canned", transport=Canned(_canned(prompt)), bounds=EngineBounds(quiet_s=float("inf")))
    spent = []
    for _ in range(requests):
        started = time.perf_counter()
        await sampler.sample(prompt, SamplingParams(max_tokens=NEW), session="a")
        spent.append(time.perf_counter() - started)
    return 1000 * statistics.median(spent)


def _vllm_rates(model: PreTrainedModel, options: argparse.Namespace) -> dict[str, int] | None:
    """Tokens/s by rows of a real vLLM that serves the same weights; None where there is none."""
    python = Path(__file__).parent.parent / ".venv-vllm" / "bin" / "python"
    if options.without_vllm or not python.exists():
        print("vLLM WAS NOT MEASURED: make test-vllm installs it")
        return None
    with tempfile.TemporaryDirectory(prefix="t1-bench-") as folder:
        path = Path(folder) / "model"
        model.save_pretrained(path)
        with serving(str(python), path, Path(folder) / "vllm.log", max_context=PROMPT + NEW) as url:
            return {str(rows): round(asyncio.run(_vllm_rate(url, rows, options.pairs))) for rows in options.rows}


async def _vllm_rate(url: str, rows: int, repeats: int) -> float:
    """Tokens/s of `rows` concurrent requests over HTTP, the median after a first time that is not counted."""
    sampler = _client(url)
    await sampler.connect()
    rng, rates = np.random.default_rng(rows), []
    for index in range(repeats + 1):
        prompts = rng.integers(0, VOCABULARY, (rows, PROMPT)).astype(np.int32)
        started = time.perf_counter()
        await asyncio.gather(
            *(sampler.sample(p, SamplingParams(max_tokens=NEW), session=f"{index}/{i}") for i, p in enumerate(prompts))
        )
        rates.append(rows * NEW / (time.perf_counter() - started))
    await sampler.aclose()
    print(f"  {rows} rows: vLLM {statistics.median(rates[1:]):.0f} tokens/s")
    return statistics.median(rates[1:])


if __name__ == "__main__":
    main()
