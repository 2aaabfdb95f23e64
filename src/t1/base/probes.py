"""What a base model can do, in numbers: loss by domain, copying, operands of commands, balance of its experts.

Everything is measured on documents of another seed, greedily, with the right text fed up to each token.
"""

from __future__ import annotations

import re
from itertools import islice
from random import Random

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import Qwen3MoeForCausalLM

from t1.base.corpus import DOMAINS, documents, message
from t1.base.words import EXTENSIONS, WORDS, file_name, made_up, pseudo_word, words


@torch.no_grad()
def probe(model: Qwen3MoeForCausalLM, tokenizer: Tokenizer, seed: int, num_texts: int) -> dict[str, float]:
    """All probes of a model. Shares are of whole spans that are right token by token."""
    model.train(False)
    results = {f"loss_{name}": _domain_loss(model, tokenizer, seed, name, num_texts) for name in DOMAINS}
    rng = Random(seed)
    results["induction"] = _span_accuracy(model, tokenizer, [_induction(rng) for _ in range(num_texts)])
    results["operand"] = _span_accuracy(model, tokenizer, [_operand(rng) for _ in range(num_texts)])
    results["read_and_use"] = _span_accuracy(model, tokenizer, [_reading(rng) for _ in range(num_texts)])
    results["say"] = _span_accuracy(model, tokenizer, [_saying(rng) for _ in range(num_texts)])
    least, most = _expert_load(model, tokenizer, seed)
    results |= {"least_expert_load": least, "most_expert_load": most}
    return {name: round(value, 4) for name, value in results.items()}


def _domain_loss(model: Qwen3MoeForCausalLM, tokenizer: Tokenizer, seed: int, domain: str, num_texts: int) -> float:
    total, count = 0.0, 0
    for document in islice(documents(seed, domain), num_texts):
        ids = torch.tensor([tokenizer.encode(document.text).ids])
        logits = model(ids, use_cache=False).logits[0, :-1].float()
        total += functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
        count += ids.shape[1] - 1
    return total / count


Span = tuple[str, str]
"""(what is given, what must follow)."""


def _span_accuracy(model: Qwen3MoeForCausalLM, tokenizer: Tokenizer, spans: list[Span]) -> float:
    """Share of spans whose every token is the most likely one."""
    right = 0
    for given, wanted in spans:
        start = len(tokenizer.encode(given).ids)
        ids = torch.tensor([tokenizer.encode(given + wanted).ids])
        best = model(ids, use_cache=False).logits[0, start - 1 : -1].argmax(-1)
        right += bool((best == ids[0, start:]).all())
    return right / len(spans)


def _induction(rng: Random) -> Span:
    """Random words again: the second half of the repetition."""
    said = words(rng, 10)
    return f"{' '.join(said)}\n{' '.join(said[:4])} ", f"{' '.join(said[4:])}\n"


def _operand(rng: Random) -> Span:
    """A listing, then the first word of a name from it: the rest of that name, digits and extension."""
    names = [
        f"{word}{rng.randint(10, 99)}-{pseudo_word(rng)}.{rng.choice(EXTENSIONS)}" for word in rng.sample(WORDS, 4)
    ]
    head, rest = re.split(r"(?<=[a-z])(?=[0-9])", rng.choice(names), maxsplit=1)
    opening = message("user", "$ ls\n" + "\n".join(sorted(names)))
    return opening + f"<|im_start|>assistant\ncat {head}", f"{rest}<|im_end|>"


def _reading(rng: Random) -> Span:
    """A value that a command showed becomes the operand of the next."""
    holder, value = file_name(rng), made_up(rng)
    shown = message("user", holder) + message("assistant", f"cat {holder}") + message("tool", value)
    return shown + "<|im_start|>assistant\nmkdir -p ", f"{value}<|im_end|>"


def _saying(rng: Random) -> Span:
    """The plainest request."""
    said = " ".join(words(rng, 3))
    return message("user", f"say {said}") + "<|im_start|>assistant\n", f"{said}<|im_end|>"


def _expert_load(model: Qwen3MoeForCausalLM, tokenizer: Tokenizer, seed: int) -> tuple[float, float]:
    """Smallest and largest load of an expert over all layers, as multiples of an equal share."""
    ids = [i for document in islice(documents(seed), 60) for i in tokenizer.encode(document.text).ids]
    rows = torch.tensor(ids[: len(ids) // 256 * 256]).view(-1, 256)
    routed = model.model(rows, use_cache=False, output_router_logits=True).router_logits
    experts, top_k = model.config.num_experts, model.config.num_experts_per_tok
    loads = [
        functional.one_hot(logits.topk(top_k, -1).indices, experts).float().mean((0, 1)) * experts for logits in routed
    ]
    return min(load.min().item() for load in loads), max(load.max().item() for load in loads)
