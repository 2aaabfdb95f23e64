"""The gap between what sampled and what trains, for TITO × replay on and off, over the same rollouts.

TITO on: the ids that were sampled are trained on. Off: a text stack's ids (`text`), compared stretch by stretch.
Replay on: the trainer routes as the sampler did; a re-encoded token, which the sampler never fed, goes its own way.
Off: everything goes its own way. Nothing is learned here and no weight changes. Boundary: a model, trajectories, and
the renderer's two functions in; numbers out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import PreTrainedModel

from t1.errors import RoutingError
from t1.ppo import gap as gap_metrics
from t1.routing.replay import capturing, differ, replaying, routers
from t1.training.attention import attend_within_segments
from t1.training.forward import action_logprobs, pack_limit
from t1.training.gap.text import Decode, Encode, TextTrajectory, as_text, stretch_differences
from t1.training.packs import Pack, pack
from t1.types import FloatArray, RoutingArray, Trajectory

CELLS = ("tito_replay", "tito", "replay", "neither")
"""The table's cells, by what is on."""


@dataclass(frozen=True, slots=True)
class Gap:
    """One cell. Means are over sampled tokens."""

    mean_abs: float
    """mean |log π_trainer − log π_sampler|, T1's own measure."""
    k3: float
    """mean(r − 1 − log r), r = π_trainer / π_sampler: estimates KL(sampler ‖ trainer)."""
    k3_reverse: float
    """mean(r log r − r + 1): estimates KL(trainer ‖ sampler)."""
    p99: float
    """99th percentile of |log r|."""
    flipped_share: float
    """Share of the fed tokens whose experts are not, in every layer, those that the sampler used for that token."""
    ess: float
    """Effective sample share (Σ r)² / (A Σ r²)."""
    num_compared: int
    """Sampled tokens that had something to be compared with."""

    @classmethod
    def of(cls, differences: npt.NDArray[np.float64], flipped: npt.NDArray[np.bool_]) -> Gap:
        """From log r of each compared token [A], and a flag for each fed token."""
        log_ratio = torch.from_numpy(differences)
        numbers = gap_metrics(log_ratio, torch.zeros_like(log_ratio))
        return cls(
            mean_abs=numbers["gap"],
            k3=numbers["gap_k3"],
            k3_reverse=numbers["gap_k3_reverse"],
            p99=numbers["gap_p99"],
            flipped_share=float(flipped.mean()) if len(flipped) else 0.0,
            ess=numbers["gap_ess"],
            num_compared=len(differences),
        )


@dataclass(frozen=True, slots=True)
class GapTable:
    """All four cells, and what is needed to read them."""

    cells: Mapping[str, Gap]
    """By the names in CELLS; of a dense model, which has no routes, the cells with and without replay are the same."""
    engine: str
    """What sampled, and its dtype."""
    trainer: str
    num_trajectories: int
    num_sampled: int
    num_lost: int
    """Sampled tokens whose own id a text stack does not train on."""

    def as_dict(self) -> dict[str, Any]:
        """The cells by name, and the rest under `measured`."""
        about = {key: value for key, value in asdict(self).items() if key != "cells"}
        return {**{name: asdict(self.cells[name]) for name in CELLS}, "measured": about}


def measure(
    model: PreTrainedModel,
    trajectories: Sequence[Trajectory],
    *,
    decode: Decode,
    encode: Encode,
    engine: str,
    temperature: float = 1.0,
    max_pack_tokens: int = 4096,
) -> GapTable:
    """Score the trajectories with `model`, the trainer's policy at the very weights that sampled them, four times."""
    if not trajectories:
        raise ValueError("gap: expected at least one trajectory, got none")
    attend_within_segments(model)
    model.train()
    score = _Scorer(model, temperature, pack_limit(model, max_pack_tokens))
    texts = [as_text(trajectory, decode=decode, encode=encode) for trajectory in trajectories]
    kept = [(trajectory, text) for trajectory, text in zip(trajectories, texts, strict=True) if text is not None]
    sampled = sum(t.num_actions for t in trajectories)
    cells: dict[str, Gap] = {}
    for name, replays in (("tito_replay", True), ("tito", False)):
        scored = score(trajectories, [t.routing for t in trajectories] if replays else None)
        cells[name] = _tokens_gap(trajectories, scored)
    for name, replays in (("replay", True), ("neither", False)):
        cells[name] = _text_gap(kept, score, replays)
    return GapTable(
        cells={name: cells[name] for name in CELLS},
        engine=engine,
        trainer=f"transformers {str(model.dtype).removeprefix('torch.')}",
        num_trajectories=len(trajectories),
        num_sampled=sampled,
        num_lost=sampled - sum(text.trajectory.num_actions - _new_actions(text) for _, text in kept),
    )


def _new_actions(text: TextTrajectory) -> int:
    """Re-encoded actions that are no sampled token."""
    return int((text.origin[text.trajectory.mask] < 0).sum())


@dataclass(frozen=True, slots=True, eq=False)
class _Scored:
    """What the trainer says of one trajectory, and how it routed it."""

    logprobs: FloatArray
    """[its actions]"""
    routing: RoutingArray | None
    """[T−1, L, K] that the forward used; None of a dense model."""


