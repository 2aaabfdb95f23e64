"""Which kind of mismatch does a gap look like? Evidence in, one kind and one sentence out.

Engine and trainer hold the same weights, so their log-probabilities differ by rounding alone. Where they differ by
more, each cause leaves its own marks:

    lag            only tokens that older weights sampled differ: off-policy data, not a fault
    routing        another routing of the trainer takes the gap away
    temperature    another temperature of the trainer takes it away
    truncation     the sampler is always surer, never less sure: its tail was cut off (top-p, top-k) and is not here
    stale cache    only turns that began on cached keys and values differ
    wrong weights  all tokens differ, in both directions, whatever is tried

The first four are tried on a few of the step's own trajectories (`probe`), which costs a few forwards and is done only
when the gap is above its bound. Boundary: numbers of one step; nothing is remembered, and nothing is mended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import PreTrainedModel

from t1.routing.replay import replaying, routers
from t1.training.batches import Batch
from t1.training.forward import body_of, head_logprobs, hidden_states
from t1.training.packs import Pack
from t1.types import Rollout

MAX_PROBED = 2048
"""Actions that a probe looks at."""
MIN_ACTIONS = 16
"""A comparison of two groups of tokens needs so many in each."""
TAKES_AWAY = 0.4
"""What is left of the gap, as a share, where a change of the trainer counts as its explanation."""
TELLS_APART = 3.0
"""How many times larger the gap of one group of tokens must be, to count as where the gap is."""
FACTORS = tuple(float(f) for f in np.geomspace(0.4, 2.5, 13))
"""Temperatures that are tried, as multiples of the trainer's."""


class Mismatch(StrEnum):
    """Kinds of mismatch between sampler and trainer."""

    LAG = "lag"
    ROUTING = "routing"
    TEMPERATURE = "temperature"
    TRUNCATION = "truncation"
    STALE_CACHE = "stale_cache"
    WRONG_WEIGHTS = "wrong_weights"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a gap looks like."""

    kind: Mismatch
    message: str
    """One sentence: the evidence, and the next step."""

    def __str__(self) -> str:
        return f"{self.kind.replace('_', ' ')}: {self.message}"


@dataclass(frozen=True, slots=True)
class Probes:
    """The mean |Δ log π| of the probed actions, as they were trained and after one change of the trainer."""

    as_trained: float
    other_routing: float | None = None
    """Live routes where recorded ones are replayed, and the other way round; None of a dense model."""
    best_temperature: float = 1.0
    """Of those that were tried, the one that leaves the smallest gap."""
    at_best_temperature: float = math.inf
    replays: bool = True
    """Whether it was trained on recorded routes."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What a step knows of its gap. Arrays are over its actions [A], rollout after rollout, each in time order."""

    differences: npt.NDArray[np.float64]
    """log π_trainer − log π_sampler."""
    lag: npt.NDArray[np.int64]
    """Versions between the weights that sampled and those that scored."""
    turns: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    """[R] actions of each rollout."""
    bound: float
    """A mean |difference| up to here is no mismatch."""
    temperature: float
    probes: Probes | None
    """None where nothing could be tried: the nets are in shards, or all of the actions lag."""

    @classmethod
    def of(
        cls,
        batch: Batch,
        trained: Tensor,
        *,
        bound: float,
        version: int,
        temperature: float,
        probes: Probes | None = None,
    ) -> Evidence:
        """From a step's batch and what the trainer said at `version`, `trained` float32[A]."""
        return cls(
            differences=(trained.double() - batch.sampler_logprobs.double()).numpy(),
            lag=lag_of(batch, version),
            turns=batch.turns.numpy(),
            lengths=batch.lengths.numpy(),
            bound=bound,
            temperature=temperature,
            probes=probes,
        )

    def cached(self, rollouts: Sequence[Rollout]) -> npt.NDArray[np.bool_]:
        """[A] True where the action's turn began on cached tokens; `rollouts` [R] are those of the step."""
        if len(rollouts) != len(self.lengths):
            raise ValueError(f"evidence: expected {len(self.lengths)} rollouts, got {len(rollouts)}")
        parts = np.split(self.turns, np.cumsum(self.lengths)[:-1])
        took = [np.array([turn.timings.cached_tokens > 0 for turn in rollout.turns]) for rollout in rollouts]
        return np.concatenate([cached[turns] for cached, turns in zip(took, parts, strict=True)])


