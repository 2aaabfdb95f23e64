"""A verdict fails what is wrong with a run, passes what is not, and says where to look."""

import io
import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from t1.cli import main
from t1.evaluation.rules import RULES, Check, Grade
from t1.evaluation.verdict import judge, verdict_table, write_verdict
from t1.rollouts.store import write_step
from t1.testing.runs import STEP, example_failure, example_rollout, write_run
from t1.tito import assemble


def check_of(run: Path, rule: str) -> Check:
    """The one check of a rule that must apply."""
    (check,) = judge(run, rule=rule).checks
    return check


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """A run that nothing is wrong with."""
    heldout = [example_rollout(f"held-{i:03}", passed=4 * (i % 2)) for i in range(400)]
    return write_run(tmp_path_factory.mktemp("sound") / "run", evaluated={"rl": heldout})


def test_a_sound_run_passes_every_rule(sound):
    verdict = judge(sound)
    assert {check.rule: check.grade for check in verdict.checks if check.grade is not Grade.PASS} == {}
    assert {check.rule for check in verdict.checks} == RULES.keys() - {"pairing"}
    assert verdict.exit_code == 0


def test_every_check_names_a_command_that_runs_and_shows_the_same_number(sound, capsys):
    for check in judge(sound).checks:
        command = shlex.split(check.command)
        assert command[0] == "t1" and check.look
        if command[1] == "verdict":
            assert main([*command[1:], "--json"]) == 0
            (again,) = json.loads(capsys.readouterr().out)["checks"]
            assert again["number"] == check.number


def test_a_trained_token_that_was_not_sampled_fails_drift(tmp_path):
    run = write_run(tmp_path / "run")
    rollout = example_rollout("c")
    (trajectory,) = assemble(rollout.id, rollout.turns)
    tokens = trajectory.tokens.copy()
    tokens[np.flatnonzero(trajectory.mask)[0]] += 1
    write_step(run / "rollouts" / "rl-00001.parquet", [rollout], [replace(trajectory, tokens=tokens)])
    assert check_of(run, "drift").grade is Grade.FAIL
    assert check_of(run, "findings").grade is Grade.FAIL
    assert judge(run).exit_code == 1


@pytest.mark.parametrize(("gap", "grade"), [(0.001, "pass"), (0.03, "warn"), (0.06, "fail"), (None, "warn")])
def test_a_gap_is_graded_by_the_published_one_and_by_the_runs_own_alarm(tmp_path, gap, grade):
    run = write_run(tmp_path / "run", steps=[{**STEP, "gap": gap}] * 4)
    assert check_of(run, "gap").grade == grade


def test_an_alarm_that_rang_once_is_not_forgotten_in_the_mean(tmp_path):
    run = write_run(tmp_path / "run", steps=[{**STEP, "gap_alarm": "stale_cache"}] + [STEP] * 30)
    check = check_of(run, "gap")
    assert check.grade is Grade.WARN and "stale_cache" in check.details[0]


def test_a_capture_without_a_row_for_every_token_fails_routing(tmp_path):
    run = write_run(tmp_path / "run", trained=[example_rollout("a"), example_rollout("b", routed=False)])
    check = check_of(run, "routing")
    assert check.grade is Grade.FAIL and check.number < 1


def test_routing_does_not_apply_to_a_dense_policy(tmp_path):
    run = write_run(tmp_path / "run", trained=[example_rollout("a", routed=False)], evaluated={}, num_experts=None)
    assert judge(run, rule="routing").checks == ()


@pytest.mark.parametrize(("fallbacks", "grade"), [(0, "pass"), (4, "warn"), (30, "fail")])
def test_rewards_that_fell_back_are_counted(tmp_path, fallbacks, grade):
    trained = [example_rollout("a", member=i, report=i >= fallbacks) for i in range(100)]
    check = check_of(write_run(tmp_path / "run", trained=trained, evaluated={}), "fallback")
    assert check.grade == grade
    assert not fallbacks or "no ctrf.json" in check.details[0]


def test_tampering_warns_and_fails_where_it_counts_as_solved(tmp_path):
    tried = write_run(tmp_path / "tried", trained=[example_rollout("a", passed=1, tampered=True)])
    paid = write_run(tmp_path / "paid", trained=[example_rollout("a", tampered=True)])
    assert check_of(tried, "tampering").grade is Grade.WARN
    assert check_of(paid, "tampering").grade is Grade.FAIL
    assert "/tests/conftest.py" in check_of(paid, "tampering").details[0]


@pytest.mark.parametrize(("meter", "grade"), [(-0.02, "pass"), (-0.1, "warn"), (-0.4, "fail")])
def test_the_largest_bias_is_judged_whatever_its_sign(tmp_path, meter, grade):
    """Case B2."""
    steps = [{**STEP, "admitted_share": 0.7, "bias_task": meter}]
    assert check_of(write_run(tmp_path / "run", steps=steps), "bias").grade == grade


