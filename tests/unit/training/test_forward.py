"""A packed forward says what one forward per trajectory would say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel

from t1.routing.replay import capturing, replaying
from t1.training import forward
from t1.training.critic import Critic
from t1.training.forward import action_logprobs, body_of, pack_limit
from t1.training.packs import pack
from t1.types import Trajectory

Make = Callable[..., Trajectory]


@torch.no_grad()
def _plain_logprobs(model: PreTrainedModel, trajectory: Trajectory) -> torch.Tensor:
    """[actions] by transformers' own attention over the trajectory alone."""
    model.set_attn_implementation("sdpa")
    tokens = torch.from_numpy(trajectory.tokens).long()
    log_probabilities = model(input_ids=tokens[None], use_cache=False).logits[0].log_softmax(-1)
    actions = torch.from_numpy(trajectory.mask).nonzero()[:, 0]
    return log_probabilities[actions - 1, tokens[actions]]


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_a_packed_forward_equals_one_by_one(kind: str, make_trajectory: Make, request: pytest.FixtureRequest) -> None:
    model: PreTrainedModel = request.getfixturevalue(kind)
    trajectories = [make_trajectory(seed, length=5 + 3 * seed) for seed in range(5)]
    (together,) = pack(trajectories, max_tokens=1000)
    ours = torch.zeros(together.num_actions)
    with torch.no_grad():
        ours[together.slots] = action_logprobs(model, together)
    theirs = torch.cat([_plain_logprobs(model, t) for t in trajectories])
    torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=0)


def test_logits_made_in_chunks_give_the_same_numbers_and_gradients(
    dense: PreTrainedModel, make_trajectory: Make
) -> None:
    (whole,) = pack([make_trajectory(seed) for seed in range(3)], max_tokens=1000)
    head = dense.get_output_embeddings()
    rows = torch.randn(whole.num_actions, 32, requires_grad=True)
    results = []
    for limit in (forward.MAX_LOGITS, 48 * 4):
        rows.grad = None
        dense.zero_grad()
        logprobs = forward.head_logprobs(head, rows, whole.tokens[whole.actions], max_logits=limit)
        logprobs.square().sum().backward()
        assert rows.grad is not None
        results.append((logprobs.detach(), rows.grad.clone(), head.weight.grad.clone()))
    for one, chunked in zip(*results, strict=True):
        torch.testing.assert_close(one, chunked, atol=1e-5, rtol=1e-5)


def test_temperature_divides_the_logits(dense: PreTrainedModel, make_trajectory: Make) -> None:
    """Case L2: the trainer's distribution is the one that was sampled."""
    trajectory = make_trajectory(3)
    (one,) = pack([trajectory], max_tokens=100)
    with torch.no_grad():
        ours = action_logprobs(dense, one, temperature=0.5)
        dense.set_attn_implementation("sdpa")
        logits = dense(input_ids=one.tokens[None], use_cache=False).logits[0]
    theirs = (logits / 0.5).log_softmax(-1)[one.actions - 1, one.tokens[one.actions]]
    torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=0)


def test_replaying_the_routes_that_the_model_takes_anyway_changes_nothing(
    moe: PreTrainedModel, make_trajectory: Make
) -> None:
    (plain,) = pack([make_trajectory(seed) for seed in range(3)], max_tokens=1000)
    with torch.no_grad(), capturing(moe) as captured:
        expected = action_logprobs(moe, plain)
    with torch.no_grad(), replaying(moe, captured.routing()):
        replayed = action_logprobs(moe, plain)
    torch.testing.assert_close(replayed, expected, atol=1e-6, rtol=0)


def test_replaying_other_routes_changes_the_log_probabilities(moe: PreTrainedModel, make_trajectory: Make) -> None:
    (routed,) = pack([make_trajectory(0, routed=True)], max_tokens=1000)
    with torch.no_grad():
        plain = action_logprobs(moe, routed)
        assert routed.routing is not None
        with replaying(moe, routed.routing):
            replayed = action_logprobs(moe, routed)
    assert (plain - replayed).abs().max() > 1e-3


def test_a_fresh_critic_says_zero_and_shares_no_weights_with_the_policy(
    moe: PreTrainedModel, make_trajectory: Make
) -> None:
    critic = Critic.from_policy(moe)
    (one,) = pack([make_trajectory(0)], max_tokens=1000)
    assert not critic(one).any()
    shared = {w.data_ptr() for w in critic.parameters()} & {w.data_ptr() for w in moe.parameters()}
    assert not shared
    for ours, theirs in zip(critic.body.parameters(), body_of(moe).parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_packed_attention_refuses_lengths_of_another_pack(dense: PreTrainedModel) -> None:
    with pytest.raises(ValueError, match="add up to 4"):
        body_of(dense)(input_ids=torch.zeros(1, 4, dtype=torch.long), use_cache=False, segment_lengths=(2, 1))


def test_a_model_with_recurrent_layers_gets_one_trajectory_a_pack(dense: PreTrainedModel) -> None:
    assert pack_limit(dense, 4096) == 4096
    dense.config.layer_types = ["linear_attention"]
    assert pack_limit(dense, 4096) == 1
