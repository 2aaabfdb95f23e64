"""A batch chains each rollout's actions in time order, whatever its segments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

from t1.training.batches import Batch
from t1.types import Trajectory

Make = Callable[..., Trajectory]


def test_the_reward_lies_on_each_rollout_s_last_action(make_trajectory: Make) -> None:
    """Case P2: not on a masked tail, and on one segment only."""
    first, second, other = make_trajectory(0), make_trajectory(1, first_turn=50), make_trajectory(2)
    batch = Batch.of([((first, second), 0.5), ((other,), 1.0)])
    chain = first.num_actions + second.num_actions
    assert batch.rewards.nonzero()[:, 0].tolist() == [chain - 1, chain + other.num_actions - 1]
    assert batch.rewards[batch.rewards > 0].tolist() == [0.5, 1.0]
    assert batch.lengths.tolist() == [chain, other.num_actions]


def test_segments_that_took_turns_are_chained_by_time(make_trajectory: Make) -> None:
    """Turns of a parallel conversation lie between those of the main one."""
    main, side = make_trajectory(0), make_trajectory(1)
    main = dataclasses.replace(main, turn=main.turn * 2)
    side = dataclasses.replace(side, turn=side.turn * 2 + 1)
    batch = Batch.of([((main, side), 1.0)])
    assert batch.turns.tolist() == sorted(batch.turns.tolist())
    assert torch.equal(batch.sampler_logprobs[batch.slots[0][1]], torch.from_numpy(side.logprobs[side.mask]))


def test_minibatches_share_out_whole_rollouts(make_trajectory: Make) -> None:
    rollouts = [((make_trajectory(i), make_trajectory(i + 100, first_turn=40)), float(i)) for i in range(7)]
    batch = Batch.of(rollouts)
    parts = batch.minibatches(3, max_tokens=50, generator=torch.Generator().manual_seed(0))
    slots = [{slot for p in packs for slot in p.slots.tolist()} for packs in parts]
    assert sorted(slot for share in slots for slot in share) == list(range(batch.num_actions))
    owner = torch.repeat_interleave(torch.arange(7), batch.lengths)
    owners = [{int(owner[slot]) for slot in share} for share in slots]
    assert sum(map(len, owners)) == 7


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_refused(make_trajectory: Make, reward: float) -> None:
    """Case V1."""
    with pytest.raises(ValueError, match="finite"):
        Batch.of([((make_trajectory(0),), reward)])