def test_a_lag_beyond_what_is_allowed_fails(tmp_path):
    assert check_of(write_run(tmp_path / "run", steps=[{**STEP, "lag_max": 2.0}]), "lag").grade is Grade.FAIL


def test_failures_are_counted_by_kind_and_tasks_without_a_score_are_named(tmp_path):
    evaluated = {"rl": [example_rollout(f"h{i}") for i in range(99)] + [example_failure("lost")]}
    check = check_of(write_run(tmp_path / "run", evaluated=evaluated), "failures")
    assert check.grade is Grade.WARN
    assert any("SandboxVanished" in line for line in check.details)
    assert "no score: eval-rl lost" in check.details


@pytest.mark.parametrize(("fit", "grade"), [(0.5, "pass"), (0.1, "warn"), (-0.1, "fail")])
def test_a_critic_worse_than_a_constant_fails(tmp_path, fit, grade):
    steps = [{**STEP, "explained_variance": -5.0}] * 2 + [{**STEP, "explained_variance": fit}] * 5
    assert check_of(write_run(tmp_path / "run", steps=steps), "value_fit").grade == grade


def test_a_number_that_is_not_finite_fails(tmp_path):
    run = write_run(tmp_path / "run", steps=[{**STEP, "loss": float("nan")}])
    check = check_of(run, "finite")
    assert check.grade is Grade.FAIL and check.details == ("step 0: loss",)


def test_an_evaluated_task_that_was_trained_on_fails_by_digest(tmp_path):
    check = check_of(
        write_run(tmp_path / "run", evaluated={"rl": [example_rollout("a"), example_rollout("h")]}), "contamination"
    )
    assert check.grade is Grade.FAIL and check.number == 1


def test_an_evaluated_task_with_a_trained_prompt_fails_under_another_name_and_digest(tmp_path):
    copied = replace(example_rollout("a"), id=replace(example_rollout("a").id, task="renamed"), task_digest="another")
    check = check_of(write_run(tmp_path / "run", evaluated={"rl": [copied]}), "contamination")
    assert check.grade is Grade.FAIL and "renamed is a" in check.details[0]


def test_stages_measured_on_other_tasks_fail_pairing(tmp_path):
    one, other = [example_rollout(f"h{i}") for i in range(10)], [example_rollout(f"g{i}") for i in range(10)]
    run = write_run(tmp_path / "run", evaluated={"sft": one, "rl": other})
    assert check_of(run, "pairing").grade is Grade.FAIL
    changed = [replace(rollout, task_digest="edited") for rollout in one[:1]] + one[1:]
    edited = write_run(tmp_path / "edited", evaluated={"sft": one, "rl": changed})
    assert "changed: h0" in check_of(edited, "pairing").details


def test_few_tasks_warn_of_a_wide_interval(tmp_path):
    run = write_run(
        tmp_path / "run", evaluated={"rl": [example_rollout(f"h{i}", passed=4 * (i % 2)) for i in range(10)]}
    )
    assert check_of(run, "precision").grade is Grade.WARN


def test_changed_files_warn_that_the_code_cannot_be_found_again(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "environment.json").write_text(json.dumps({"git_commit": "0123456789abcdef+"}))
    assert check_of(run, "provenance").grade is Grade.WARN


def test_rules_of_ppo_do_not_apply_to_a_run_without_it(tmp_path):
    verdict = judge(write_run(tmp_path / "run", steps=[]))
    assert {"gap", "bias", "lag", "value_fit", "finite"}.isdisjoint(check.rule for check in verdict.checks)


def test_the_verdict_is_kept_in_the_run_and_shown_as_a_table(tmp_path):
    run = write_run(tmp_path / "run", trained=[example_rollout("a", tampered=True)])
    verdict = judge(run)
    stored = json.loads(write_verdict(verdict).read_text())
    assert stored == verdict.as_dict() and stored["grade"] == "fail"
    console = Console(file=io.StringIO(), width=100)
    console.print(verdict_table(stored))
    shown = console.file.getvalue()
    assert "tampering" in shown and "--rule tampering" in shown and "cannot be trusted" in shown


def test_the_command_exits_with_1_on_a_failure_and_strictly_on_a_warning(tmp_path, sound, capsys):
    failed = write_run(tmp_path / "failed", trained=[example_rollout("a", tampered=True)])
    warned = write_run(tmp_path / "warned", trained=[example_rollout("a", passed=1, tampered=True)])
    assert main(["verdict", str(failed)]) == 1
    assert main(["verdict", str(warned)]) == 0
    assert main(["verdict", str(warned), "--strict"]) == 1
    assert main(["verdict", str(sound), "--strict", "--json"]) == 0
    assert main(["verdict", str(sound), "--rule", "luck"]) == 2
    assert main(["verdict", str(tmp_path)]) == 2
    assert "Traceback" not in capsys.readouterr().err
