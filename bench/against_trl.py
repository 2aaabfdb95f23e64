"""T1's trainers beside TRL's: the same model, tokens, loss, optimizer, dtype and threads, in turns in one process.

Two pairs, since the trainers share two losses:

- `sft`: mean negative log-likelihood of the action tokens. T1's `SFTTrainer.step` against `trl.SFTTrainer`.
- `rl`: the clipped policy loss without a critic, group mean as baseline, one mean over all action tokens. T1's
  `PPOTrainer.step` with `baseline = "group"` and one minibatch against `trl.GRPOTrainer` with `loss_type = "dapo"`,
  `beta = 0`, `scale_rewards = "none"`, whose rollouts come from a `rollout_func` with an `env_mask`. T1 replays
  recorded routes; TRL has nothing of the kind. TRL's own PPO samples inside its loop and is not comparable.

That both do the same is not assumed: in each arm the first step's gradient norms (and in `sft` the losses) have to
agree, or the program fails.

What is timed. T1: all of `step`, with packing, advantages and metrics. TRL: from its `on_step_begin` to its
`on_step_end`, without fetching and collating; in `rl` what `_generate_and_score_completions` takes is subtracted too.
Its settings: no gradient checkpointing, float32 as here, fused AdamW, no load-balancing loss, no logging, and for `sft`
every way to feed that it has here (padded batches in order of length, `padding_free`), for both several batch sizes.
The fastest of them, found before the pairs begin, is the one that counts. TRL's trainers go on by themselves, so T1's
step runs inside TRL's callback. Both clocks are read: CPU seconds of this process do not count what neighbours on a
busy machine take away, and with one thread on a quiet machine are the same as the wall's.

Run by bench_train.py under .venv-trl. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

os.environ.update(HF_HUB_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1", HF_HUB_DISABLE_PROGRESS_BARS="1")

import torch
from bench_train import VOCABULARY, made_up, tiny_policy
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedModel, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

import t1.training.sft as t1_sft
from t1.training.config import PPOConfig
from t1.training.config import SFTConfig as T1SFTConfig
from t1.training.ppo import PPOTrainer
from t1.types import RolloutId, Trajectory

LR, GROUP = 1e-5, 8
SAME = 2e-3
"""Relative difference of gradient norms that two orders of float32 sums may have."""
WARM = 2
"""Steps that are not counted."""
Clock: TypeAlias = tuple[float, float]
"""(seconds of the wall, CPU seconds of this process)"""
COMMON: dict[str, Any] = {
    "max_steps": 1, "learning_rate": LR, "lr_scheduler_type": "constant", "weight_decay": 0.0, "max_grad_norm": 1.0,
    "optim": "adamw_torch_fused", "use_cpu": True, "bf16": False, "gradient_checkpointing": False,
    "router_aux_loss_coef": 0.0, "report_to": "none", "save_strategy": "no", "logging_steps": 1, "seed": 0,
    "disable_tqdm": True, "shuffle_dataset": False, "train_sampling_strategy": "sequential",
}  # fmt: skip


def now() -> Clock:
    """Both clocks."""
    return time.perf_counter(), time.process_time()


def since(started: Clock) -> Clock:
    """What has passed on both."""
    return time.perf_counter() - started[0], time.process_time() - started[1]


class InTurns(TrainerCallback):
    """Times TRL's steps and lets the other side take one after each."""

    def __init__(self, other: Callable[[], dict[str, float]] | None = None) -> None:
        self.other, self.ours, self.theirs = other, [], []  # type: ignore[var-annotated]
        self.metrics: list[dict[str, float]] = []
        self.logged: list[dict[str, float]] = []
        self.excluded: Clock = (0.0, 0.0)
        """What is not part of the step that is under way."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.excluded, self._started = (0.0, 0.0), now()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        wall, cpu = since(self._started)
        self.theirs.append((wall - self.excluded[0], cpu - self.excluded[1]))
        if self.other is not None:
            started = now()
            self.metrics.append(self.other())
            self.ours.append(since(started))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        self.logged.append(logs or {})


class TimedGRPO(GRPOTrainer):  # type: ignore[misc]
    """GRPO whose rollouts are given; making and scoring them is not counted."""

    turns: InTurns

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        started = now()
        made = super()._generate_and_score_completions(inputs)
        self.turns.excluded = since(started)
        return made


def tokenizer() -> PreTrainedTokenizerFast:
    """Names for ids; nothing is encoded."""
    inside = Tokenizer(WordLevel({f"<{i}>": i for i in range(VOCABULARY)}, unk_token="<0>"))
    return PreTrainedTokenizerFast(tokenizer_object=inside, pad_token="<0>", eos_token="<1>", unk_token="<0>")


def trl_sft(model: PreTrainedModel, trajectories: list[Trajectory], turns: InTurns, steps: int, **feed: Any) -> Any:
    """TRL's trainer over these trajectories, all of them in every step, in order of length."""
    rows = [
        {"input_ids": t.tokens.tolist(), "labels": [i if m else -100 for i, m in zip(t.tokens, t.mask, strict=True)]}
        for t in sorted(trajectories, key=lambda t: len(t.tokens))
    ]
    each = feed.pop("each")
    with scratch() as folder:
        config = SFTConfig(
            output_dir=folder, per_device_train_batch_size=each, max_length=None,
            gradient_accumulation_steps=len(rows) // each, dataset_kwargs={"skip_prepare_dataset": True},
            **{**COMMON, "max_steps": steps}, **feed,
        )  # fmt: skip
        trainer = SFTTrainer(
            model, config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer(), callbacks=[turns]
        )
        trainer.train()
    return trainer


