"""A training run on paper: does it fit, how are the ranks laid out, what moves in a step, and how long may that take?

Memory comes from `memory.py`, which shards the real modules. Everything else is arithmetic on the model's shape
(`shapes.py`) and the GPU's data sheet, spelled out below: floating-point operations at an assumed efficiency, bytes
over links at their nominal rate. Nothing is assumed to overlap with compute: the time of a step is an upper estimate
at that efficiency. Boundary: numbers; the command prints them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import gcd
from typing import Any

import torch
from transformers import PreTrainedConfig

from t1.errors import ConfigError
from t1.training.parallel.dataplane import INDEX_BYTES
from t1.training.parallel.layout import Layout, divisors
from t1.training.planning.machines import GPU
from t1.training.planning.memory import Held, Recipe, held
from t1.training.planning.shapes import Shape

EFFICIENCY = 0.35
"""Assumed part of a GPU's nominal operations a second that training reaches."""
FLAT_BYTES = 64
"""Of a batch's flat arrays, per action, on every rank's host: rewards, turns, slots, log-probabilities, values, ..."""

TOKEN_BYTES = 32
"""Of a token in a trajectory beside its routing, with what is made on the way."""
PROCESS_BYTES = 8 << 20
"""What the allocator keeps for later."""
PACK_BYTES = 96
"""Of a token in a pack beside its routing: indices are 64-bit, and the same again while it is joined."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What one step trains on."""

    rollouts: int = 512
    tokens: int = 50_000
    """Of each rollout: the longest trajectory, and a pack."""
    minibatches: int = 2
    epochs: int = 1
    action_share: float = 0.5
    """Part of the tokens that the policy sampled."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What `t1 plan` prints. Bytes are of one GPU where nothing else is said; seconds are of one step."""

    layout: Layout
    gpu: GPU
    shape: Shape
    policy: Held
    critic: Held
    memory: dict[str, int]
    published_bytes: int
    routed_bytes: int
    controller_bytes: int
    """Of the controller's private memory: an index entry a rollout, and one rollout on its way to the file."""
    host_bytes: int
    """Of each rank's private memory on the host: flat arrays of the whole batch, one pack with its routing."""
    seconds: dict[str, float]
    problems: tuple[str, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())
    """What the numbers take for granted."""

    @property
    def total_bytes(self) -> int:
        """Memory of one GPU at its fullest."""
        return sum(self.memory.values())

    @property
    def fits(self) -> bool:
        """Whether nothing stands against it."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Plain values, with what follows from them."""
        return {
            **asdict(self),
            "usable_bytes": self.gpu.usable_bytes,
            "total_bytes": self.total_bytes,
            "total_s": sum(self.seconds.values()),
            "fits": self.fits,
        }


def usual_experts(shape: Shape, gpus: int, gpu: GPU) -> int:
    """GPUs that share a layer's experts where nobody says: as many of a node's as divide them."""
    return gcd(gcd(gpus, gpu.node_size), shape.num_experts) if shape.num_experts else 1


def make_plan(
    config: PreTrainedConfig,
    shape: Shape,
    layout: Layout,
    gpu: GPU,
    work: Workload,
    *,
    recipe: Recipe,
    efficiency: float = EFFICIENCY,
) -> Plan:
    """The plan of one layout. `efficiency`: the part of the data sheet's operations a second that is reached."""
    if layout.experts > 1 and (not shape.num_experts or shape.num_experts % layout.experts):
        raise ConfigError(_undivided(shape, layout))
    nets = held(config, layout, tokens=work.tokens, recipe=recipe)
    policy, critic = nets["policy"], nets["critic"]
    memory, a_row = memory_of(policy, critic), shape.row_bytes
    return Plan(
        layout=layout,
        gpu=gpu,
        shape=shape,
        policy=policy,
        critic=critic,
        memory=memory,
        published_bytes=shape.parameters * recipe.compute.itemsize,
        routed_bytes=work.rollouts * (work.tokens - 1) * a_row,
        controller_bytes=controller_bytes(work.rollouts, work.tokens, a_row),
        host_bytes=host_bytes(work.rollouts, work.tokens, work.action_share, a_row),
        seconds=seconds_of(shape, layout, gpu, work, recipe, efficiency),
        problems=problems_of(memory, layout, gpu, work),
        notes=notes_of(shape, layout, work, efficiency),
    )


def controller_bytes(rollouts: int, tokens: int, row_bytes: int) -> int:
    """Bound of the controller's private memory: an index entry a rollout, two rollouts: one made, one written."""
    return PROCESS_BYTES + rollouts * INDEX_BYTES + 2 * tokens * (row_bytes + TOKEN_BYTES)


def host_bytes(rollouts: int, tokens: int, action_share: float, row_bytes: int) -> int:
    """Bound of a rank's private memory on its host: index, the flat arrays of all actions, and two packs."""
    actions = round(rollouts * tokens * action_share)
    return PROCESS_BYTES + rollouts * INDEX_BYTES + actions * FLAT_BYTES + 2 * tokens * (row_bytes + PACK_BYTES)


