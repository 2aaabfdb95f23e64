"""The ranks of a trainer: who they are, which packs each one gets, and how what they found comes together.

Every rank runs the same program over the same flat arrays of a batch. A rank reads only the trajectories that it was
given, writes what its nets say about their actions into its own slots, and `spread` makes the arrays whole on all of
them. Numbers and flat arrays stay in the host's memory, and are added up there (gloo, beside NCCL).
Boundary: meshes, packs and flat arrays; models and optimizers are sharded in `sharding.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from transformers import PreTrainedModel

from t1.training.packs import Pack, Packs, check_alike, join_some, lazy_packs, quiet
from t1.training.parallel.context import slice_pack
from t1.training.parallel.layout import Layout
from t1.training.parallel.shares import share
from t1.training.planning.shapes import shape_of
from t1.types import Trajectory


@dataclass(frozen=True, slots=True, eq=False)
class Meshes:
    """The group's ranks, seen along each axis."""

    dense: DeviceMesh
    """[W] everything but experts is sharded over these."""
    context: DeviceMesh
    """[data, context]"""
    experts: DeviceMesh
    """[replicas, experts]"""


class Ranks:
    """One group of ranks. `Ranks()` is a rank alone, without any process group."""

    def __init__(
        self,
        layout: Layout | None = None,
        meshes: Meshes | None = None,
        *,
        apart: bool = False,
        quadratic_at: float = math.inf,
    ) -> None:
        """`apart`: the policy and the critic have groups of their own, and this is one of them.

        `quadratic_at`: by which packs are of equal cost, see `shares.cost`.
        """
        self.layout, self.meshes, self.apart, self.quadratic_at = layout or Layout(), meshes, apart, quadratic_at

    def training(self, model: PreTrainedModel) -> Ranks:
        """The same ranks, which share packs by what they cost this model."""
        return Ranks(self.layout, self.meshes, apart=self.apart, quadratic_at=shape_of(model).quadratic_at)

    @classmethod
    def open(cls, layout: Layout, *, device_type: str = "cpu", first: int = 0, apart: bool = False) -> Ranks:
        """The ranks `first` … `first` + W − 1 of the default process group, which all of its ranks must open."""
        ranks = torch.arange(first, first + layout.world)
        shapes = ((layout.world,), (layout.data, layout.context), (layout.replicas, layout.experts))
        names = (("shard",), ("data", "context"), ("replica", "expert"))
        dense, context, experts = (
            DeviceMesh(device_type, ranks.view(shape), mesh_dim_names=name)
            for shape, name in zip(shapes, names, strict=True)
        )
        return cls(layout, Meshes(dense, context, experts), apart=apart)

    @classmethod
    def open_apart(cls, *, policy: Layout, critic: Layout, device_type: str = "cpu") -> tuple[Ranks, bool]:
        """This rank's group, and whether it is the policy's: the first ranks are, the critic's follow."""
        groups = [
            cls.open(layout, device_type=device_type, first=first, apart=True)
            for layout, first in ((policy, 0), (critic, policy.world))
        ]
        is_policy = dist.get_rank() < policy.world
        return groups[0 if is_policy else 1], is_policy

    @property
    def leads(self) -> bool:
        """Whether this rank speaks for its group: writes files, prints."""
        return self.meshes is None or self.meshes.dense.get_local_rank() == 0

    def packs(
        self, trajectories: Sequence[Trajectory], slots: Sequence[npt.NDArray[np.int64]], *, max_tokens: int
    ) -> Packs:
        """This rank's packs of `trajectories`; every rank of the group gets equally many, of about equal cost.

        A rank with nothing to do in some round gets a pack without actions: its forward keeps the others company.
        """
        if self.meshes is None:
            return lazy_packs(trajectories, slots, max_tokens=max_tokens)
        check_alike(trajectories)
        rank = self.meshes.context.get_local_rank("data")
        rounds = share(
            [len(t.tokens) for t in trajectories],
            num_ranks=self.layout.data,
            max_tokens=max_tokens,
            quadratic_at=self.quadratic_at,
        )
        makers = [partial(self._pack, trajectories, slots, bins[rank]) for bins in rounds]
        return Packs(makers, sum(map(len, slots)))

    def _pack(
        self, trajectories: Sequence[Trajectory], slots: Sequence[npt.NDArray[np.int64]], members: list[int]
    ) -> Pack:
        """This rank's rows of a pack of these members; without any, of the shortest one, without its actions."""
        assert self.meshes is not None
        if members:
            one = join_some(trajectories, slots, members)
        else:
            shortest = min(range(len(trajectories)), key=lambda i: len(trajectories[i].tokens))
            one = quiet(join_some(trajectories, slots, [shortest]))
        return one if self.layout.context == 1 else slice_pack(one, self.meshes.context.get_group("context"))

    def total(self, *numbers: float) -> tuple[float, ...]:
        """The sum of each number over the ranks of this group."""
        if self.meshes is None:
            return numbers
        sums = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(sums, group=self.meshes.dense.get_group())
        return tuple(sums.tolist())

    def agree(self, numbers: dict[str, float]) -> dict[str, float]:
        """The same numbers on the ranks of both groups; a group that does not know one says 0."""
        if not self.apart:
            return numbers
        known = torch.tensor([value if self.leads else 0.0 for value in numbers.values()], dtype=torch.float64)
        dist.all_reduce(known)
        return dict(zip(numbers, known.tolist(), strict=True))

    def spread(self, flat: Tensor, slots: Sequence[Tensor]) -> None:
        """Give `flat` [A], on every rank, the entries that some rank wrote at its own `slots` int64[a]."""
        if self.meshes is None:
            return
        found = torch.zeros(2, len(flat), dtype=flat.dtype)
        for own in slots:
            found[0, own], found[1, own] = flat[own], 1.0
        dist.all_reduce(found, group=None if self.apart else self.meshes.dense.get_group())
        written = found[1] > 0
        flat[written] = found[0][written] / found[1][written]


ALONE = Ranks()
"""A process without peers."""
