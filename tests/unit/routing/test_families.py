"""Replay in each Mixture-of-Experts family: the recorded selection, the live weights, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import PhimoeConfig, PhimoeForCausalLM, PreTrainedModel

from t1.errors import ConfigError, RoutingError
from t1.routing.replay import ADAPTERS, Replay, capturing, differ, replaying, routers

EXPERTS, TOP_K, TOKENS = 8, 3, 14
IDS = torch.arange(TOKENS).unsqueeze(0) * 7 % 40
Make = Callable[[str], PreTrainedModel]
Result = tuple[Tensor, dict[str, Tensor]]


def random_routing(num_layers: int, seed: int = 0, tokens: int = TOKENS) -> Tensor:
    """uint8 [tokens, num_layers, TOP_K] of distinct experts."""
    ranked = np.random.default_rng(seed).random((tokens, num_layers, EXPERTS)).argsort(-1)
    return torch.from_numpy(ranked[..., :TOP_K].astype(np.uint8))


def learn(model: PreTrainedModel, routing: Tensor | None = None) -> tuple[Result, Replay | None]:
    """Cross-entropy of IDS and the gradient of every weight, with or without replay."""
    model.zero_grad(set_to_none=True)
    replay = None
    if routing is None:
        loss = model(input_ids=IDS, labels=IDS, use_cache=False).loss
        loss.backward()
    else:
        with replaying(model, routing) as replay:
            loss = model(input_ids=IDS, labels=IDS, use_cache=False).loss
            loss.backward()
    gradients = {name: w.grad.clone() for name, w in model.named_parameters() if w.grad is not None}
    return (loss.detach(), gradients), replay


def assert_same(one: Result, other: Result, atol: float) -> None:
    """The same loss and the same gradients."""
    torch.testing.assert_close(one[0], other[0], atol=atol, rtol=0)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, other[1][name], atol=atol, rtol=0, msg=name)


def watch_experts(model: PreTrainedModel) -> list[tuple[Tensor, Tensor]]:
    """A list that fills with the (ids, weights) that each experts module is called with."""
    seen: list[tuple[Tensor, Tensor]] = []
    for module in model.modules():
        if type(module).__name__.endswith("Experts"):
            module.register_forward_pre_hook(lambda _, inputs: seen.append((inputs[1], inputs[2])))
    return seen


def own_routes(model: PreTrainedModel) -> Tensor:
    """[TOKENS, L, TOP_K] as the model routes by itself."""
    with torch.no_grad(), capturing(model) as captured:
        model(input_ids=IDS, use_cache=False)
    return captured.routing()


def test_a_capture_is_what_the_experts_were_given(family: str, make_family: Make) -> None:
    model = make_family(family)
    seen = watch_experts(model)
    captured = own_routes(model)
    assert torch.equal(torch.stack([ids for ids, _ in seen], dim=1), captured.long())
    assert captured.dtype == torch.uint8 and captured.shape == (TOKENS, len(routers(model)), TOP_K)


def test_where_the_routes_agree_loss_and_gradients_are_bit_for_bit_the_plain_models(
    family: str, make_family: Make
) -> None:
    """The adapter weighs in the router's own operations and dtypes."""
    model = make_family(family)
    plain, _ = learn(model)
    replayed, replay = learn(model, own_routes(model))
    assert_same(replayed, plain, atol=0.0)
    assert replay is not None and not replay.flipped.any()


def test_in_bfloat16_the_weights_are_the_routers_own_too(family: str, make_family: Make) -> None:
    model = make_family(family).to(torch.bfloat16)
    seen = watch_experts(model)
    rows = own_routes(model)
    with torch.no_grad(), replaying(model, rows):
        model(input_ids=IDS, use_cache=False)
    half = len(seen) // 2
    for (_, live), (_, replayed) in zip(seen[:half], seen[half:], strict=True):
        assert live.dtype == replayed.dtype and torch.equal(live, replayed)


def test_another_selection_reaches_the_experts_exactly_and_the_gate_still_learns(
    family: str, make_family: Make
) -> None:
    model = make_family(family)
    num_layers = len(routers(model))
    rows = random_routing(num_layers)
    plain, _ = learn(model)
    seen = watch_experts(model)
    (loss, gradients), replay = learn(model, rows)
    assert torch.equal(torch.stack([ids for ids, _ in seen], dim=1), rows.long())
    assert replay is not None and replay.fired == [1] * num_layers
    assert replay.flipped.float().mean() > 0.5
    assert (loss - plain[0]).abs() > 1e-3
    gates = [g for name, g in gradients.items() if name.endswith(("mlp.gate.weight", "router.weight"))]
    assert len(gates) == num_layers
    assert all(g.abs().max() > 1e-6 for g in gates)


