"""How fast the trainer is: against the bare minimum that any update of the same nets must do, against TRL's trainers,
and on two ranks.

Bare minimum. Left side, `update`: `PPOTrainer.step` from the moment the batch is scored to its end (the step's
`update_s`). That is, for each of two minibatches: the policy's forward, with recorded routes replayed, and backward of
the clipped loss; the critic's forward and backward; both gradient clips; both AdamW steps; then the drift diagnostics.
Right side, `forward_backward`: over the very same packs of the same tokens, with the same packed attention: the
policy's forward, mean cross-entropy of the same action tokens, backward; the critic's forward, mean squared error of
the same values, backward. No replay (the router's own top-k), no clip, no optimizer; gradients are dropped. The
recorded routes are those that the policy takes by itself, so that both sides load the experts alike. Pairs alternate
in one process, which side goes first alternates too; medians over pairs. `step` is the whole of `PPOTrainer.step`,
with scoring and packing.

TRL: see against_trl.py, which runs under .venv-trl (`make bench-train` makes it). `vs_trl` is the smaller of its two
ratios by the wall's clock, `vs_trl_cpu` by CPU seconds; above 1 T1 is faster. Both are null where TRL is not installed.

Ranks: the same steps on one rank and on two (FSDP over gloo, one thread each), started in turns; `two_ranks` is the
ratio of their tokens/s by the wall's clock, which on a busy machine says more about the neighbours. A model this small
is the worst case: FSDP gathers every layer for work that takes milliseconds.

The last line is one JSON object.

    python bench/bench_train.py [--threads 1] [--pairs 7] [--rollouts 64]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, Qwen3MoeConfig, Qwen3MoeForCausalLM

from t1.ppo import token_mean, value_loss
from t1.routing.replay import capturing
from t1.training.attention import attend_within_segments
from t1.training.batches import Batch, Rewarded
from t1.training.config import PPOConfig
from t1.training.critic import Critic
from t1.training.forward import action_logprobs
from t1.training.packs import Pack, pack
from t1.training.parallel.launch import on_ranks
from t1.training.parallel.layout import Layout
from t1.training.parallel.ranks import ALONE, Ranks
from t1.training.ppo import PPOTrainer
from t1.types import Boundary, Case, RolloutId, Trajectory

VOCABULARY, TURN, SAMPLED = 1024, 25, 10
TRL_PYTHON = Path(__file__).parents[1] / ".venv-trl" / "bin" / "python"
RANKS_TIMEOUT_S = 600.0


def main() -> None:
    """Print a line for each pair and the JSON line."""
    options = _options()
    torch.set_num_threads(options.threads)
    report = against_bare_minimum(options) | on_one_and_two_ranks(options) | against_trl(options)
    print(json.dumps(report))


def _options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--starts", type=int, default=3, help="of one rank and of two, in turns")
    parser.add_argument("--pack-tokens", type=int, default=PPOConfig().max_pack_tokens)
    return parser.parse_args()


def tiny_policy() -> PreTrainedModel:
    """Hidden 128, 4 layers, 8 experts, top-2, 1.9 M parameters; the same weights every time."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, intermediate_size=128, moe_intermediate_size=128, num_experts=8, num_experts_per_tok=2,
        norm_topk_prob=True, tie_word_embeddings=True, max_position_embeddings=1024,
    )  # fmt: skip
    return Qwen3MoeForCausalLM(config)


def made_up(policy: PreTrainedModel, count: int) -> list[Trajectory]:
    """Turns of 15 context and 10 sampled tokens, 150 to 250 in all, with the policy's own log-probs and routes."""
    attend_within_segments(policy)
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


def rewarded(count: int) -> list[Rewarded]:
    """Made-up trajectories and rewards."""
    return [((t,), float(i % 5) / 4) for i, t in enumerate(made_up(tiny_policy(), count))]


def trainer_of(pack_tokens: int, ranks: Ranks = ALONE) -> PPOTrainer:
    """A trainer at the first step that moves the policy."""
    policy = tiny_policy()
    config = PPOConfig(critic_warmup_steps=0, num_minibatches=2, max_pack_tokens=pack_tokens)
    return PPOTrainer(policy, Critic.from_policy(policy), config, ranks=ranks)


# --------------------------------------------------------------------------------------------------------------------
# The bare minimum


