"""A sharded run goes on where it stopped, under any layout, and its policy is a Hugging Face checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from t1.errors import InfrastructureError
from t1.testing.ranked import Plan, Report, run, run_all
from t1.training.parallel.launch import on_ranks

TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> tuple[Path, list[list[Report]]]:
    """A checkpoint after one step, and by rank: that step's report, that of two in one go, that of one more."""
    path = tmp_path_factory.mktemp("checkpoints") / "step-000001"
    plans = [Plan(2, 2, save=str(path)), Plan(2, 2, steps=2), Plan(2, 2, load=str(path))]
    return path, on_ranks(2, run_all, plans, timeout_s=TIMEOUT_S)


def test_a_resumed_run_is_bit_equal_to_one_that_never_stopped(stopped):
    """Case P3."""
    for _, in_one_go, resumed in stopped[1]:
        unstopped = {k: v for k, v in in_one_go.metrics[1].items() if not k.endswith("_s")}
        assert {k: v for k, v in resumed.metrics[0].items() if not k.endswith("_s")} == unstopped
        for name, moment in resumed.moments.items():
            np.testing.assert_array_equal(moment, in_one_go.moments[name], err_msg=name)


@pytest.mark.parametrize(("world", "experts"), [(1, 1), (4, 2)])
def test_it_goes_on_under_another_layout(stopped, world, experts):
    path, reports = stopped
    plan = Plan(world, experts, load=str(path), sharded=True)
    for report in on_ranks(world, run, plan, timeout_s=TIMEOUT_S):
        assert_same_step(report, reports[0][2])


def test_it_goes_on_in_one_process(stopped):
    path, reports = stopped
    assert_same_step(run(Plan(load=str(path))), reports[0][2])


def test_ranks_go_on_where_one_process_stopped(tmp_path):
    path = tmp_path / "step-000001"
    run(Plan(save=str(path)))
    alone = run(Plan(load=str(path)))
    for report in on_ranks(2, run, Plan(2, 2, load=str(path)), timeout_s=TIMEOUT_S):
        assert_same_step(report, alone)


def assert_same_step(report: Report, other: Report) -> None:
    """The same policy to begin with, and the same moments after one more step."""
    np.testing.assert_allclose(report.logprobs, other.logprobs, atol=1e-5)
    for name, moment in report.moments.items():
        np.testing.assert_allclose(moment, other.moments[name], atol=2e-6, err_msg=name)


def test_transformers_reads_the_policy(stopped):
    path, reports = stopped
    model = AutoModelForCausalLM.from_pretrained(path)
    weights = reports[0][0].weights
    assert model.state_dict().keys() == weights.keys()
    for name, weight in model.state_dict().items():
        np.testing.assert_array_equal(weight.numpy(), weights[name], err_msg=name)


def test_a_damaged_shard_is_refused_by_every_rank(stopped, tmp_path):
    damaged = tmp_path / "step-000001"
    for file in (file for file in stopped[0].rglob("*") if file.is_file()):
        copy = damaged / file.relative_to(stopped[0])
        copy.parent.mkdir(parents=True, exist_ok=True)
        content = file.read_bytes()
        copy.write_bytes(content if "distcp" not in file.name else content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InfrastructureError, match=r"CheckpointError.*not as it was written"):
        on_ranks(2, run, Plan(2, 2, load=str(damaged)), timeout_s=TIMEOUT_S)