@dataclass(frozen=True, slots=True)
class _Scorer:
    """Forwards of whole packs, cut up again by trajectory."""

    model: PreTrainedModel
    temperature: float
    max_tokens: int

    @torch.no_grad()
    def __call__(
        self, trajectories: Sequence[Trajectory], routing: Sequence[RoutingArray | None] | None
    ) -> list[_Scored]:
        """Score each trajectory, along `routing` or along the model's own routes."""
        sparse = bool(routers(self.model))
        rows = routing if sparse and routing is not None else [None] * len(trajectories)
        if sparse and routing is not None and any(row is None for row in rows):
            raise RoutingError("gap: a Mixture-of-Experts policy, and trajectories without recorded routes")
        routed = [replace(t, routing=row) for t, row in zip(trajectories, rows, strict=True)]
        actions = np.cumsum([t.num_actions for t in trajectories])
        slots = [np.arange(end - t.num_actions, end) for t, end in zip(trajectories, actions, strict=True)]
        logprobs = np.zeros(int(actions[-1]), dtype=np.float32)
        used: list[RoutingArray | None] = [None] * len(trajectories)
        owner = {int(places[0]): index for index, places in enumerate(slots)}
        for part in pack(routed, max_tokens=self.max_tokens, slots=slots):
            scores, routes = self._forward(part.to(self.model.device), captures=sparse)
            logprobs[part.slots.numpy()] = scores.float().cpu().numpy()
            if routes is not None:
                for index, piece in _by_segment(part, routes.cpu().numpy(), owner):
                    used[index] = piece
        return [_Scored(logprobs[places], used[index]) for index, places in enumerate(slots)]

    def _forward(self, part: Pack, *, captures: bool) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities [A] of one pack's actions, and the routes [M, L, K] that its tokens took."""
        replay = replaying(self.model, part.routing) if part.routing is not None else nullcontext()
        if not captures:
            return action_logprobs(self.model, part, temperature=self.temperature), None
        with replay, capturing(self.model) as captured:
            scores = action_logprobs(self.model, part, temperature=self.temperature)
        return scores, captured.routing()


def _by_segment(part: Pack, routes: Any, owner: Mapping[int, int]) -> list[tuple[int, Any]]:
    """(trajectory, its rows) of each segment of a pack, found by the slot of its first action."""
    bounds = np.cumsum(part.fed_lengths)[:-1]
    ends = np.cumsum(part.segment_lengths)
    firsts = np.searchsorted(part.actions.numpy(), ends - np.array(part.segment_lengths))
    indices = [owner[int(part.slots[first])] for first in firsts]
    return list(zip(indices, np.split(routes, bounds), strict=True))


def _tokens_gap(trajectories: Sequence[Trajectory], scored: Sequence[_Scored]) -> Gap:
    """TITO on: token by token."""
    pairs = list(zip(trajectories, scored, strict=True))
    differences = [one.logprobs.astype(np.float64) - t.logprobs[t.mask] for t, one in pairs]
    flipped = [_flipped(one.routing, t.routing) for t, one in pairs]
    return Gap.of(np.concatenate(differences), np.concatenate(flipped))


def _text_gap(kept: Sequence[tuple[Trajectory, TextTrajectory]], score: _Scorer, replays: bool) -> Gap:
    """TITO off: stretch by stretch."""
    texts = [text.trajectory for _, text in kept]
    scored = score(texts, None)
    known = [_known_rows(trajectory, text) for trajectory, text in kept]
    if replays and scored[0].routing is not None:
        scored = score(texts, [_fill(live.routing, rows) for live, rows in zip(scored, known, strict=True)])
    differences, flipped = [], []
    for (trajectory, text), one, rows in zip(kept, scored, known, strict=True):
        differences.append(stretch_differences(text, one.logprobs, trajectory.logprobs[trajectory.mask]))
        if one.routing is not None and rows is not None:
            has, recorded = rows
            flags = ~has
            flags[has] = _flipped(one.routing[has], recorded[has])
            flipped.append(flags)
    return Gap.of(np.concatenate(differences), np.concatenate(flipped) if flipped else np.zeros(0, dtype=np.bool_))


def _known_rows(trajectory: Trajectory, text: TextTrajectory) -> tuple[npt.NDArray[np.bool_], RoutingArray] | None:
    """(bool[T−1] which tokens of a text trajectory were fed by the sampler, their rows [T−1, L, K], 0 elsewhere)."""
    if trajectory.routing is None:
        return None
    origin = text.origin[:-1]
    has = (origin >= 0) & (origin < len(trajectory.routing))
    rows: Any = trajectory.routing[np.where(has, origin, 0)] * has[:, None, None]
    return has, rows


def _fill(live: RoutingArray | None, known: tuple[npt.NDArray[np.bool_], RoutingArray] | None) -> RoutingArray | None:
    """[T−1, L, K] the sampler's rows where there are any, the model's own elsewhere. To measure, never to train on."""
    if live is None or known is None:
        return None
    has, rows = known
    filled: Any = np.where(has[:, None, None], rows, live)
    routing: RoutingArray = filled.astype(rows.dtype)
    return routing


def _flipped(one: RoutingArray | None, other: RoutingArray | None) -> npt.NDArray[np.bool_]:
    """bool[N] rows whose sets of experts differ in any layer; none of a dense model."""
    if one is None or other is None:
        return np.zeros(0, dtype=np.bool_)
    flags = differ(torch.from_numpy(one.astype(np.int64)), torch.from_numpy(other.astype(np.int64)))
    answer: npt.NDArray[np.bool_] = flags.any(dim=-1).numpy()
    return answer
