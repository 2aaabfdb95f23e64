"""Arms of an ablation differ in one value, are paired by seed and task, and are no score where their audit failed."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import t

from t1.cli import main
from t1.config import RunConfig, differing_keys, load_config, write_config
from t1.errors import ConfigError, RunError
from t1.evaluation.ablation_report import as_json, difference_rows, to_markdown, to_table, write_ablation
from t1.evaluation.ablations import (
    INTEGRITY,
    KINDS,
    Ablation,
    ArmRun,
    arms_of,
    compare_arms,
    crossed_interval,
    find_run,
    prove_matched,
    read_arm,
    seeded,
)
from t1.evaluation.rules import RULES
from t1.evaluation.verdict import judge, write_verdict
from t1.testing.runs import STEP, example_failure, example_rollout, write_run

BASE = load_config(None, ["rollouts.group_size=2", "rollouts.oversample=1.5", "run.steps=3"])
SUITE, START = Path("suite"), Path("start")


def arm_run(arm: str, seed: int, solved: Mapping[str, float], **changes: Any) -> ArmRun:
    """A finished run of an arm of the reward ablation."""
    config = seeded(arms_of("reward", BASE)[arm], seed, suite=SUITE, start=START)
    steps = [{**STEP, "num_rollouts": 64.0, "solve_rate": 0.1, "mean_passed_assertions": 1.0 + i} for i in range(3)]
    whole = ArmRun(arm, seed, Path(f"{arm}-{seed}"), config, solved, solved, steps, {"normalizer": 4.0})
    return replace(whole, **changes)


def pairs(shift: float, *, num_seeds: int = 3, num_tasks: int = 60, noise: float = 0.1) -> list[tuple[ArmRun, ArmRun]]:
    """Pairs whose second arm solves `shift` more, with noise by seed and task."""
    rng = np.random.default_rng(0)
    made = []
    for seed in range(num_seeds):
        first = {f"t{i}": float(rng.uniform(0.2, 0.6)) for i in range(num_tasks)}
        second = {task: rate + shift + float(rng.normal(0, noise)) for task, rate in first.items()}
        made.append((arm_run("binary", seed, first), arm_run("dense", seed, second)))
    return made


@pytest.mark.parametrize("name", KINDS)
def test_the_arms_of_every_kind_differ_in_its_key_alone(name: str, tmp_path: Path) -> None:
    arms = arms_of(name, BASE)
    assert list(arms) == list(KINDS[name].arms)
    one, other = (seeded(config, 2, suite=SUITE, start=START) for config in arms.values())
    assert set(differing_keys(one, other)) == {KINDS[name].key}
    write_config(one, tmp_path / "config.toml")
    assert load_config(tmp_path / "config.toml") == one, "a resume compares what it is to run with what is written"
    assert (one.run.seed, one.ppo.seed, one.evaluation.seed) == (2, 2, 1002)


def test_what_an_arm_breaks_on_purpose_are_rules_of_the_verdict() -> None:
    assert set(INTEGRITY) <= RULES.keys()
    for kind in KINDS.values():
        assert all(arm in kind.arms and rules <= set(INTEGRITY) for arm, rules in kind.breaks.items())


def test_tito_and_replay_share_the_run_that_has_neither_text_nor_routes() -> None:
    assert arms_of("tito", BASE)["tokens"] == arms_of("replay", BASE)["live"]


def test_carrying_is_the_same_run_in_both_of_its_ablations() -> None:
    assert arms_of("admission", BASE)["carry"] == arms_of("importance", BASE)["lagging"]


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("rewad", RunConfig(), "did you mean reward"),
        ("critic", RunConfig(), "group_size is 1"),
        ("admission", RunConfig(), "oversample is 1"),
        ("importance", RunConfig(), "no rollout is ever older"),
    ],
)
def test_a_question_without_a_meaning_is_refused(name: str, config: RunConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        arms_of(name, config)


def test_a_wrong_kind_is_one_line_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", "tto"]) == 2
    assert "did you mean tito?" in capsys.readouterr().err


@pytest.mark.parametrize("others", [{}, {"reward.kind": "binary", "ppo.lr": 1e-3}])
def test_arms_that_differ_in_nothing_or_in_two_things_are_no_ablation(others: dict[str, Any]) -> None:
    other = load_config(None, [f"{key}={value}" for key, value in others.items()])
    with pytest.raises(ConfigError, match=r"no ablation of reward\.kind"):
        prove_matched(RunConfig(), other, key="reward.kind")


def test_a_difference_that_is_there_is_found_and_its_size_is_right() -> None:
    solve_rate, passed = compare_arms("reward", pairs(0.1)).differences
    assert solve_rate.difference == pytest.approx(0.1, abs=0.03)
    assert solve_rate.ci95[0] < solve_rate.difference < solve_rate.ci95[1]
    assert solve_rate.seen and solve_rate.num_tasks == 60 and list(solve_rate.by_seed) == [0, 1, 2]
    assert solve_rate.difference == pytest.approx(solve_rate.means[1] - solve_rate.means[0])
    assert passed.measure == "passed_share"


def test_arms_that_are_alike_are_not_told_apart() -> None:
    found = compare_arms("reward", pairs(0.0)).differences[0]
    assert not found.seen
    assert "none seen" in difference_rows(compare_arms("reward", pairs(0.0)))[2]


def test_no_difference_on_any_task_is_not_certainty() -> None:
    found = compare_arms("reward", pairs(0.0, noise=0.0, num_tasks=20)).differences[0]
    assert found.difference == 0 and found.ci95[1] > 0.1 and found.ci95[0] < -0.1


@pytest.mark.parametrize("num_seeds", [2, 3, 8])
def test_the_interval_over_seeds_and_tasks_covers_what_a_new_experiment_gives(num_seeds: int) -> None:
    """Crossed effects of seeds and 40 tasks around 0: about 95 of 100 intervals hold 0, however few the seeds are."""
    rng = np.random.default_rng(1)
    held = narrow = 0
    for _ in range(400):
        effects = rng.normal(0, 0.05, (num_seeds, 1)) + rng.normal(0, 0.1, (1, 40))
        values = effects + rng.normal(0, 0.3, (num_seeds, 40))
        low, high = crossed_interval(values)
        held += low <= 0 <= high
        columns = values.mean(axis=0)
        narrow += abs(values.mean()) <= 1.96 * columns.std() / np.sqrt(40)
    assert 372 <= held <= 400
    assert narrow < 360


def test_one_seed_gives_the_interval_of_its_tasks() -> None:
    values = np.random.default_rng(0).normal(0.2, 1.0, (1, 30))
    low, high = crossed_interval(values)
    expected = t.ppf(0.975, 29) * values.std(ddof=1) / np.sqrt(30)
    assert (low, high) == pytest.approx((values.mean() - expected, values.mean() + expected))


def test_only_tasks_that_all_runs_have_a_score_of_are_compared() -> None:
    (one, other), *rest = pairs(0.1)
    lacking = replace(other, solved={task: rate for task, rate in other.solved.items() if task != "t7"})
    found = compare_arms("reward", [(one, lacking), *rest]).differences
    assert [difference.num_tasks for difference in found] == [59, 60]


def test_a_pair_whose_audit_failed_is_shown_and_not_scored() -> None:
    (one, other), *rest = pairs(0.1)
    spoiled = replace(other, failed={"drift": "3 of 9 trained tokens differ", "bias": "biased"})
    ablation = compare_arms("reward", [(one, spoiled), *rest])
    assert ablation.unsound == {"dense 0": {"drift": "3 of 9 trained tokens differ"}}
    assert list(ablation.differences[0].by_seed) == [1, 2]
    assert "dense 0: drift: 3 of 9 trained tokens differ" in to_markdown(ablation)
    assert "audit failed" in printed(ablation)
    assert compare_arms("reward", [(one, spoiled)]).differences == ()


def test_a_text_stack_may_fail_the_audit_that_it_is_there_to_fail_and_no_other() -> None:
    failed = {"drift": "of course", "tampering": "never"}
    run = replace(arm_run("binary", 0, {}), arm="text", failed=failed)
    assert run.unsound(KINDS["tito"]) == {"tampering": "never"}
    assert replace(run, arm="tokens").unsound(KINDS["tito"]) == failed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pins": {"normalizer": 5.0}}, "another suite or normalizer"),
        ({"steps": [STEP, STEP]}, "budgets do not match"),
        ({"config": seeded(arms_of("reward", BASE)["dense"], 1, suite=SUITE, start=START)}, "run.seed"),
    ],
)
def test_runs_that_do_not_match_are_refused(change: dict[str, Any], message: str) -> None:
    ((one, other),) = pairs(0.1, num_seeds=1)
    with pytest.raises(RunError, match=message):
        compare_arms("reward", [(one, replace(other, **change))])


def test_a_finished_run_is_read_with_failures_apart(tmp_path: Path) -> None:
    heldout = [example_rollout("a", passed=4), example_rollout("b", passed=1), example_failure("c")]
    path = write_run(tmp_path / "dense", evaluated={"rl": heldout}, steps=[STEP] * 3)
    (path / "pins.json").write_text(json.dumps({"normalizer": 4.0}))
    with pytest.raises(RunError, match="did not go to its end"):
        read_arm(path, "dense")
    write_verdict(judge(path))
    run = read_arm(path, "dense")
    assert (dict(run.solved), dict(run.passed)) == ({"a": 1.0, "b": 0.0}, {"a": 1.0, "b": 0.25})
    assert len(run.steps) == 3 and run.mean("gap") == pytest.approx(1e-6) and run.mean("nothing") is None
    assert find_run(tmp_path, load_config(path / "config.toml")) == path
    assert find_run(tmp_path, BASE) is None


def test_what_was_found_is_written_three_ways(tmp_path: Path) -> None:
    ablation = compare_arms("reward", pairs(0.1))
    page = write_ablation(tmp_path, ablation)
    assert "reward.svg" in page.read_text() and "reward.kind" in page.read_text()
    stored = json.loads((tmp_path / "reward.json").read_text())
    assert (
        stored == json.loads(json.dumps(as_json(ablation)))
        and stored["seeds"] == [0, 1, 2]
        and len(stored["runs"]) == 6
    )
    assert stored["runs"][0]["rollouts"] == 192
    picture = (tmp_path / "reward.svg").read_text()
    assert "<svg" in picture
    write_ablation(tmp_path, ablation)
    assert (tmp_path / "reward.svg").read_text() == picture, "the same numbers give the same bytes"


def printed(ablation: Ablation) -> str:
    """The table as the terminal shows it."""
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(to_table(ablation))
    return console.export_text()
