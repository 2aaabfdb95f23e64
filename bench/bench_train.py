"""How much slower is a PPO update than the bare minimum that any update of the same nets must do?

Left side, `update`: `PPOTrainer.step` from the moment the batch is scored to its end (the step's `update_s`). That is,
for each of two minibatches: the policy's forward, with recorded routes replayed, and backward of the clipped loss; the
critic's forward and backward; both gradient clips; both AdamW steps; then the drift diagnostics.

Right side, `forward_backward`: over the very same packs of the same tokens, with the same packed attention: the
policy's forward, mean cross-entropy of the same action tokens, backward; the critic's forward, mean squared error of
the same values, backward. No replay (the router's own top-k), no clip, no optimizer; gradients are dropped.

The recorded routes are those that the policy takes by itself, so that both sides load the experts alike. Pairs
alternate in one process, which side goes first alternates too; medians over pairs. `step` is the whole of
`PPOTrainer.step`, with scoring and packing. The last line is one JSON object.

    python bench/bench_train.py [--threads 2] [--pairs 7] [--rollouts 64]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import time

import numpy as np
import torch
from transformers import PreTrainedModel, Qwen3MoeConfig, Qwen3MoeForCausalLM

from t1.ppo import token_mean, value_loss
from t1.routing.replay import capturing
from t1.training.attention import attend_within_segments
from t1.training.batches import Batch
from t1.training.config import PPOConfig
from t1.training.critic import Critic
from t1.training.forward import action_logprobs
from t1.training.packs import Pack, pack
from t1.training.ppo import PPOTrainer
from t1.types import Boundary, Case, RolloutId, Trajectory

VOCABULARY, TURN, SAMPLED = 1024, 25, 10


def main() -> None:
    """Print a line for each pair and the JSON line."""
    options = _options()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    policy = _policy()
    rollouts = [((t,), float(i % 5) / 4) for i, t in enumerate(_trajectories(policy, options.rollouts))]
    config = PPOConfig(critic_warmup_steps=0, num_minibatches=2, max_pack_tokens=options.pack_tokens)
    trainer = PPOTrainer(policy, Critic.from_policy(policy), config)
    trainer.step(rollouts)
    pairs = []
    for index in range(options.pairs):
        packs = _packs_of_next_step(trainer, rollouts)
        plain_s = _forward_backward_s(trainer, packs) if index % 2 else 0.0
        metrics = trainer.step(rollouts)
        plain_s = plain_s or _forward_backward_s(trainer, packs)
        pairs.append((metrics["update_s"], metrics["update_s"] + metrics["score_s"], plain_s))
        print(f"update {pairs[-1][0]:.3f} s   step {pairs[-1][1]:.3f} s   forward-backward {plain_s:.3f} s")
    tokens = metrics["num_tokens"]
    report = {
        "update_over_forward_backward": round(statistics.median(u / p for u, _, p in pairs), 3),
        "step_over_forward_backward": round(statistics.median(s / p for _, s, p in pairs), 3),
        "forward_backward_tokens_per_s": round(2 * tokens / statistics.median(p for _, _, p in pairs)),
        "step_tokens_per_s": round(tokens / statistics.median(s for _, s, _ in pairs)),
        "num_tokens": int(tokens),
        "num_actions": int(metrics["num_actions"]),
        "threads": options.threads,
    }
    print(json.dumps(report))


def _options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--pack-tokens", type=int, default=PPOConfig().max_pack_tokens)
    return parser.parse_args()


def _policy() -> PreTrainedModel:
    """Hidden 128, 4 layers, 8 experts, top-2, 1.9 M parameters."""
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, intermediate_size=128, moe_intermediate_size=128, num_experts=8, num_experts_per_tok=2,
        norm_topk_prob=True, tie_word_embeddings=True, max_position_embeddings=1024,
    )  # fmt: skip
    model = Qwen3MoeForCausalLM(config)
    attend_within_segments(model)
    return model


def _trajectories(policy: PreTrainedModel, count: int) -> list[Trajectory]:
    """Turns of 15 context and 10 sampled tokens, 150 to 250 in all, with the policy's own log-probs and routes."""
    rng = np.random.default_rng(0)
    made = []
    for member in range(count):
        length = int(rng.integers(6, 11)) * TURN
        mask = np.arange(length) % TURN >= TURN - SAMPLED
        zeros = np.zeros(length, np.int32)
        bare = Trajectory(
            RolloutId("made-up", 0, member), 0, rng.integers(0, VOCABULARY, length).astype(np.int32), mask,
            zeros.astype(np.float32), (np.arange(length) // TURN).astype(np.int32), zeros, None,
            (Boundary(0, Case.OPEN),),
        )  # fmt: skip
        (one,) = pack([bare], max_tokens=length)
        with torch.no_grad(), capturing(policy) as captured:
            logprobs = zeros.astype(np.float32)
            logprobs[mask] = action_logprobs(policy, one).numpy()
        made.append(dataclasses.replace(bare, logprobs=logprobs, routing=captured.routing().numpy().astype(np.uint8)))
    return made


def _packs_of_next_step(trainer: PPOTrainer, rollouts: list[tuple[tuple[Trajectory], float]]) -> list[list[Pack]]:
    """The minibatches that the trainer is about to draw."""
    generator = torch.Generator()
    generator.set_state(trainer.generator.get_state())
    config = trainer.config
    return Batch.of(rollouts).minibatches(
        config.num_minibatches, max_tokens=config.max_pack_tokens, generator=generator
    )


def _forward_backward_s(trainer: PPOTrainer, minibatches: list[list[Pack]]) -> float:
    """Seconds of the right side."""
    started = time.perf_counter()
    for packs in minibatches:
        num_actions = sum(p.num_actions for p in packs)
        for part in packs:
            torch.autograd.backward(token_mean(-action_logprobs(trainer.policy, part), num_actions=num_actions))
            values = trainer.critic(part)
            torch.autograd.backward(token_mean(value_loss(values, torch.ones_like(values)), num_actions=num_actions))
        trainer.policy.zero_grad(set_to_none=True)
        trainer.critic.zero_grad(set_to_none=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
