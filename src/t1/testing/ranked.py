"""Work for ranks: tiny policies, made-up rollouts, and PPO over any layout, reported as plain arrays.

Public, and importable by the processes that `t1.training.parallel.launch.on_ranks` starts: a test compares what many
ranks report with what one does. Everything is a function of its arguments and fixed seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from t1.types import Boundary, Case, RolloutId, Trajectory

VOCABULARY, LAYERS, EXPERTS, TOP_K = 48, 2, 4, 2


@dataclass(frozen=True, slots=True)
class Plan:
    """One PPO run of a few steps."""

    world: int = 1
    experts: int = 1
    context: int = 1
    family: str = "moe"
    """moe, dense, or hybrid: linear attention beside full attention, shared experts beside routed ones."""
    lengths: tuple[int, ...] = (18, 21, 24, 27, 30)
    steps: int = 1
    ppo: Mapping[str, Any] = field(default_factory=dict)
    apart: int = 0
    """Ranks of the critic's own group, after the `world` ranks of the policy's; 0 = both nets on the same ranks."""
    sharded: bool = False
    """Shard even over a single rank."""
    save: str = ""
    """Where to save after the steps."""
    load: str = ""
    """What to load before them."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a rank saw."""

    metrics: tuple[dict[str, float], ...]
    """Of every step."""
    weights: dict[str, npt.NDArray[Any]]
    """The policy after the last step; of the leading rank."""
    moments: dict[str, npt.NDArray[Any]]
    """Adam's first moments of both nets, whole: after one step, 0.1 × the gradients."""
    logprobs: npt.NDArray[Any]
    """[A] of every action by the first policy."""
    bytes: dict[str, int]
    """Of the policy's shards, by kind."""


def run(plan: Plan) -> Report:
    """PPO as planned, on this rank of an open process group (or alone)."""
    import torch

    from t1.training.batches import Batch
    from t1.training.parallel.layout import Layout
    from t1.training.parallel.ranks import Ranks

    torch.set_num_threads(1)
    layout = Layout(plan.world, plan.experts, plan.context)
    is_policy, is_critic = True, True
    if plan.apart:
        ranks, is_policy = Ranks.open_apart(policy=layout, critic=Layout(plan.apart))
        is_critic = not is_policy
    else:
        ranks = Ranks.open(layout) if plan.world > 1 or plan.sharded else Ranks()
    trainer = _trainer(plan, ranks, is_policy=is_policy, is_critic=is_critic)
    if plan.load:
        trainer.load(Path(plan.load))
    rollouts = [((trajectory(i, length=length),), float(i % 3)) for i, length in enumerate(plan.lengths)]
    logprobs = trainer.score(Batch.of(rollouts)).old_logprobs.numpy()
    metrics = tuple(trainer.step(rollouts) for _ in range(plan.steps))
    if plan.save:
        trainer.save(Path(plan.save))
    return Report(
        metrics=metrics,
        weights={name: weight.detach().clone().numpy() for name, weight in trainer.weights().items()},
        moments=_moments(trainer),
        logprobs=logprobs,
        bytes=trainer.nets["policy"].num_bytes() if is_policy else {},
    )


def run_all(plans: Sequence[Plan]) -> list[Report]:
    """Several plans, one after another, on the same ranks."""
    return [run(plan) for plan in plans]


@dataclass(frozen=True, slots=True)
class Training:
    """One net that is trained on packs of one length, for measuring memory."""

    config: Any
    """A model's."""
    layout: Any
    tokens: int
    critic: bool
    checkpointing: bool


def measured_memory(trainings: Sequence[Training], passes: int = 6) -> list[tuple[dict[str, int], int]]:
    """Of each: bytes of this rank's shards, and the most that its allocator held beside them.

    Counted by torch's profiler from the allocator's own records, in a forward and backward on even routes. The least of
    several passes: gloo's threads let go of a collective's buffers some time after it has ended, and how late that is
    depends on what else the machine does. It only ever adds.
    """
    return [_measured(one, passes) for one in trainings]


def _measured(training: Training, passes: int) -> tuple[dict[str, int], int]:
    """The same of one."""
    import torch

    from t1.routing.replay import replaying
    from t1.training.nets import Net
    from t1.training.parallel.ranks import Ranks
    from t1.training.planning.memory import made_up_pack

    config, tokens = training.config, training.tokens
    module = _made(training)
    net = Net.of(module.train(), Ranks.open(training.layout), lr=1e-3, weight_decay=0.0, compute=torch.bfloat16)
    pack = replace(made_up_pack(tokens), tokens=torch.randint(0, config.vocab_size, (tokens,)))
    places = torch.arange((tokens - 1) * config.num_experts_per_tok).view(tokens - 1, 1, -1)
    routing = (places % config.num_experts).expand(-1, config.num_hidden_layers, -1)  # every expert equally often
    with replaying(module, routing):
        torch.autograd.backward(module(pack).sum())
        net.step(grad_clip=1.0)
        torch.autograd.backward(module(pack).sum())
        peaks = [_peak_of(lambda: torch.autograd.backward(module(pack).sum())) for _ in range(passes)]
    return net.num_bytes(), min(peaks)


