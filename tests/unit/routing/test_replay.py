"""Replay takes the selection from the rows and the weights from the live router, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import (
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from t1.errors import RoutingError
from t1.routing.replay import capturing, replaying, routers

LAYERS, EXPERTS, TOP_K, TOKENS = 3, 8, 2, 14


def make_model(*, norm: bool = True, mlp_only: tuple[int, ...] = (), seed: int = 0) -> PreTrainedModel:
    """Three layers of eight experts, top-2, in training mode."""
    torch.manual_seed(seed)
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            vocab_size=40, hidden_size=32, num_hidden_layers=LAYERS, num_attention_heads=2, num_key_value_heads=1,
            head_dim=16, intermediate_size=32, moe_intermediate_size=16, num_experts=EXPERTS, num_experts_per_tok=TOP_K,
            norm_topk_prob=norm, mlp_only_layers=list(mlp_only), max_position_embeddings=64, initializer_range=0.3,
        )
    ).train()  # fmt: skip


def random_routing(seed: int = 0, *, layers: int = LAYERS, tokens: int = TOKENS) -> Tensor:
    """uint8 [tokens, layers, TOP_K]"""
    ranked = np.random.default_rng(seed).random((tokens, layers, EXPERTS)).argsort(-1)
    return torch.from_numpy(ranked[..., :TOP_K].astype(np.uint8))


IDS = torch.arange(TOKENS).unsqueeze(0) * 7 % 40


def loss_and_gradients(model: PreTrainedModel, routing: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross-entropy of IDS and the gradient of every weight."""
    model.zero_grad(set_to_none=True)
    if routing is None:
        loss = model(input_ids=IDS, labels=IDS, use_cache=False).loss
        loss.backward()
    else:
        with replaying(model, routing):
            loss = model(input_ids=IDS, labels=IDS, use_cache=False).loss
            loss.backward()
    return loss.detach(), {n: w.grad.clone() for n, w in model.named_parameters() if w.grad is not None}


def assert_same(one: tuple[Tensor, dict[str, Tensor]], other: tuple[Tensor, dict[str, Tensor]], atol: float) -> None:
    torch.testing.assert_close(one[0], other[0], atol=atol, rtol=0)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, other[1][name], atol=atol, rtol=0, msg=name)


def own_routes(model: PreTrainedModel) -> Tensor:
    with torch.no_grad(), capturing(model) as captured:
        model(input_ids=IDS, use_cache=False)
    return captured.routing()