def memory_of(policy: Held, critic: Held) -> dict[str, int]:
    """Bytes by kind at the fullest moment. Both nets are there; one at a time has gradients and a working set."""
    worse = max((policy, critic), key=lambda net: net.gradients + net.working)
    return {
        "weights, policy": policy.weights,
        "weights, critic": critic.weights,
        "Adam's moments, policy": policy.moments,
        "Adam's moments, critic": critic.moments,
        "gradients": worse.gradients,
        "inputs of layers, kept": worse.kept,
        "gathered weights, gradients on their way": worse.gathered,
        "activations of a layer, or logits": worse.working - worse.kept - worse.gathered,
    }


def problems_of(memory: dict[str, int], layout: Layout, gpu: GPU, work: Workload) -> tuple[str, ...]:
    """What does not fit, and why; empty where all is well."""
    problems = []
    total, usable = sum(memory.values()), gpu.usable_bytes
    if total > usable:
        fixed = sum(size for kind, size in memory.items() if kind.startswith(("weights", "Adam", "gradients")))
        kind, largest = max(memory.items(), key=lambda item: item[1])
        if fixed > usable:
            needed = -(-fixed * layout.world // usable)
            step = f"their shards alone need {needed} GPUs: use more, or put policy and critic in groups apart"
        else:
            step = (
                f"beside {fixed / 1e9:.1f} GB of shards, {(usable - fixed) / 1e9:.1f} GB are left for packs of "
                f"{work.tokens} tokens: shorten them, share them (--context), or use more GPUs"
            )
        problems.append(
            f"{total / 1e9:.1f} GB a GPU do not fit in the {usable / 1e9:.1f} GB that an {gpu.name} leaves; most is "
            f"{kind} ({largest / 1e9:.1f} GB); {step}"
        )
    if layout.experts > gpu.node_size or layout.context > gpu.node_size:
        problems.append(
            f"experts = {layout.experts} and context = {layout.context} talk in every layer: at most the "
            f"{gpu.node_size} GPUs of a node should"
        )
    if layout.data > work.rollouts:
        problems.append(f"{layout.data} ranks draw packs and there are {work.rollouts} rollouts: some would idle")
    return tuple(problems)


def seconds_of(
    shape: Shape, layout: Layout, gpu: GPU, work: Workload, recipe: Recipe, efficiency: float
) -> dict[str, float]:
    """Seconds of one step's training by what they are spent on.

    forward      2·T·active + 2·T²·attention width operations a rollout (`Shape.forward_operations`)
    scoring      one forward of each net; the policy's first minibatch scores itself
    updates      forward, again for checkpointing, and twice that backward: 4 forwards (3 without checkpointing)
    gathering    both nets' weights before each forward and again before each backward; gradients once, in float32
    experts      K rows of a token's hidden state there and back in each routed layer; 3 passes an update, 2 without
                 checkpointing
    """
    forward = work.rollouts * shape.forward_operations(work.tokens)
    passes, trips = (4, 3) if recipe.checkpointing else (3, 2)
    scored, nets = (1 - 1 / work.minibatches) + 1, 2
    rate, width = layout.world * gpu.flops * efficiency, recipe.compute.itemsize
    link = gpu.node_bytes_s if layout.world <= gpu.node_size else gpu.network_bytes_s
    rounds = -(-work.rollouts // layout.data)
    # All dense weights pass through every rank on each gathering, and of the routed ones those of its own experts.
    passing = shape.parameters - shape.routed + shape.routed / layout.experts
    gathers = rounds * (scored + 2 * nets * work.epochs) * passing * width
    sums = rounds * nets * work.epochs * passing * torch.float32.itemsize
    visits = 2 * shape.experts_per_token * shape.hidden * width * shape.routed_layers if layout.experts > 1 else 0
    travelled = work.rollouts * work.tokens / layout.world * visits * (scored + nets * trips * work.epochs)
    return {
        "scoring": scored * forward / rate,
        "updates": nets * passes * work.epochs * forward / rate,
        "gathering weights, summing gradients": (gathers + sums) / link,
        "tokens to their experts and back": travelled / gpu.node_bytes_s,
        "publishing to nodes of samplers": shape.parameters * width / (gpu.node_size * gpu.network_bytes_s),
    }


def notes_of(shape: Shape, layout: Layout, work: Workload, efficiency: float) -> tuple[str, ...]:
    """What the numbers take for granted."""
    notes = [
        f"every rollout has {work.tokens} tokens, {work.action_share:.0%} of them sampled, and a pack holds one",
        "layers run transformers' own torch code: fused kernels hold and take less",
        f"compute reaches {efficiency:.0%} of the data sheet's rate, links all of theirs; nothing overlaps",
        "8 % and 2 GB of a GPU's memory go to CUDA, NCCL and fragments",
        f"attention costs as much as all weights at {shape.quadratic_at:,.0f} tokens",
        "collecting the rollouts is not in the time: it is the samplers'",
    ]
    if layout.experts > 1:
        notes.append("experts are chosen equally often; the rank whose experts are liked most holds and does more")
    if 0 < shape.positions < work.tokens:
        notes.append(f"the model was made for at most {shape.positions} tokens, and rollouts have {work.tokens}")
    return tuple(notes)


def _undivided(shape: Shape, layout: Layout) -> str:
    """Why experts cannot be spread so."""
    if not shape.num_experts:
        return f"layout: experts = {layout.experts} and the model is dense; leave --experts at 1"
    allowed = divisors(gcd(shape.num_experts, layout.world))
    return (
        f"layout: experts = {layout.experts} does not divide the model's {shape.num_experts} experts; "
        f"choose one of {', '.join(map(str, allowed))}"
    )