def _made(training: Training) -> Any:
    """The module that a trainer would shard."""
    import torch
    from transformers import AutoModelForCausalLM

    from t1.training.actor import Actor
    from t1.training.attention import attend_within_segments
    from t1.training.critic import Critic

    torch.manual_seed(0)
    loader: Any = AutoModelForCausalLM
    model = loader.from_config(training.config)
    attend_within_segments(model)
    module: Any = Critic.from_policy(model) if training.critic else Actor(model)
    if training.checkpointing:
        (module.body if training.critic else model).activation_checkpointing_enable({"use_reentrant": False})
    return module


def _peak_of(work: Callable[[], None]) -> int:
    """The most bytes that `work` had at once, more than were there before."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    results: Any = recorded.profiler
    events = [event for event in results.kineto_results.events() if event.name() == "[memory]"]
    changes = sorted((event.start_ns(), event.nbytes()) for event in events)
    return int(np.cumsum([size for _, size in changes]).max())


def sum_of_ranks(offset: int) -> tuple[int, float]:
    """This rank, and the sum over all ranks of rank + offset."""
    import torch
    import torch.distributed as dist

    number = torch.tensor(float(dist.get_rank() + offset))
    dist.all_reduce(number)
    return dist.get_rank(), float(number)


def fail_on(rank: int) -> None:
    """One rank fails while the others wait for it."""
    import torch.distributed as dist

    if dist.get_rank() == rank:
        raise ValueError(f"rank {rank} has no luck")
    dist.barrier()


def policy(family: str) -> Any:
    """A tiny policy of two layers with fixed weights, whose router has preferences."""
    import torch
    from transformers import (
        Qwen3_5MoeForCausalLM,
        Qwen3_5MoeTextConfig,
        Qwen3Config,
        Qwen3ForCausalLM,
        Qwen3MoeConfig,
        Qwen3MoeForCausalLM,
    )

    torch.manual_seed(1)
    common: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128,
    }  # fmt: skip
    routed: dict[str, Any] = {
        "moe_intermediate_size": 16, "num_experts": EXPERTS, "num_experts_per_tok": TOP_K, "norm_topk_prob": True,
    }  # fmt: skip
    linear: dict[str, Any] = {
        "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 8, "linear_value_head_dim": 8, "shared_expert_intermediate_size": 16,
    }  # fmt: skip
    makers: dict[str, Callable[[], Any]] = {
        "moe": lambda: Qwen3MoeForCausalLM(
            Qwen3MoeConfig(**common, **routed, intermediate_size=32, tie_word_embeddings=True)
        ),
        "dense": lambda: Qwen3ForCausalLM(Qwen3Config(**common, intermediate_size=32, tie_word_embeddings=True)),
        "hybrid": lambda: Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**common, **routed, **linear)),
    }
    model = makers[family]()
    for name, weight in model.named_parameters():
        if weight.ndim >= 2:
            torch.nn.init.normal_(weight, std=0.5 if "mlp.gate." in name else 0.15)
    return model


def trajectory(seed: int, *, length: int) -> Trajectory:
    """Context and actions in runs of random length, with random distinct experts for each fed token."""
    rng = np.random.default_rng(seed)
    mask = np.repeat(rng.random(length) < 0.5, rng.integers(1, 4, length))[:length]
    mask[0], mask[-1] = False, True
    starts = np.flatnonzero(np.diff(mask.astype(int), prepend=0) == 1)
    turn = np.maximum(0, np.searchsorted(starts, np.arange(length), side="right") - 1)
    return Trajectory(
        rollout=RolloutId("made-up", 0, seed),
        segment=0,
        tokens=rng.integers(0, VOCABULARY, length).astype(np.int32),
        mask=mask,
        logprobs=np.where(mask, -rng.random(length) * 4, 0).astype(np.float32),
        turn=turn.astype(np.int32),
        version=np.zeros(length, np.int32),
        routing=rng.random((length - 1, LAYERS, EXPERTS)).argsort(-1)[..., :TOP_K].astype(np.uint8),
        boundaries=tuple(Boundary(int(t), Case.STRICT if t else Case.OPEN) for t in np.unique(turn)),
    )


def _trainer(plan: Plan, ranks: Any, *, is_policy: bool, is_critic: bool) -> Any:
    """A PPO trainer whose critic has an opinion."""
    import torch

    from t1.training.config import PPOConfig
    from t1.training.critic import Critic
    from t1.training.ppo import PPOTrainer

    defaults: dict[str, Any] = {
        "critic_warmup_steps": 0, "num_minibatches": 1, "max_pack_tokens": 60, "gap_alarm": 1e9, "grad_clip": 1e9,
        "replay_routing": plan.family != "dense",
    }  # fmt: skip
    net = policy(plan.family)
    critic = Critic.from_policy(net)
    torch.nn.init.normal_(critic.head.weight, generator=torch.Generator().manual_seed(3))
    config = PPOConfig(**{**defaults, **plan.ppo})
    return PPOTrainer(net if is_policy else None, critic if is_critic else None, config, ranks=ranks)


def _moments(trainer: Any) -> dict[str, npt.NDArray[Any]]:
    """By net and name of the weight."""
    found = {}
    for net_name, net in trainer.nets.items():
        for name, tensor in net.state().items():
            if name.startswith("exp_avg."):
                full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
                found[f"{net_name}.{name}"] = full.clone().numpy()
    return found
