"""What token-in, token-out costs: assembling and auditing, and the gateway in front of the sampler.

    python bench/bench_tito.py

Tokens a second, medians over repeats; `*_per_cpu_s` counts this process's own time, which says on a busy machine what a
quiet one would take. Rollouts of 300 turns as the gateway records them, prompts sharing memory; `copied_`: every prompt
in memory of its own, so that reading them costs turns x tokens; `short_`: 4 turns of 60 tokens, where Python's overhead
dominates; `branches_`: 3 conversations of 100 turns each that take turns. Routing: 4 layers, top 2 of 8. The gateway's
share, with re-rendering every prompt as the baseline of what is encoded, is bench_gateway.py's. The last line is one
JSON object.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from bench_gateway import NUM_SESSIONS, overhead, session_memory

from t1.tito import assemble, audit
from t1.types import FinishReason, Outcome, RewardSource, Rollout, RolloutId, RoutingArray, StopReason, Turn

VOCAB, EXPERTS, LAYERS = 32_000, 8, 4


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


def sharing(rollout: Rollout) -> Rollout:
    """The same rollout as the gateway records it: the prompts of a branch are views of its longest one."""
    ids = np.concatenate([rollout.turns[-1].prompt, rollout.turns[-1].completion])
    turns = []
    for turn in rollout.turns:
        start = len(turn.prompt)
        turns.append(replace(turn, prompt=ids[:start], completion=ids[start : start + len(turn.completion)]))
    return replace(rollout, turns=tuple(turns))


def interleave(rollouts: list[Rollout]) -> Rollout:
    """One rollout of several conversations that take turns."""
    turns = [turn for together in zip(*(rollout.turns for rollout in rollouts), strict=True) for turn in together]
    return replace(rollouts[0], turns=tuple(turns))


def rates(name: str, work: Callable[[list[Rollout]], int], rollouts: list[Rollout], repeats: int) -> dict[str, int]:
    """Median tokens per second, by the clock on the wall and by the processor's."""
    wall, cpu = [], []
    for _ in range(repeats):
        started, busy = time.perf_counter(), time.process_time()
        tokens = work(rollouts)
        wall.append(tokens / (time.perf_counter() - started))
        cpu.append(tokens / (time.process_time() - busy))
    return {f"{name}_per_s": round(statistics.median(wall)), f"{name}_per_cpu_s": round(statistics.median(cpu))}


def assembling(repeats: int) -> dict[str, int]:
    """Tokens a second of `assemble`, and of both it and `audit`."""
    rng = np.random.default_rng(0)
    long = [draw_rollout(rng, member, 300, opening=600, sampled=60, seen=60) for member in range(8)]
    short = [draw_rollout(rng, member, 4, opening=30, sampled=30, seen=30) for member in range(512)]
    branches = [
        interleave([draw_rollout(rng, member, 100, opening=600, sampled=60, seen=60) for _ in range(3)])
        for member in range(8)
    ]
    workloads = {
        "": [sharing(rollout) for rollout in long],
        "copied_": long,
        "short_": short,
        "branches_": branches,
    }
    result: dict[str, int] = {}
    for name, rollouts in workloads.items():
        print(f"{name or 'long_'}rollouts: {len(rollouts)}, {only_assemble(rollouts)} tokens")
        result |= rates(f"{name}assemble_audit_tokens", check, rollouts, repeats)
        result |= rates(f"{name}assemble_tokens", only_assemble, rollouts, repeats)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--sessions", type=int, default=NUM_SESSIONS, help="at once, of the gateway")
    options = parser.parse_args()
    result: dict[str, float] = {**assembling(options.repeats), **session_memory(), **overhead(options.sessions)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
