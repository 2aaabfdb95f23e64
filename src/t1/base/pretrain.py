"""Pre-training of the base model, from nothing to a checkpoint that `AutoModelForCausalLM` loads.

    python -m t1.base.pretrain --out DIR --seed 0 --steps 700

Deterministic in (seed, steps) on one machine; `--minutes` only chooses the number of steps, and the provenance file
names the command by steps. This module never learns of tasks, sandboxes or rewards.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from t1.base import base_path
from t1.base.corpus import END, END_OF_TEXT, corpus_digest, documents
from t1.base.muon import Muon
from t1.base.probes import probe
from t1.base.tokenizer import save_tokenizer, train_tokenizer, vocabulary_texts

VOCAB_SIZE = 1024
MAX_POSITIONS = 1024


@dataclass(frozen=True, slots=True)
class PretrainConfig:
    """How long and how fast to learn. Tokens of a step = `num_rows` × `row_length`."""

    seed: int = 0
    steps: int = 700
    num_rows: int = 16
    row_length: int = 512
    muon_lr: float = 0.02
    adam_lr: float = 5e-3
    warmup: float = 0.02
    """Share of the steps in which the rate rises."""
    decay: float = 0.4
    """Share of the steps, at the end, in which the rate falls to zero."""
    weight_decay: float = 0.05
    num_probes: int = 200
    """Texts of each probe."""
    balance: float = 0.02
    """Weight of the load-balancing loss (pre-training only: RL runs without one)."""


def build_model(seed: int, tokenizer: Tokenizer) -> Qwen3MoeForCausalLM:
    """The shape of the quickstart's policy, freshly initialised."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 160,
        "norm_topk_prob": True,
        "router_aux_loss_coef": 0.0,
        "tie_word_embeddings": True,
        "max_position_embeddings": MAX_POSITIONS,
        "initializer_range": 0.05,
        "bos_token_id": None,
        "eos_token_id": tokenizer.token_to_id(END),
        "pad_token_id": tokenizer.token_to_id(END_OF_TEXT),
    }
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**shape))


def packed_rows(tokenizer: Tokenizer, seed: int, row_length: int) -> Iterator[list[int]]:
    """Endless rows of `row_length` ids. Each starts with a document's start; its last document is cut where it ends."""
    end = tokenizer.encode(END_OF_TEXT).ids
    row: list[int] = []
    for document in documents(seed):
        row += [*tokenizer.encode(document.text).ids, *end]
        if len(row) >= row_length:
            yield row[:row_length]
            row = []


def balance_loss(router_logits: tuple[torch.Tensor, ...], top_k: int) -> torch.Tensor:
    """Mean over layers of E · Σ_e f_e p_e, with f the share of assignments and p the mean probability; 1 = balanced.

    Per layer, so that an expert idle in one layer is not excused by work in another (Switch, arXiv 2101.03961).
    """
    losses = []
    for logits in router_logits:  # [N, E]
        probabilities = logits.float().softmax(-1)
        chosen = probabilities.topk(top_k, dim=-1).indices
        share = functional.one_hot(chosen, logits.shape[-1]).float().mean((0, 1))
        losses.append(logits.shape[-1] * (share * probabilities.mean(0)).sum())
    return torch.stack(losses).mean()