def against_bare_minimum(options: argparse.Namespace) -> dict[str, Any]:
    """The update beside a forward and backward of the same packs."""
    rollouts, trainer = rewarded(options.rollouts), trainer_of(options.pack_tokens)
    trainer.step(rollouts)
    pairs = []
    for index in range(options.pairs):
        packs = _packs_of_next_step(trainer, rollouts)
        plain_s = _forward_backward_s(trainer, packs) if index % 2 else 0.0
        metrics = trainer.step(rollouts)
        plain_s = plain_s or _forward_backward_s(trainer, packs)
        pairs.append((metrics["update_s"], metrics["update_s"] + metrics["score_s"], plain_s))
        print(f"update {pairs[-1][0]:.3f} s   step {pairs[-1][1]:.3f} s   forward-backward {plain_s:.3f} s", flush=True)
    tokens = metrics["num_tokens"]
    return {
        "update_over_forward_backward": round(statistics.median(u / p for u, _, p in pairs), 3),
        "step_over_forward_backward": round(statistics.median(s / p for _, s, p in pairs), 3),
        "forward_backward_tokens_per_s": round(2 * tokens / statistics.median(p for _, _, p in pairs)),
        "step_tokens_per_s": round(tokens / statistics.median(s for _, s, _ in pairs)),
        "num_tokens": int(tokens),
        "num_actions": int(metrics["num_actions"]),
        "threads": options.threads,
    }


def _packs_of_next_step(trainer: PPOTrainer, rollouts: list[Rewarded]) -> list[list[Pack]]:
    """The minibatches that the trainer is about to draw."""
    generator = torch.Generator()
    generator.set_state(trainer.generator.get_state())
    config = trainer.config
    minibatches = Batch.of(rollouts).minibatches(
        config.num_minibatches, max_tokens=config.max_pack_tokens, generator=generator
    )
    return [list(packs) for packs in minibatches]


def _forward_backward_s(trainer: PPOTrainer, minibatches: list[list[Pack]]) -> float:
    """Seconds of the right side."""
    assert trainer.policy is not None and trainer.critic is not None
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


# --------------------------------------------------------------------------------------------------------------------
# Ranks


def on_one_and_two_ranks(options: argparse.Namespace) -> dict[str, Any]:
    """Tokens/s of a whole step on one rank and on two, a few starts of each in turns."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(options.starts):
        for world, found in seconds.items():
            steps = on_ranks(
                world, timed_steps, world, options.rollouts, options.pack_tokens, timeout_s=RANKS_TIMEOUT_S
            )
            found += [max(together) for together in zip(*steps, strict=True)]
            print(f"{world} rank(s): step {statistics.median(found):.3f} s", flush=True)
    one, two = (statistics.median(found) for found in seconds.values())
    return {"one_rank_step_s": round(one, 3), "two_ranks_step_s": round(two, 3), "two_ranks": round(one / two, 3)}


def timed_steps(world: int, num_rollouts: int, pack_tokens: int) -> list[float]:
    """On one rank: seconds of three steps after a first one."""
    rollouts = rewarded(num_rollouts)
    trainer = trainer_of(pack_tokens, Ranks.open(Layout(world=world)) if world > 1 else ALONE)
    steps = []
    for _ in range(4):
        started = time.perf_counter()
        trainer.step(rollouts)
        steps.append(time.perf_counter() - started)
    return steps[1:]


# --------------------------------------------------------------------------------------------------------------------
# TRL


def against_trl(options: argparse.Namespace) -> dict[str, Any]:
    """What against_trl.py found."""
    unknown: dict[str, Any] = {"vs_trl": None, "vs_trl_cpu": None}
    probe = [TRL_PYTHON, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('trl') is None)"]
    if not TRL_PYTHON.exists() or subprocess.run(probe, check=False).returncode:
        print(f"TRL WAS NOT MEASURED: it is not in {TRL_PYTHON.parents[1].name}; make bench-train installs it there.")
        return unknown
    arguments = ("threads", "pairs", "rollouts")
    done = subprocess.run(
        [TRL_PYTHON, Path(__file__).with_name("against_trl.py")]
        + [word for name in arguments for word in (f"--{name}", str(getattr(options, name)))],
        stdout=subprocess.PIPE, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": str(options.threads)},
    )  # fmt: skip
    sys.stdout.write(done.stdout)
    if done.returncode:
        raise SystemExit("TRL's side failed: see above")
    arms = json.loads(done.stdout.splitlines()[-1])
    return {
        f"vs_trl{name}": min(arm[clock] for arm in arms.values()) for name, clock in (("", "wall"), ("_cpu", "cpu"))
    } | {"trl": arms}


if __name__ == "__main__":
    main()