class SeenByExperts:
    """What every experts module of a model was told: ids and weights, call by call."""

    def __init__(self, model: nn.Module) -> None:
        self.ids: list[Tensor] = []
        self.weights: list[Tensor] = []
        for module in model.modules():
            if type(module).__name__ == "Qwen3MoeExperts":
                module.register_forward_pre_hook(self._see)

    def _see(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.ids.append(inputs[1])
        self.weights.append(inputs[2])


@pytest.mark.parametrize("norm", [True, False])
def test_experts_get_exactly_the_recorded_rows_and_the_live_weights(norm: bool) -> None:
    model, routing = make_model(norm=norm), random_routing()
    seen = SeenByExperts(model)
    logits = []
    for router in routers(model):
        router.register_forward_hook(lambda module, inputs, output: logits.append(output[0]))
    with replaying(model, routing) as replay:
        model(input_ids=IDS, use_cache=False)
    assert replay.fired == [1] * LAYERS
    assert torch.equal(torch.stack(seen.ids, dim=1), routing.long())
    for layer, weights in enumerate(seen.weights):
        expected = logits[layer].softmax(-1).gather(1, routing[:, layer].long())
        expected = expected / expected.sum(-1, keepdim=True) if norm else expected
        torch.testing.assert_close(weights, expected)


@pytest.mark.parametrize("norm", [True, False])
def test_where_the_routes_agree_loss_and_gradients_are_those_of_the_plain_model(norm: bool) -> None:
    model = make_model(norm=norm)
    assert_same(loss_and_gradients(model, own_routes(model)), loss_and_gradients(model, None), atol=1e-6)


def test_the_order_inside_a_row_means_nothing() -> None:
    model, routing = make_model(), random_routing()
    assert_same(loss_and_gradients(model, routing), loss_and_gradients(model, routing.flip(2)), atol=1e-5)


def test_replaying_other_routes_changes_the_loss_and_the_router_still_gets_gradients() -> None:
    model = make_model()
    plain, replayed = loss_and_gradients(model, None), loss_and_gradients(model, random_routing())
    assert (plain[0] - replayed[0]).abs() > 1e-3
    gates = [gradient for name, gradient in replayed[1].items() if name.endswith("mlp.gate.weight")]
    assert len(gates) == LAYERS
    assert all(gradient.abs().max() > 1e-6 for gradient in gates)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_activations_are_routed_by_the_same_rows(reentrant: bool) -> None:
    """Backward recomputes each layer; the rows are addressed, not consumed."""
    model, routing = make_model(), random_routing()
    plain = loss_and_gradients(model, routing)
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    with replaying(model, routing) as replay:
        model.zero_grad(set_to_none=True)
        loss = model(input_ids=IDS, labels=IDS, use_cache=False).loss
        loss.backward()
    assert replay.fired == [2] * LAYERS
    assert_same((loss.detach(), {n: w.grad for n, w in model.named_parameters()}), plain, atol=1e-6)


def test_layers_without_experts_have_no_rows() -> None:
    model = make_model(mlp_only=(1,))
    assert len(routers(model)) == LAYERS - 1
    seen, routing = SeenByExperts(model), random_routing(layers=LAYERS - 1)
    with replaying(model, routing):
        model(input_ids=IDS, use_cache=False)
    assert torch.equal(torch.stack(seen.ids, dim=1), routing.long())


def test_outside_the_context_the_model_is_as_before() -> None:
    model = make_model()
    before = loss_and_gradients(model, None)
    loss_and_gradients(model, random_routing())
    with pytest.raises(KeyError), replaying(model, random_routing()):
        raise KeyError("anything")
    assert_same(loss_and_gradients(model, None), before, atol=0.0)


@pytest.mark.parametrize(
    ("routing", "reason"),
    [
        (random_routing(tokens=TOKENS - 1), "layer 0: 14 tokens are fed, 13 rows are replayed"),
        (random_routing(tokens=TOKENS + 1), "layer 0: 14 tokens are fed, 15 rows are replayed"),
        (random_routing(layers=LAYERS - 1), r"expected \[N, 3, 2\], got \[14, 2, 2\]"),
        (random_routing()[..., :1], r"expected \[N, 3, 2\], got \[14, 3, 1\]"),
        (random_routing() + 7, "out of range, the model has 8"),
    ],
    ids=["short", "long", "layers", "top-k", "range"],
)
def test_rows_that_do_not_fit_are_refused(routing: Tensor, reason: str) -> None:
    """Design law 4: positions without a row are refused."""
    with pytest.raises(RoutingError, match=reason):
        loss_and_gradients(make_model(), routing)


def test_a_context_in_which_no_router_fired_is_an_error() -> None:
    with pytest.raises(RoutingError, match="or never"), replaying(make_model(), random_routing()):
        pass


def test_a_capture_replayed_is_captured_again() -> None:
    model, routing = make_model(), random_routing()
    with torch.no_grad(), replaying(model, routing), capturing(model) as captured:
        model(input_ids=IDS, use_cache=False)
    assert torch.equal(captured.routing(), routing)
    assert captured.routing().dtype == torch.uint8


def test_a_capture_before_any_forward_is_an_error() -> None:
    with capturing(make_model()) as captured, pytest.raises(RoutingError, match="0 of 3 routers fired"):
        captured.routing()


def test_a_dense_model_has_no_routers_and_replays_nothing() -> None:
    dense = Qwen3ForCausalLM(
        Qwen3Config(vocab_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    )
    assert routers(dense) == []
    with capturing(dense) as captured, pytest.raises(RoutingError, match="dense model has no routing"):
        captured.routing()
    with pytest.raises(RoutingError, match="Qwen3ForCausalLM: a dense model"), replaying(dense, random_routing()):
        pass