def lag_of(batch: Batch, version: int) -> npt.NDArray[np.int64]:
    """[A] versions between the weights that sampled each action and `version`."""
    versions = np.zeros(batch.num_actions, dtype=np.int64)
    for segments, slots in zip(batch.segments, batch.slots, strict=True):
        for trajectory, places in zip(segments, slots, strict=True):
            versions[places] = trajectory.version[trajectory.mask]
    return version - versions


def diagnose(evidence: Evidence, cached: npt.NDArray[np.bool_] | None = None) -> Diagnosis:
    """The kind that the evidence speaks for. `cached` [A] as of `Evidence.cached`, where the turns are at hand."""
    distance = np.abs(evidence.differences)
    here, behind = distance[evidence.lag == 0], distance[evidence.lag > 0]
    if len(behind) and (len(here) < MIN_ACTIONS or here.mean() <= evidence.bound):
        return Diagnosis(
            Mismatch.LAG,
            f"{len(behind)} tokens were sampled up to {int(evidence.lag.max())} versions ago and differ by "
            f"{behind.mean():.3g} (those of this version by {here.mean() if len(here) else 0.0:.3g}): data off the "
            "policy; lower rollouts.max_lag, or bound what it counts for with ppo.importance_cap",
        )
    found = _by_probes(evidence) or _truncation(evidence.differences[evidence.lag == 0])
    if found is None and cached is not None:
        found = _stale_cache(distance[evidence.lag == 0], cached[evidence.lag == 0])
    return found or Diagnosis(
        Mismatch.WRONG_WEIGHTS,
        f"tokens differ by {here.mean():.3g} everywhere and in both directions, at every temperature and on every "
        "route that was tried: the engine samples from other weights than the trainer's"
        + (", or all of its turns began on a cache that outlived its weights" if _all(cached) else "")
        + "; publish again, and check with `t1 doctor --engine URL`",
    )


def _by_probes(evidence: Evidence) -> Diagnosis | None:
    """Routing or temperature, whichever takes more of the gap away."""
    if (probes := evidence.probes) is None:
        return None
    bound = TAKES_AWAY * probes.as_trained
    by_routing = math.inf if probes.other_routing is None else probes.other_routing
    if min(by_routing, probes.at_best_temperature) > bound:
        return None
    if by_routing <= probes.at_best_temperature:
        what, other, step = (
            ("the recorded routes", "the trainer's own", "the engine's capture belongs to other tokens or weights")
            if probes.replays
            else ("the trainer's own routes", "those recorded", "set ppo.replay_routing")
        )
        return Diagnosis(
            Mismatch.ROUTING,
            f"on {what} tokens differ by {probes.as_trained:.3g}, on {other} by {by_routing:.3g}: {step}",
        )
    found, ours = probes.best_temperature, evidence.temperature
    raw = abs(found - 1) < 0.03 and abs(ours - 1) >= 0.03
    return Diagnosis(
        Mismatch.TEMPERATURE,
        f"at temperature {ours:g} tokens differ by {probes.as_trained:.3g}, at {found:.2f} by "
        f"{probes.at_best_temperature:.3g}: "
        + (
            "the engine reports raw log-probabilities; start vLLM with --logprobs-mode processed_logprobs"
            if raw
            else "engine and trainer disagree on harness.sampling.temperature"
        ),
    )


