"""How many tokens a second are assembled and audited. The last line is one JSON object: medians over repeats.

    python bench/bench_tito.py

long: rollouts of 300 turns; short: 4 turns of 60 tokens, where Python's overhead dominates. Routing: 4 layers, top 2
of 8.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import statistics
import time
from collections.abc import Callable

import numpy as np

from t1.tito import assemble, audit
from t1.types import FinishReason, Outcome, RewardSource, Rollout, RolloutId, RoutingArray, StopReason, Turn

VOCAB, EXPERTS, LAYERS, REPEATS = 32_000, 8, 4, 7


def draw_routing(rng: np.random.Generator, num_rows: int) -> RoutingArray:
    """uint8[num_rows, L, 2] two distinct experts in every layer."""
    first = rng.integers(0, EXPERTS, (num_rows, LAYERS))
    second = (first + rng.integers(1, EXPERTS, first.shape)) % EXPERTS
    return np.stack([first, second], axis=2).astype(np.uint8)


def draw_rollout(
    rng: np.random.Generator, member: int, num_turns: int, opening: int, sampled: int, seen: int
) -> Rollout:
    """An append-only conversation: each turn samples `sampled` tokens and observes `seen` of them."""
    prompt = rng.integers(0, VOCAB, opening, dtype=np.int32)
    turns: list[Turn] = []
    start = 0
    for _ in range(num_turns):
        completion = rng.integers(0, VOCAB, sampled, dtype=np.int32)
        fed = len(prompt) + sampled - 1
        turns.append(
            Turn(
                prompt=prompt,
                completion=completion,
                logprobs=-rng.random(sampled, dtype=np.float32),
                versions=np.full(sampled, 3, dtype=np.int32),
                finish=FinishReason.STOP,
                routing=draw_routing(rng, fed - start),
                routing_start=start,
            )
        )
        start = fed
        prompt = np.concatenate([prompt, completion, rng.integers(0, VOCAB, seen, dtype=np.int32)])
    outcome = Outcome(StopReason.TURN_LIMIT, None, 1.0, RewardSource.ASSERTIONS)
    return Rollout(RolloutId("task", 0, member), "digest", tuple(turns), outcome)


def check(rollouts: list[Rollout]) -> int:
    """Assemble and audit; returns the tokens, and refuses a workload with findings."""
    tokens = 0
    for rollout in rollouts:
        trajectories = assemble(rollout.id, rollout.turns)
        report = audit(rollout, trajectories, vocab_size=VOCAB, num_experts=EXPERTS)
        assert not report.findings, report.findings
        tokens += report.counters["tokens"]
    return tokens


def only_assemble(rollouts: list[Rollout]) -> int:
    """Assemble; returns the tokens."""
    return sum(len(t.tokens) for rollout in rollouts for t in assemble(rollout.id, rollout.turns))


def rate(work: Callable[[list[Rollout]], int], rollouts: list[Rollout]) -> int:
    """Median tokens per second."""
    rates = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        tokens = work(rollouts)
        rates.append(tokens / (time.perf_counter() - started))
    return round(statistics.median(rates))


def main() -> None:
    rng = np.random.default_rng(0)
    long = [draw_rollout(rng, member, 300, opening=600, sampled=60, seen=60) for member in range(8)]
    short = [draw_rollout(rng, member, 4, opening=30, sampled=30, seen=30) for member in range(512)]
    for name, rollouts in (("long", long), ("short", short)):
        print(f"{name}: {len(rollouts)} rollouts, {only_assemble(rollouts)} tokens")
    result = {
        "assemble_audit_tokens_per_s": rate(check, long),
        "short_assemble_audit_tokens_per_s": rate(check, short),
        "assemble_tokens_per_s": rate(only_assemble, long),
        "short_assemble_tokens_per_s": rate(only_assemble, short),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
