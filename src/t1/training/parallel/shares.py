"""Who gets which trajectories: packs of about equal cost, equally many for every rank.

Ranks advance together, pack by pack, since every forward gathers weights from all of them; the slowest pack of a round
is what the round costs. Boundary: lengths in, indices out.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence


def cost(length: int, *, quadratic_at: float) -> float:
    """What a trajectory costs, in tokens of a short one: T + T² / quadratic_at.

    `quadratic_at`: tokens at which attention costs as much as all that is linear in them (`Shape.quadratic_at`).
    """
    return length + length * length / quadratic_at


def share(
    lengths: Sequence[int], *, num_ranks: int, max_tokens: int, quadratic_at: float = math.inf
) -> list[list[list[int]]]:
    """[rounds][ranks] the trajectories, by index, of each pack; a rank may get none in the last rounds.

    A pack holds at most `max_tokens`, or one longer trajectory. Most expensive first, each into the cheapest pack with
    room; packs of like cost make a round.
    """
    if not lengths:
        return []
    costs = [cost(length, quadratic_at=quadratic_at) for length in lengths]
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    num_packs = -(-sum(lengths) // max_tokens)
    while (bins := _fill(order, lengths, costs, -(-num_packs // num_ranks) * num_ranks, max_tokens)) is None:
        num_packs += num_ranks
    bins.sort(key=lambda members: -sum(costs[i] for i in members))
    rounds = [bins[start : start + num_ranks] for start in range(0, len(bins), num_ranks)]
    return [packs for packs in rounds if any(packs)]


def _fill(
    order: Sequence[int], lengths: Sequence[int], costs: Sequence[float], num_packs: int, max_tokens: int
) -> list[list[int]] | None:
    """Indices by pack, or None where some pack overflows."""
    heap: list[tuple[float, int]] = [(0.0, p) for p in range(num_packs)]
    filled, bins = [0] * num_packs, [[] for _ in range(num_packs)]  # type: tuple[list[int], list[list[int]]]
    for i in order:
        spent, place = heapq.heappop(heap)
        if bins[place] and filled[place] + lengths[i] > max_tokens:
            return None
        bins[place].append(i)
        filled[place] += lengths[i]
        heapq.heappush(heap, (spent + costs[i], place))
    return bins