def test_the_order_inside_a_row_means_nothing(family: str, make_family: Make) -> None:
    """Engines order a row as they like: a row is a set."""
    model = make_family(family)
    rows = random_routing(len(routers(model)))
    shuffled = rows[:, :, torch.tensor([2, 0, 1])]
    assert_same(learn(model, rows)[0], learn(model, shuffled)[0], atol=5e-5)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_activations_are_routed_by_the_same_rows(family: str, make_family: Make, reentrant: bool) -> None:
    """Each router fires once forward and once more in the recomputation, on the same rows."""
    model: Any = make_family(family)
    num_layers = len(routers(model))
    rows = random_routing(num_layers)
    plain, _ = learn(model, rows)
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    seen = watch_experts(model)
    again, replay = learn(model, rows)
    assert replay is not None and replay.fired == [2] * num_layers
    assert torch.equal(torch.stack([ids for ids, _ in seen[:num_layers]], dim=1), rows.long())
    assert torch.equal(torch.stack([ids for ids, _ in reversed(seen[num_layers:])], dim=1), rows.long())
    assert_same(again, plain, atol=1e-6)


def test_rows_that_do_not_fit_are_refused(family: str, make_family: Make) -> None:
    """Design law 4: no position is replayed without a row of its own."""
    model = make_family(family)
    num_layers = len(routers(model))
    rows = random_routing(num_layers)
    for wrong, reason in (
        (rows[:-1], "14 tokens are fed, 13 rows are replayed"),
        (rows[:, 1:], rf"expected \[N, {num_layers}, 3\]"),
        (rows[..., 1:], rf"expected \[N, {num_layers}, 3\]"),
        (rows + EXPERTS, "out of range, the model has 8"),
    ):
        with pytest.raises(RoutingError, match=reason), replaying(model, wrong):
            model(input_ids=IDS, use_cache=False)


def test_load_balancing_is_refused_while_replaying(make_family: Make) -> None:
    model = make_family("Mixtral")
    rows = own_routes(model)
    with pytest.raises(ConfigError, match="output_router_logits adds a load-balancing loss"), replaying(model, rows):
        model(input_ids=IDS, labels=IDS, use_cache=False, output_router_logits=True)
    model.config.output_router_logits = True
    with pytest.raises(ConfigError, match="set it to false"), replaying(model, rows):
        pass
    model.config.output_router_logits, model.config.router_jitter_noise = False, 0.1
    with pytest.raises(ConfigError, match=r"router_jitter_noise 0.1"), replaying(model, rows):
        pass


def test_a_router_that_is_skipped_in_some_forward_is_noticed(make_family: Make) -> None:
    model: Any = make_family("Qwen2Moe")
    rows = own_routes(model)
    with pytest.raises(RoutingError, match=r"fired less often than others, or never: \[2, 1, 1\]"):  # noqa: SIM117
        with replaying(model, rows):
            model(input_ids=IDS, use_cache=False)
            model.model.layers[0].mlp.gate(torch.zeros(TOKENS, 32))


def test_an_unknown_family_is_refused_by_name_and_told_what_to_write() -> None:
    model = PhimoeForCausalLM(
        PhimoeConfig(
            vocab_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
            intermediate_size=8, num_local_experts=4,
        )
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"PhimoeForCausalLM: .*router: PhimoeTopKRouter.*line in ADAPTERS"):
        routers(model)


def test_a_known_router_beside_an_unknown_one_is_refused_too(make_family: Make) -> None:
    """Half a replay would be worse than none."""

    class StrangeRouter(nn.Module):
        """Some other family's."""

    model: Any = make_family("Qwen2Moe")
    model.model.layers[1].mlp.gate = StrangeRouter()
    with pytest.raises(ConfigError, match="router: StrangeRouter"):
        routers(model)


def test_every_adapter_has_a_family_here(make_family: Make, families: tuple[str, ...]) -> None:
    assert {type(routers(make_family(family))[0]).__name__ for family in families} == set(ADAPTERS)


def test_sets_differ_whatever_their_order() -> None:
    one = torch.tensor([[1, 2, 3], [1, 2, 3], [0, 5, 7]])
    other = torch.tensor([[3, 1, 2], [1, 2, 4], [7, 5, 0]])
    assert differ(one, other).tolist() == [False, True, False]
