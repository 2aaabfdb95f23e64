"""Tokens per second of the embedded engine, beside `transformers.generate` on the same static batch.

A Qwen3-MoE of hidden 128, 4 layers, 16 experts, top-4, vocabulary 512; every agent has a prompt of 64 tokens and
samples 128. `generate` gets the same weights, prompts, attention and expert kernel, samples at temperature 1 too, and
captures neither log-probabilities nor routes, both of which the engine does. Pairs alternate in one process, which
side goes first alternates too; medians over pairs, prompt included. The last line is one JSON object.

    python bench/bench_engine.py [--threads 1] [--pairs 11] [--rows 1 8 32]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time

import numpy as np
import torch
from transformers import PreTrainedModel, Qwen3MoeConfig

from t1.inference import TorchEngine, load_model
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
    line = {"tokens_per_s": engine, "generate_tokens_per_s": generate, "ratio": ratios, "threads": options.threads}
    print(json.dumps(line))


def _options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32])
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


if __name__ == "__main__":
    main()
