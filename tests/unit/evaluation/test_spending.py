"""Where tokens, seconds and money went."""

import sqlite3
from dataclasses import asdict

import pytest

from t1.errors import RunError
from t1.evaluation.metrics import evaluate
from t1.evaluation.report import build_report, training_curves, write_report
from t1.evaluation.spending import bias_meter, latencies, read_trials, spending
from t1.rollouts.cost import Prices, total, usage_of
from t1.rollouts.ledger import Entry, Ledger
from t1.testing.runs import STEP, example_failure, example_rollout

PRICES = Prices(output_per_million=1e6, sandbox_per_hour=3600)
STEPS = [{**STEP, "step": i, "num_rollouts": 2.0, "tokens_out": 10, "trial_s": 4.0, "money": 1.5} for i in range(3)]


def a_ledger(path):
    """Two finished trials of one task."""
    ledger = Ledger(path)
    for position, seconds in enumerate((1.0, 3.0)):
        rollout = example_rollout("train-a", member=position, wall_s=seconds)
        ledger.launched(Entry(position, rollout.id, None, 0, None))
        ledger.finished(position, rollout, usage_of(rollout, PRICES), order=position)
    ledger.close()
    return path


def test_stages_hold_sums_means_and_latencies():
    rollouts = [example_rollout("a", wall_s=1.0), example_rollout("b", wall_s=3.0), example_failure("c")]
    found = spending({"sft": rollouts}, STEPS, prices=PRICES)
    sft, rl = found["stages"]["evaluate sft"], found["stages"]["rl"]
    assert (sft["attempts"], sft["tokens_out"]) == (3, 12)
    assert sft["per_attempt"]["trial_s"] == pytest.approx(4 / 3)
    assert sft["money"] == pytest.approx(12 + 4) and sft["latency_s"]["p50"] == 1.0
    assert (rl["attempts"], rl["tokens_out"], rl["money"]) == (6, 30, 4.5)
    assert found["money"] == pytest.approx(20.5)


def test_tasks_are_listed_the_dearest_first():
    rollouts = [example_rollout("cheap", wall_s=1.0), example_rollout("dear", wall_s=9.0)]
    tasks = spending({"rl": rollouts}, [], prices=PRICES)["tasks"]
    assert [row["task"] for row in tasks] == ["dear", "cheap"]


def test_the_ledger_brings_the_tasks_of_training(tmp_path):
    ledger = a_ledger(tmp_path / "ledger.sqlite")
    found = spending({}, STEPS, ledger=ledger)
    (row,) = found["tasks"]
    assert (row["stage"], row["task"], row["attempts"], row["trial_s"]) == ("rl", "train-a", 2, 4.0)
    assert found["stages"]["rl"]["latency_s"]["p50"] == 2.0


def test_rollouts_steps_ledger_and_report_add_up_to_the_same(tmp_path):
    prices = Prices(3.0, 0.5, 1e6, 36.0, 3600)
    ledger, steps, rollouts = Ledger(tmp_path / "ledger.sqlite"), [], []
    for step in range(3):
        batch = [example_rollout("abc"[i], member=step, wall_s=1.0 + i + step) for i in range(2 + step % 2)]
        for rollout in batch:
            position = len(rollouts)
            ledger.launched(Entry(position, rollout.id, None, step, None))
            ledger.finished(position, rollout, usage_of(rollout, prices), order=position)
            ledger.admitted(step, [position])
            rollouts.append(rollout)
        steps.append({"num_rollouts": len(batch), **asdict(total(usage_of(rollout, prices) for rollout in batch))})
    ledger.close()
    found = spending({}, steps, ledger=tmp_path / "ledger.sqlite", prices=prices)
    (stage,) = found["stages"].values()
    for name, wanted in asdict(total(usage_of(rollout, prices) for rollout in rollouts)).items():
        assert wanted > 0 or name in ("queue_s", "engine_s", "sandbox_s", "verifier_s", "tokens_cached"), name
        assert stage[name] == pytest.approx(wanted), name
        assert sum(row[name] for row in found["tasks"]) == pytest.approx(wanted), name
    assert found["money"] == pytest.approx(stage["money"])
    assert sum(row["attempts"] for row in found["tasks"]) == stage["attempts"] == len(rollouts)


def test_a_ledger_is_only_read(tmp_path):
    ledger = a_ledger(tmp_path / "ledger.sqlite")
    before = ledger.read_bytes()
    read_trials(ledger)
    assert ledger.read_bytes() == before
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE x(y)")
    other.close()
    with pytest.raises(RunError, match="ledger"):
        read_trials(tmp_path / "other.sqlite")


def test_nothing_spent_has_no_latency():
    assert latencies([]) == {}
    assert spending({}, []) == {"stages": {}, "tasks": [], "money": 0}


def test_the_meter_of_admission_is_that_of_the_last_step():
    assert bias_meter([STEP, {**STEP, "admitted_share": 0.7}])["admitted_share"] == 0.7
    assert bias_meter([]) == {}


def test_the_page_shows_cost_bias_and_verdict(tmp_path):
    rollouts = {"rl": [example_rollout("a<b>")]}
    check = {"rule": "gap", "grade": "warn", "number": None, "says": "not <measured>", "command": "t1 gap", "look": "x"}
    report = build_report(
        {"rl": evaluate(rollouts["rl"])},
        wall_s=1.0,
        gap=None,
        audit={},
        spending=spending(rollouts, STEPS, prices=PRICES),
        bias=bias_meter([{**STEP, "bias_duration": -0.2}]),
        verdict={"grade": "warn", "says": "with the reservations above", "checks": [check]},
    )
    write_report(tmp_path, report, metrics=STEPS)
    page = (tmp_path / "report.html").read_text()
    for shown in (
        "Cost and latency",
        "dearest",
        "a&lt;b&gt;",
        "-0.2000",
        "not &lt;measured&gt;",
        "<code>t1 gap</code>",
    ):
        assert shown in page


def test_a_meter_that_never_moved_is_not_pictured():
    quiet = {title for title, _ in training_curves(STEPS)}
    for key, what in (
        ("task", "hardness of tasks"),
        ("duration", "duration"),
        ("turns", "turns"),
        ("outcome", "solve rate"),
    ):
        moved = {title for title, _ in training_curves([{**step, f"bias_{key}": -0.1} for step in STEPS])}
        assert moved - quiet == {f"Bias of admission: {what}"}
