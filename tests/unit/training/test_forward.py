"""A packed forward says what one forward per trajectory would say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import transformers
from transformers import PreTrainedModel

from t1.errors import ConfigError
from t1.routing.replay import capturing, replaying
from t1.training import forward
from t1.training.attention import attend_within_segments
from t1.training.critic import Critic
from t1.training.forward import action_logprobs, body_of, pack_limit
from t1.training.packs import pack
from t1.types import Trajectory

Make = Callable[..., Trajectory]


@torch.no_grad()
def _plain_logprobs(model: PreTrainedModel, trajectory: Trajectory) -> torch.Tensor:
    """[actions] by transformers' own attention over the trajectory alone."""
    model.set_attn_implementation("sdpa")
    return _logprobs_of(model, trajectory)


def _logprobs_of(model: PreTrainedModel, trajectory: Trajectory) -> torch.Tensor:
    """[actions] by a plain call of the whole model."""
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


LINEAR = {
    "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 2, "linear_num_key_heads": 1,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8, "head_dim": 16,
}  # fmt: skip
SPARSE = {
    "moe_intermediate_size": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "shared_expert_intermediate_size": 16,
}
GPT_OSS = {
    "intermediate_size": 16, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip
LATENT = {
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 12,
    "num_key_value_heads": 2, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
    "first_k_dense_replace": 1, "moe_intermediate_size": 16,
}  # fmt: skip
OTHERS: dict[str, tuple[str, dict[str, object]]] = {
    "linear attention": ("Qwen3_5Moe", LINEAR | SPARSE),
    "linear attention of Qwen3-Next": ("Qwen3Next", LINEAR | SPARSE),
    "linear attention, dense": ("Qwen3_5", LINEAR | {"intermediate_size": 16}),
    "sinks and windows": ("GptOss", GPT_OSS),
    "latent attention": ("DeepseekV3", LATENT),
}


def make_other(name: str, **changes: object) -> PreTrainedModel:
    """Two layers of another family, with weights large enough to tell right from wrong."""
    torch.manual_seed(0)
    family, keys = OTHERS[name]
    config = getattr(transformers, f"{family}TextConfig" if family.startswith("Qwen3_5") else f"{family}Config")
    shape = {
        "vocab_size": 48, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "max_position_embeddings": 128, "initializer_range": 0.2,
    }  # fmt: skip
    model: PreTrainedModel = getattr(transformers, f"{family}ForCausalLM")(config(**{**shape, **keys, **changes}))
    return model.train()


@pytest.mark.parametrize("name", OTHERS)
def test_other_kinds_of_attention_keep_to_their_segment_forward_and_backward(name: str, make_trajectory: Make) -> None:
    """State starts anew with each trajectory of a pack; windows and sinks are those of the model."""
    model = make_other(name)
    trajectories = [make_trajectory(seed, length=5 + 3 * seed) for seed in range(5)]
    attend_within_segments(model)
    attend_within_segments(model)
    (together,) = pack(trajectories, max_tokens=pack_limit(model, 1000))
    ours = action_logprobs(model, together)
    ours.sum().backward()
    gradients = {n: w.grad.clone() for n, w in model.named_parameters() if w.grad is not None}
    model.zero_grad()
    for implementation in ("eager", "t1_packed"):
        theirs = []
        for trajectory in trajectories:
            model.set_attn_implementation(implementation)
            (alone,) = pack([trajectory], max_tokens=1000)
            packed = implementation == "t1_packed"
            theirs.append(action_logprobs(model, alone) if packed else _logprobs_of(model, trajectory))
        places = together.slots.argsort()
        torch.testing.assert_close(ours[places], torch.cat(theirs), atol=2e-5, rtol=0)
    torch.cat(theirs).sum().backward()
    for parameter, weight in model.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(weight.grad, gradients[parameter], atol=2e-4, rtol=1e-3, msg=parameter)


def test_layers_that_would_mix_trajectories_get_one_a_pack_and_refuse_more(
    dense: PreTrainedModel, make_trajectory: Make
) -> None:
    assert pack_limit(dense, 4096) == 4096
    dense.config.layer_types = ["linear_attention"]
    assert pack_limit(dense, 4096) == 1
    (two,) = pack([make_trajectory(0), make_trajectory(1)], max_tokens=100)
    with pytest.raises(ValueError, match=r"layers of linear_attention carry state .* got a pack of 2"):
        action_logprobs(dense, two)


def test_kinds_of_attention_that_are_not_known_are_refused_by_name(dense: PreTrainedModel) -> None:
    dense.config.layer_types = ["chunked_attention"]
    with pytest.raises(ConfigError, match=r"Qwen3ForCausalLM: .* how to pack chunked_attention layers"):
        attend_within_segments(dense)
