"""What does replay cost: time of a training step, and bytes of routes that an engine sends?

Time. Left side, `replay`: `PPOTrainer.step` with recorded routes replayed, forward and backward, flips counted. Right
side, `live`: the same step without any routes, where the model's own top-k selects. Both trainers begin with the same
weights and get the same rollouts, whose routes are those that the policy took by itself when they were recorded.
Pairs alternate in one process, which side goes first alternates too; `step_overhead` is the median of the pairs'
ratios, less 1. Seconds are the processor's, of one thread: on a machine that others use too, those of the clock on the
wall tell of the others (their ratio is `wall_overhead`). Before timing begins, one more trainer checks that replay
really sets the routes.

Bytes. Conversations of several turns through the embedded engine, asked as the harness asks: each turn for the rows
that are not held yet. `routing_bytes_ratio` is the bytes of all captures over tokens × layers × experts per token;
`whole_captures_ratio` is the baseline, an engine that sends every row at every turn. The last line is one JSON object.

    python bench/bench_replay.py [--threads 1] [--pairs 11] [--rollouts 12] [--turns 12]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from dataclasses import replace

import numpy as np
import torch
from transformers import PreTrainedModel, Qwen3MoeConfig

from t1.inference import TorchEngine, load_model
from t1.tito import assemble
from t1.training.attention import attend_within_segments
from t1.training.config import PPOConfig
from t1.training.critic import Critic
from t1.training.ppo import PPOTrainer
from t1.types import RolloutId, Sample, SamplingParams, Trajectory, Turn

VOCABULARY, OPENING, OBSERVATION, SAMPLED = 1024, 40, 15, 10


def main() -> None:
    """Print a line for each pair and the JSON line."""
    options = _options()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    policy = load_model(_config())
    talks = asyncio.run(_talks(_copy(policy), options))
    trajectories = [assemble(RolloutId("made-up", 0, i), turns)[0] for i, turns in enumerate(talks)]
    bare = [replace(t, routing=None) for t in trajectories]
    rollouts = {
        name: [((t,), float(i % 5) / 4) for i, t in enumerate(some)]
        for name, some in (("replay", trajectories), ("live", bare))
    }
    _check_that_it_replays(policy, trajectories)
    sides = {name: _trainer(policy, replays=name == "replay") for name in ("replay", "live")}
    for name, trainer in sides.items():
        trainer.step(rollouts[name])
    pairs = []
    for index in range(options.pairs):
        seconds = {}
        for name in sorted(sides, reverse=bool(index % 2)):
            seconds[name] = _step_s(sides[name], rollouts[name])
        pairs.append((seconds["replay"], seconds["live"]))
        print(f"replay {seconds['replay'][0]:.3f} s   live {seconds['live'][0]:.3f} s")
    sent, whole = _routing_bytes(talks)
    report = {
        "step_overhead": round(statistics.median(replay[0] / live[0] for replay, live in pairs) - 1, 4),
        "routing_bytes_ratio": round(sent, 4),
        "wall_overhead": round(statistics.median(replay[1] / live[1] for replay, live in pairs) - 1, 4),
        "replay_step_s": round(statistics.median(replay[0] for replay, _ in pairs), 4),
        "live_step_s": round(statistics.median(live[0] for _, live in pairs), 4),
        "whole_captures_ratio": round(whole, 2),
        "num_tokens": sum(len(t.tokens) for t in trajectories),
        "turns": options.turns,
        "threads": options.threads,
    }
    print(json.dumps(report))


def _options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--rollouts", type=int, default=12)
    parser.add_argument("--turns", type=int, default=12)
    return parser.parse_args()


def _config() -> Qwen3MoeConfig:
    """Hidden 128, 4 layers, 16 experts, top-4."""
    return Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, intermediate_size=128, moe_intermediate_size=64, num_experts=16, num_experts_per_tok=4,
        norm_topk_prob=True, tie_word_embeddings=True, max_position_embeddings=4096,
    )  # fmt: skip


def _copy(model: PreTrainedModel) -> PreTrainedModel:
    """The same weights in a module of its own."""
    twin = load_model(_config())
    twin.load_state_dict(model.state_dict())
    return twin


def _trainer(policy: PreTrainedModel, *, replays: bool) -> PPOTrainer:
    """A PPO trainer on its own copy of the policy."""
    twin = _copy(policy)
    config = PPOConfig(critic_warmup_steps=0, num_minibatches=2, lr=1e-6, replay_routing=replays, gap_alarm=1e9)
    return PPOTrainer(twin, Critic.from_policy(twin), config)


def _step_s(trainer: PPOTrainer, rollouts: list[tuple[tuple[Trajectory], float]]) -> tuple[float, float]:
    """Seconds of one step, by the processor and by the clock."""
    busy, wall = time.process_time(), time.perf_counter()
    trainer.step(rollouts)
    return time.process_time() - busy, time.perf_counter() - wall


def _check_that_it_replays(policy: PreTrainedModel, trajectories: list[Trajectory]) -> None:
    """Rows of other tokens must be noticed: else the left side would measure nothing."""
    shifted = []
    for one in trajectories[:4]:
        assert one.routing is not None
        shifted.append(replace(one, routing=np.roll(one.routing, 1, axis=0)))
    metrics = _trainer(policy, replays=True).step([((t,), 0.0) for t in shifted])
    assert metrics["gap_flipped"] > 0.5, f"replay has no effect: {metrics['gap_flipped']}"


async def _talks(model: PreTrainedModel, options: argparse.Namespace) -> list[list[Turn]]:
    """Conversations of `turns` turns, all at once."""
    attend_within_segments(model)
    engine = TorchEngine(model, max_context=4096, max_rows=options.rollouts, num_threads=options.threads)
    rng = np.random.default_rng(0)

    async def talk(session: int) -> list[Turn]:
        prompt, held, turns = rng.integers(0, VOCABULARY, OPENING).astype(np.int32), 0, []
        for _ in range(options.turns):
            sample = await engine.sample(
                prompt, SamplingParams(max_tokens=SAMPLED), session=str(session), routing_start=held
            )
            turns.append(_turn(sample))
            held = len(prompt) + len(sample.completion) - 1
            observed = rng.integers(0, VOCABULARY, OBSERVATION).astype(np.int32)
            prompt = np.concatenate([prompt, sample.completion, observed])
        return turns

    try:
        return await asyncio.gather(*(talk(session) for session in range(options.rollouts)))
    finally:
        await engine.aclose()


def _turn(s: Sample) -> Turn:
    """The raw record of a sample."""
    return Turn(s.prompt, s.completion, s.logprobs, s.versions, s.finish, s.routing, s.routing_start, timings=s.timings)


def _routing_bytes(talks: list[list[Turn]]) -> tuple[float, float]:
    """(bytes sent, bytes of whole captures at every turn), each over tokens × L × K, on average over rollouts."""
    sent, whole = [], []
    for turns in talks:
        rows = [turn.routing for turn in turns if turn.routing is not None]
        tokens = len(turns[-1].prompt) + len(turns[-1].completion)
        width = rows[0].shape[1] * rows[0].shape[2]
        sent.append(sum(part.nbytes for part in rows) / (tokens * width))
        whole.append(sum(len(t.prompt) + len(t.completion) - 1 for t in turns) / tokens)
    return statistics.mean(sent), statistics.mean(whole)


if __name__ == "__main__":
    main()