def losses_of(model: Qwen3MoeForCausalLM, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(next-token cross-entropy, balance loss) of ids [B, T]."""
    out = model.model(ids, use_cache=False, output_router_logits=True)
    logits = model.lm_head(out.last_hidden_state[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    return loss, balance_loss(out.router_logits, model.config.num_experts_per_tok)


def rate(progress: float, config: PretrainConfig) -> float:
    """Factor of the learning rate at `progress` in [0, 1]: up, level, down to zero."""
    return min(1.0, (progress + 1e-3) / config.warmup, (1 - progress) / config.decay)


def optimizers_of(model: Qwen3MoeForCausalLM, config: PretrainConfig) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embedding, routers and norms."""
    hidden: list[torch.nn.Parameter] = []
    rest: list[torch.nn.Parameter] = []
    for name, weight in model.model.named_parameters():
        is_hidden = name.startswith("layers.") and weight.ndim > 1 and "mlp.gate." not in name
        (hidden if is_hidden else rest).append(weight)
    return [
        Muon(hidden, lr=config.muon_lr, weight_decay=config.weight_decay),
        torch.optim.AdamW(rest, lr=config.adam_lr, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]


def train(
    model: Qwen3MoeForCausalLM, tokenizer: Tokenizer, config: PretrainConfig, log: Callable[[str], None]
) -> dict[str, float]:
    """Run all steps in place; returns the last smoothed loss and the speed."""
    optimizers = optimizers_of(model, config)
    peaks = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    rows = packed_rows(tokenizer, config.seed, config.row_length)
    tokens_per_step = config.num_rows * config.row_length
    smooth, started = 0.0, time.monotonic()
    model.train()
    for step in range(config.steps):
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        for group, peak in zip(groups, peaks, strict=True):
            group["lr"] = peak * rate(step / config.steps, config)
        ids = torch.tensor([next(rows) for _ in range(config.num_rows)])
        loss, balance = losses_of(model, ids)
        torch.autograd.backward(loss + config.balance * balance)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        smooth = loss.item() if step == 0 else 0.95 * smooth + 0.05 * loss.item()
        if (step + 1) % 25 == 0:
            speed = (step + 1) * tokens_per_step / (time.monotonic() - started)
            log(f"step {step + 1}/{config.steps} loss {smooth:.3f} balance {balance.item():.3f} {speed:.0f} tokens/s")
    seconds = time.monotonic() - started
    return {"final_loss": round(smooth, 4), "tokens_per_s": round(config.steps * tokens_per_step / max(seconds, 1e-9))}


def steps_within(minutes: float, config: PretrainConfig, tokenizer: Tokenizer) -> int:
    """How many steps fit into that time here, from a few steps of a model that is thrown away."""
    trial = replace(config, steps=6)
    tokens_per_s = train(build_model(0, tokenizer), tokenizer, trial, log=lambda _: None)["tokens_per_s"]
    return max(1, int(minutes * 60 * tokens_per_s / (config.num_rows * config.row_length)))


def save_base(
    model: Qwen3MoeForCausalLM, tokenizer: Tokenizer, out: Path, config: PretrainConfig, result: dict[str, Any]
) -> dict[str, Any]:
    """Write weights (bf16), tokenizer, and a provenance file that says how to make them again."""
    out.mkdir(parents=True, exist_ok=True)
    model.bfloat16().save_pretrained(out)
    save_tokenizer(tokenizer, out, MAX_POSITIONS)
    provenance = {
        "command": f"python -m t1.base.pretrain --out DIR --seed {config.seed} --steps {config.steps}",
        "config": asdict(config),
        "corpus_sha256": corpus_digest(config.seed),
        "tokens": config.steps * config.num_rows * config.row_length,
        "parameters": sum(p.numel() for p in model.parameters()),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        **result,
        "tokenizer_sha256": _sha256(out / "tokenizer.json"),
        "weights_sha256": _sha256(out / "model.safetensors"),
    }
    (out / "provenance.json").write_text(json.dumps(provenance, indent=2) + "\n", encoding="utf-8")
    return provenance


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pretrain(out: Path, config: PretrainConfig, log: Callable[[str], None] = print) -> dict[str, Any]:
    """Tokenizer, training, probes, checkpoint. Returns the provenance."""
    tokenizer = train_tokenizer(vocabulary_texts(config.seed), VOCAB_SIZE)
    model = build_model(config.seed, tokenizer)
    result: dict[str, Any] = dict(train(model, tokenizer, config, log))
    result["probes"] = probe(model, tokenizer, config.seed + 1, config.num_probes)
    return save_base(model, tokenizer, out, config, result)


def _compared(provenance: dict[str, Any]) -> str:
    """How the new weights stand to the shipped ones."""
    shipped = json.loads((base_path() / "provenance.json").read_text(encoding="utf-8"))
    if provenance["weights_sha256"] == shipped["weights_sha256"]:
        return "the shipped base, bit by bit"
    return f"not the shipped base (made by {shipped['command']} with torch {shipped['torch']})"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m t1.base.pretrain", description="Pre-train the quickstart's base.")
    parser.add_argument("--out", type=Path, default=Path("runs/base"), help="directory of the checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, help=f"number of steps, reproducible (default {PretrainConfig().steps})")
    length.add_argument("--minutes", type=float, help="as many steps as fit into this time on this machine")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default 1)")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    config = PretrainConfig(seed=asked.seed)
    if asked.minutes is not None:
        tokenizer = train_tokenizer(vocabulary_texts(config.seed), VOCAB_SIZE)
        config = replace(config, steps=steps_within(asked.minutes, config, tokenizer))
    elif asked.steps is not None:
        config = replace(config, steps=asked.steps)
    provenance = pretrain(asked.out, config, log=lambda line: print(line, flush=True))
    print(json.dumps(provenance))
    print(f"weights sha256 {provenance['weights_sha256']}: {_compared(provenance)}")


if __name__ == "__main__":
    main()