def trl_rl(model: PreTrainedModel, trajectories: list[Trajectory], turns: InTurns, steps: int, **feed: Any) -> Any:
    """The same with GRPO: rewards by place, groups of neighbours. A prompt is what stands before the first action."""
    starts = [int(t.mask.argmax()) for t in trajectories]
    given = {
        "prompt_ids": [t.tokens[:s].tolist() for t, s in zip(trajectories, starts, strict=True)],
        "completion_ids": [t.tokens[s:].tolist() for t, s in zip(trajectories, starts, strict=True)],
        "logprobs": [t.logprobs[s:].tolist() for t, s in zip(trajectories, starts, strict=True)],
        "env_mask": [t.mask[s:].astype(int).tolist() for t, s in zip(trajectories, starts, strict=True)],
    }
    each = feed.pop("each")
    with scratch() as folder:
        config = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=each,
            gradient_accumulation_steps=len(trajectories) // each, num_generations=GROUP, loss_type="dapo", beta=0.0,
            epsilon=0.2, epsilon_high=0.28, scale_rewards="none", max_completion_length=4096, temperature=1.0,
            **{**COMMON, "max_steps": steps}, **feed,
        )  # fmt: skip
        trainer = TimedGRPO(
            model, args=config, reward_funcs=lambda completions, **_: [reward(i) for i in range(len(completions))],
            train_dataset=Dataset.from_list([{"prompt": f"<{g}>"} for g in range(len(trajectories) // GROUP)]),
            processing_class=tokenizer(), callbacks=[turns], rollout_func=lambda prompts, trainer: dict(given),
        )  # fmt: skip
        trainer.turns = turns
        trainer.train()
    return trainer


def reward(place: int) -> float:
    """Of the rollout at this place."""
    return place % 5 / 4


@contextlib.contextmanager
def scratch() -> Iterator[str]:
    """A directory that TRL asks for."""
    with tempfile.TemporaryDirectory(prefix="t1-trl-") as folder:
        yield str(Path(folder) / "out")


def t1_side(arm: str, trajectories: list[Trajectory]) -> Callable[[], dict[str, float]]:
    """One step of T1 on all of these trajectories, from the same weights as TRL's."""
    policy = tiny_policy()
    if arm == "sft":
        sft = t1_sft.SFTTrainer(policy, T1SFTConfig(lr=LR, max_pack_tokens=PACK_TOKENS))
        return lambda: sft.step(trajectories)
    config = PPOConfig(baseline="group", whiten=False, num_minibatches=1, lr=LR, max_pack_tokens=PACK_TOKENS)
    ppo = PPOTrainer(policy, None, config)
    grouped = [dataclasses.replace(t, rollout=RolloutId("made-up", i // GROUP, i)) for i, t in enumerate(trajectories)]
    rewarded = [((t,), reward(i)) for i, t in enumerate(grouped)]
    return lambda: ppo.step(rewarded)


PACK_TOKENS = PPOConfig().max_pack_tokens
FEEDS: dict[str, list[dict[str, Any]]] = {
    "sft": [{"each": each} for each in (4, 8, 16, 64)] + [{"each": each, "padding_free": True} for each in (2, 4, 8)],
    "rl": [{"each": each} for each in (8, 16, 32, 64)],
}
SIDES: dict[str, Callable[..., Any]] = {"sft": trl_sft, "rl": trl_rl}


def fastest(arm: str, trajectories: list[Trajectory], probes: int) -> dict[str, Any]:
    """The way to feed TRL that takes the fewest CPU seconds a step."""
    took: list[tuple[float, dict[str, Any]]] = []
    for feed in (feed for feed in FEEDS[arm] if feed["each"] <= len(trajectories)):
        turns = InTurns()
        SIDES[arm](tiny_policy(), trajectories, turns, 1 + probes, **feed)
        took.append((min(cpu for _, cpu in turns.theirs[1:]), feed))
        print(f"{arm}: TRL fed with {feed}: {took[-1][0]:.3f} CPU s a step", flush=True)
    return min(took, key=lambda pair: pair[0])[1]


def compare(arm: str, trajectories: list[Trajectory], pairs: int, probes: int) -> dict[str, Any]:
    """Medians of one arm, TRL fed in its fastest way."""
    feed = fastest(arm, trajectories, probes)
    turns = InTurns(t1_side(arm, trajectories))
    SIDES[arm](tiny_policy(), trajectories, turns, WARM + pairs, **feed)
    agree(arm, turns)
    for ours, theirs in zip(turns.ours[WARM:], turns.theirs[WARM:], strict=True):
        print(f"{arm}: T1 {ours[0]:.3f} s ({ours[1]:.3f} CPU)   TRL {theirs[0]:.3f} s ({theirs[1]:.3f} CPU)")
    tokens = sum(len(t.tokens) for t in trajectories)
    wall, cpu = (
        statistics.median(t[clock] / o[clock] for o, t in zip(turns.ours[WARM:], turns.theirs[WARM:], strict=True))
        for clock in (0, 1)
    )
    return {
        "wall": round(wall, 3),
        "cpu": round(cpu, 3),
        "t1_tokens_per_cpu_s": round(tokens / statistics.median(o[1] for o in turns.ours[WARM:])),
        "trl_tokens_per_cpu_s": round(tokens / statistics.median(t[1] for t in turns.theirs[WARM:])),
        "trl_fed": feed,
    }


def agree(arm: str, turns: InTurns) -> None:
    """Raise unless the first step of both did the same."""
    theirs = next(entry for entry in turns.logged if "grad_norm" in entry)
    for name in ("grad_norm", "loss") if arm == "sft" else ("grad_norm",):
        ours = turns.metrics[0][name]
        if abs(ours - float(theirs[name])) > SAME * abs(ours):
            raise SystemExit(f"{arm}: {name} is {ours} here and {theirs[name]} in TRL: they do not do the same")
    print(f"{arm}: the first step agrees, gradient norm {turns.metrics[0]['grad_norm']:.5f} and {theirs['grad_norm']}")


def main() -> None:
    """Measure both arms and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--pairs", type=int, default=7)
    options.add_argument("--probes", type=int, default=2)
    options.add_argument("--rollouts", type=int, default=64)
    options.add_argument("--arms", nargs="+", choices=sorted(FEEDS), default=sorted(FEEDS))
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    disable_progress_bars()
    torch.set_num_threads(chosen.threads)
    trajectories = made_up(tiny_policy(), chosen.rollouts)
    found = {arm: compare(arm, trajectories, chosen.pairs, chosen.probes) for arm in chosen.arms}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
