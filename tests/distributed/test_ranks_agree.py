"""Many ranks make of a batch what one rank makes of it: metrics, gradients, weights; routes replayed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from t1.testing.ranked import Plan, Report, run, run_all
from t1.training.parallel.launch import on_ranks

TIMEOUT_S = 90.0
SAME = ("loss", "value_loss", "grad_norm", "critic_grad_norm", "gap", "gap_flipped", "explained_variance")
ROUNDS = {"num_minibatches": 2, "epochs": 2}
FEW = {"lengths": (18, 21, 24), "ppo": {"max_pack_tokens": 24}}
ON_TWO: Mapping[str, dict[str, Any]] = {
    "fsdp": {},
    "experts": {"experts": 2},
    "context": {"context": 2},
    "hybrid experts": {"experts": 2, "family": "hybrid"},
    "hybrid context": {"context": 2, "family": "hybrid"},
    "dense context": {"context": 2, "family": "dense"},
    "checkpointing": {"experts": 2, "ppo": {"activation_checkpointing": True}},
    "context checkpointing": {"context": 2, "ppo": {"activation_checkpointing": True}},
    "few": FEW,
    "rounds": {"steps": 2, "ppo": ROUNDS},
    "half precision": {"ppo": {"compute_dtype": "bfloat16"}},
}
ON_FOUR: Mapping[str, dict[str, Any]] = {"both": {"experts": 2, "context": 2}, "experts": {"experts": 4}}


@cache
def started(world: int, names: tuple[str, ...]) -> Mapping[str, list[Report]]:
    """By name of the plan: what each rank reports. One start of the ranks for all of these plans."""
    plans = [Plan(world, **(ON_TWO if world == 2 else ON_FOUR)[name]) for name in names]
    reports = on_ranks(world, run_all, plans, timeout_s=TIMEOUT_S)
    return dict(zip(names, map(list, zip(*reports, strict=True)), strict=True))


def on_two(name: str) -> list[Report]:
    """What each of two ranks reports."""
    names = tuple(ON_TWO)
    return started(2, names[:6] if name in names[:6] else names[6:])[name]


def on_four(name: str) -> list[Report]:
    """The same of four."""
    return started(4, tuple(ON_FOUR))[name]


@cache
def alone(family: str = "moe") -> Report:
    """What one process makes of it."""
    return run(Plan(family=family))


def assert_same(report: Report, reference: Report, *, tolerance: float = 2e-6) -> None:
    """Metrics, log-probabilities and gradients, up to the order of sums."""
    np.testing.assert_allclose(report.logprobs, reference.logprobs, atol=1e-5)
    for ours, theirs in zip(report.metrics, reference.metrics, strict=True):
        for name in SAME:
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4, abs=1e-6), name
    for name, moment in report.moments.items():
        np.testing.assert_allclose(moment, reference.moments[name], atol=tolerance, err_msg=name)


def assert_one_rank_holds_the_weights(reports: list[Report], reference: Report) -> None:
    """The leading rank reports whole weights under their own names, the others none."""
    assert reports[0].weights.keys() == reference.weights.keys()
    for name, weight in reports[0].weights.items():
        np.testing.assert_allclose(weight, reference.weights[name], atol=1e-4, err_msg=name)
    assert all(not report.weights for report in reports[1:])


@pytest.mark.parametrize("name", ["fsdp", "experts", "context", "checkpointing", "context checkpointing"])
def test_two_ranks_have_the_gradients_of_one_with_routes_replayed(name):
    for report in on_two(name):
        assert_same(report, alone())
    assert_one_rank_holds_the_weights(on_two(name), alone())


@pytest.mark.parametrize("name", ON_FOUR)
def test_four_ranks_have_the_gradients_of_one_with_routes_replayed(name):
    for report in on_four(name):
        assert_same(report, alone())
    assert_one_rank_holds_the_weights(on_four(name), alone())


@pytest.mark.parametrize("name", ["hybrid experts", "hybrid context", "dense context"])
def test_other_families_have_them_too(name):
    for report in on_two(name):
        assert_same(report, alone(name.split()[0]), tolerance=1e-5)


def test_a_rank_without_trajectories_keeps_the_others_company():
    reference = run(Plan(**FEW))
    for report in on_two("few"):
        assert_same(report, reference)


def test_several_minibatches_and_epochs_stay_in_step():
    reference = run(Plan(steps=2, ppo=ROUNDS))
    for report in on_two("rounds"):
        for ours, theirs in zip(report.metrics, reference.metrics, strict=True):
            for name in ("loss", "value_loss", "explained_variance"):
                assert ours[name] == pytest.approx(theirs[name], rel=1e-2, abs=1e-4), name
    first, second = (report.metrics for report in on_two("rounds"))
    assert [{k: v for k, v in m.items() if not k.endswith("_s")} for m in first] == [
        {k: v for k, v in m.items() if not k.endswith("_s")} for m in second
    ]


def test_each_rank_holds_its_share_of_weights_and_optimizer():
    whole = alone().bytes
    for name in ("fsdp", "experts"):
        for report in on_two(name):
            for kind, size in report.bytes.items():
                assert size == pytest.approx(whole[kind] / 2, rel=0.02), kind


def test_half_precision_keeps_full_weights_and_stays_near():
    for report in on_two("half precision"):
        assert abs(report.logprobs - alone().logprobs).max() > 1e-4, "nothing was computed in half precision"
        np.testing.assert_allclose(report.logprobs, alone().logprobs, atol=0.1)
        assert {moment.dtype for moment in report.moments.values()} == {np.dtype(np.float32)}
        assert report.metrics[0]["grad_norm"] == pytest.approx(alone().metrics[0]["grad_norm"], rel=0.05)


def test_policy_and_critic_may_have_groups_of_their_own():
    reports = on_ranks(3, run, Plan(2, apart=1), timeout_s=TIMEOUT_S)
    for report in reports:
        assert_same(report, alone())
    assert {name.split(".")[0] for name in reports[0].moments} == {"policy"}
    assert {name.split(".")[0] for name in reports[2].moments} == {"critic"}