def _truncation(differences: npt.NDArray[np.float64]) -> Diagnosis | None:
    """All differences on one side: log π_sampler = log π − log(mass that was kept) ≥ log π."""
    if len(differences) < MIN_ACTIONS:
        return None
    size = float(np.abs(differences).mean())
    if (differences > 0.1 * size).mean() > 0.02:
        return None
    kept = math.exp(float(np.quantile(differences, 0.01)))
    return Diagnosis(
        Mismatch.TRUNCATION,
        f"the sampler is surer of every token, by {size:.3g} on average, as if only {kept:.2f} or more of the "
        "probability had been kept: it samples with top-p, top-k or min-p, and the trainer does not; set top_p=1 and "
        "top_k=0 in harness.sampling and in the engine's defaults (vLLM: --generation-config vllm)",
    )


def _stale_cache(distance: npt.NDArray[np.float64], cached: npt.NDArray[np.bool_]) -> Diagnosis | None:
    """Turns that began on cached keys and values against those that did not."""
    warm, cold = distance[cached], distance[~cached]
    if min(len(warm), len(cold)) < MIN_ACTIONS or warm.mean() < TELLS_APART * cold.mean():
        return None
    return Diagnosis(
        Mismatch.STALE_CACHE,
        f"turns on cached tokens differ by {warm.mean():.3g}, fresh ones by {cold.mean():.3g}: keys and values of "
        "older weights are reused; reset the engine's prefix cache at every publish, or salt it with the version",
    )


def _all(cached: npt.NDArray[np.bool_] | None) -> bool:
    return cached is not None and bool(cached.all())


# --------------------------------------------------------------------------------------------------------------------
# Probes


@torch.no_grad()
def probe(
    model: PreTrainedModel,
    packs: Iterable[Pack],
    sampled: Tensor,
    fresh: npt.NDArray[np.bool_],
    *,
    temperature: float,
    as_trained: Callable[[Pack], AbstractContextManager[Any]],
    replays: bool,
) -> Probes | None:
    """Score some actions again: as they were trained, routed otherwise, and at other temperatures. None: none is fresh.

    `sampled` float32[A of the step], by slot; only those `fresh` (without lag) count. `as_trained` is the context in
    which a pack was trained, along recorded routes where it `replays`; the other way is then the live one, and the
    other way round. By now the weights have moved by one step, so that a gap as small as that cannot be explained.
    """
    chosen = list(_some(packs))
    slots = torch.cat([part.slots.cpu() for part in chosen])
    counts = torch.from_numpy(fresh)[slots]
    if not counts.any():
        return None
    targets = torch.cat([part.tokens[part.actions] for part in chosen])[counts]
    theirs = sampled[slots][counts].to(targets.device)
    accessor: Any = model
    head = accessor.get_output_embeddings()

    def distance(rows: Tensor, at: float) -> float:
        return float((head_logprobs(head, rows, targets, temperature=at) - theirs).abs().mean())

    def otherwise(part: Pack) -> AbstractContextManager[Any]:
        return nullcontext() if replays or part.routing is None else replaying(model, part.routing)

    rows = _rows(model, chosen, as_trained)[counts]
    found = {temperature * factor: distance(rows, temperature * factor) for factor in FACTORS}
    found[1.0] = distance(rows, 1.0)
    step = FACTORS[1] / FACTORS[0]
    near = min(found, key=found.__getitem__)
    found |= {at: distance(rows, at) for at in (near * step**power for power in np.linspace(-1, 1, 9).tolist())}
    best = min(found, key=found.__getitem__)
    return Probes(
        as_trained=distance(rows, temperature),
        other_routing=distance(_rows(model, chosen, otherwise)[counts], temperature) if routers(model) else None,
        best_temperature=best,
        at_best_temperature=found[best],
        replays=replays,
    )


def _some(packs: Iterable[Pack]) -> Iterator[Pack]:
    """The first packs, until they hold enough actions."""
    count = 0
    for part in packs:
        if count >= MAX_PROBED:
            return
        count += part.num_actions
        yield part


def _rows(
    model: PreTrainedModel, packs: Sequence[Pack], routing: Callable[[Pack], AbstractContextManager[Any]]
) -> Tensor:
    """[A, H] the hidden state that predicts each action."""
    body, rows = body_of(model), []
    for part in packs:
        with routing(part):
            rows.append(hidden_states(body, part)[part.action_rows])
    return torch.cat(rows)
