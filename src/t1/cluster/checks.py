"""What an episode's routing captures must be before it is verified. Boundary: plain numbers of the model, no model."""

from __future__ import annotations

from collections.abc import Callable

from t1.routing import check_capture
from t1.tito import assemble
from t1.types import IntArray, RolloutId, RoutingArray, Turn


def capture_check(num_layers: int, num_experts: int, top_k: int) -> Callable[[RoutingArray | None, IntArray], None]:
    """Refuses (RoutingError) rows [N, L, K] that are not a whole capture of tokens [N] (design law 4)."""

    def check(rows: RoutingArray | None, tokens: IntArray) -> None:
        check_capture(
            rows,
            num_rows=len(tokens),
            num_experts=num_experts,
            top_k=top_k,
            num_layers=num_layers,
            tokens=tokens,
        )

    return check


def check_episode(
    check: Callable[[RoutingArray | None, IntArray], None],
    boundary_ids: frozenset[int],
    rollout: RolloutId,
    turns: tuple[Turn, ...],
) -> None:
    """Refuse an episode whose captures do not cover what would be trained, before it is verified."""
    for trajectory in assemble(rollout, turns, boundary_ids=boundary_ids):
        check(trajectory.routing, trajectory.tokens[:-1])
