"""A step's trajectories on their way from a collector to a rank, at any scale, with the private memory that it took.

Public, and a program of its own: memory is measured in a fresh process (see `t1.testing.memory`).
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from t1.testing.memory import watching
from t1.types import Boundary, Case, RolloutId, Trajectory

LAYERS, TOP_K = 48, 8


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a step is."""

    rollouts: int = 512
    tokens: int = 50_000


def collect(path: Path, scale: Scale) -> int:
    """What a controller does: one rollout after another comes and goes to the file. Returns the routing's bytes."""
    from t1.training.parallel.dataplane import store_rollouts

    made = (((made_up(member, scale.tokens),), float(member % 5)) for member in range(scale.rollouts))
    stored = store_rollouts(path, made)
    return sum(0 if one.routing is None else one.routing.nbytes for (one,), _ in stored)


def train(path: Path, scale: Scale, *, num_ranks: int = 64) -> int:
    """What the host of one of `num_ranks` ranks does: the batch's flat arrays, and its own packs, one after another."""
    from t1.training.batches import Batch
    from t1.training.packs import join_some
    from t1.training.parallel.dataplane import StoredRollouts
    from t1.training.parallel.shares import share

    batch = Batch.of(StoredRollouts(path))
    trajectories = [segments[0] for segments in batch.segments]
    slots = [slots[0] for slots in batch.slots]
    total = 0
    for bins in share([len(t.tokens) for t in trajectories], num_ranks=num_ranks, max_tokens=scale.tokens):
        pack = join_some(trajectories, slots, bins[0])
        assert pack.routing is not None
        total += int(pack.routing.sum() > 0)
    return total


def made_up(member: int, tokens: int) -> Trajectory:
    """A trajectory of random tokens and routes, half of it sampled."""
    rng = np.random.default_rng(member)
    mask = np.arange(tokens) % 2 == 1
    mask[-1] = True
    turn = (np.arange(tokens) // 200).astype(np.int32)
    return Trajectory(
        rollout=RolloutId("made-up", 0, member),
        segment=0,
        tokens=rng.integers(0, 1000, tokens, dtype=np.int32),
        mask=mask,
        logprobs=np.where(mask, -1.0, 0.0).astype(np.float32),
        turn=turn,
        version=np.zeros(tokens, np.int32),
        routing=rng.integers(0, 256, (tokens - 1, LAYERS, TOP_K), dtype=np.uint8),
        boundaries=tuple(Boundary(t, Case.STRICT if t else Case.OPEN) for t in range(int(turn[-1]) + 1)),
    )


def main(folder: str, rollouts: int, tokens: int, role: str) -> int:
    """Play "controller" (writes the file) or "rank" (reads it); the last line is one JSON object.

    A rank finds the file that a controller left in `folder`, or makes one. Exit code 1: more than the plan allows.
    """
    from t1.training.planning.plan import controller_bytes, host_bytes

    for play in (collect, train):  # what is imported and allocated once is not what is measured
        play(Path(folder) / "small.arrow", Scale(2, 100))
    scale, path = Scale(rollouts, tokens), Path(folder) / "step.arrow"
    routing_bytes = rollouts * (tokens - 1) * LAYERS * TOP_K
    if role == "rank" and not path.exists():
        collect(path, scale)
    started = time.monotonic()
    with watching() as seen:
        collect(path, scale) if role == "controller" else train(path, scale)
    seconds, grown = time.monotonic() - started, seen.peak - seen.before
    row = LAYERS * TOP_K
    bound = controller_bytes(rollouts, tokens, row) if role == "controller" else host_bytes(rollouts, tokens, 0.5, row)
    report = {
        "role": role,
        "routing_bytes": routing_bytes,
        "private_bytes": grown,
        "bound_bytes": bound,
        "seconds": round(seconds, 1),
    }
    print(json.dumps(report))
    return int(grown > bound)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
