"""GPUs that `t1 plan` knows: what their vendor says about one, in its usual node of eight.

Boundary: facts, without torch. Sources: NVIDIA's data sheets of H100 SXM, H200 SXM, B200 and A100 SXM 80 GB (dense
bfloat16, without sparsity); the network is 400 Gbit/s a GPU (200 for A100), as DGX systems have it.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from t1.errors import ConfigError

GB = 10**9


@dataclass(frozen=True, slots=True)
class GPU:
    """One GPU and its links."""

    name: str
    memory_bytes: int
    flops: float
    """Dense bfloat16 operations a second."""
    node_bytes_s: float
    """To the other GPUs of a node, each way."""
    network_bytes_s: float
    """To other nodes, each way."""
    node_size: int = 8

    @property
    def usable_bytes(self) -> int:
        """What is left beside CUDA's context, NCCL's buffers and the allocator's fragments: 92 %, less 2 GB."""
        return int(0.92 * self.memory_bytes) - 2 * GB


GPUS = {
    gpu.name: gpu
    for gpu in (
        GPU("a100", 80 * GB, 312e12, 300e9, 25e9),
        GPU("h100", 80 * GB, 989e12, 450e9, 50e9),
        GPU("h200", 141 * GB, 989e12, 450e9, 50e9),
        GPU("b200", 180 * GB, 2250e12, 900e9, 50e9),
    )
}


def gpu_named(name: str) -> GPU:
    """The GPU of this name. Raises ConfigError with the names there are."""
    if name.lower() not in GPUS:
        near = difflib.get_close_matches(name.lower(), GPUS, n=1, cutoff=0.5)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"gpu: {name!r} is not one of {', '.join(GPUS)}{meant}")
    return GPUS[name.lower()]
