"""The report: what programs and people read at the end of a run."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from t1.evaluation.charts import curve, moving_average
from t1.evaluation.metrics import evaluate
from t1.evaluation.report import build_report, pick_examples, report_table, training_curves, write_report
from t1.types import (
    AssertionResult,
    AssertionStatus,
    Outcome,
    RewardSource,
    Rollout,
    RolloutId,
    StopReason,
    Verdict,
)

NUM_TASKS = 40
INSTRUCTIONS = {f"t{i:02}": f"Write <b>oak</b> & 'elm' into out{i}.txt." for i in range(NUM_TASKS)}


def a_stage(num_solved: int) -> list[Rollout]:
    """Rollouts of a policy that solves the first `num_solved` tasks."""
    rollouts = []
    for i, task in enumerate(INSTRUCTIONS):
        status = AssertionStatus.PASSED if i < num_solved else AssertionStatus.FAILED
        verdict = Verdict((AssertionResult("content <right>", status),), solved=i < num_solved)
        outcome = Outcome(StopReason.SUBMITTED, verdict, float(i < num_solved), RewardSource.ASSERTIONS)
        rollouts.append(Rollout(RolloutId(task, 0, 0), "digest", (), outcome))
    return rollouts


ROLLOUTS = {"base": a_stage(0), "sft": a_stage(16), "rl": a_stage(36)}
REPORT = build_report(
    {name: evaluate(rollouts) for name, rollouts in ROLLOUTS.items()},
    wall_s=800.0,
    gap=0.011,
    audit={"loss_region_drift": 0, "findings": {}},
)


class Page(HTMLParser):
    """Collects the elements of a page and what it would load from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href") and value]


def test_the_report_has_the_promised_keys(tmp_path: Path):
    write_report(tmp_path, REPORT)
    report = json.loads((tmp_path / "report.json").read_text())
    assert list(report["stages"]) == ["base", "sft", "rl"]
    for stage in report["stages"].values():
        promised = {"solve_rate", "ci95", "num_tasks", "mean_passed_assertions", "mean_turns"}
        assert promised | {"mean_tokens", "mean_seconds"} <= stage.keys()
    assert {"rl_share_of_gain", "wall_s", "gap", "audit"} <= report.keys()
    assert report["rl_share_of_gain"] == pytest.approx(20 / 36)
    assert report["comparisons"]["rl_over_sft"]["disjoint"]


def test_the_page_needs_nothing_beside_it_and_escapes_what_agents_write(tmp_path: Path):
    metrics = [{"stage": "rl", "step": i, "reward": i / 10, "gap": 0.01} for i in range(5)]
    write_report(tmp_path, REPORT, metrics=metrics, examples=pick_examples(ROLLOUTS, INSTRUCTIONS))
    text = (tmp_path / "report.html").read_text()
    page = Page(text)
    assert all(link.startswith("#") for link in page.links)
    assert "script" not in page.tags and "b>oak" not in text.replace("&lt;b&gt;oak", "")
    assert "&lt;b&gt;oak" in text and "content &lt;right&gt;" in text
    assert page.tags.count("svg") == 3
    assert "prefers-color-scheme" in text


def test_no_two_pictures_share_an_id(tmp_path: Path):
    metrics = [{"step": i, "reward": i / 10, "gap": 0.01, "solve_rate": 0.5} for i in range(5)]
    write_report(tmp_path, REPORT, metrics=metrics)
    text = (tmp_path / "report.html").read_text()
    ids = [part.split('"')[0] for part in text.split(' id="')[1:]]
    assert len(ids) == len(set(ids)) > 50


def test_curves_come_from_the_metrics_that_are_there():
    metrics = [{"stage": "sft", "step": i, "loss": 1.0} for i in range(3)]
    metrics += [{"stage": "rl", "step": i, "reward": 0.5, "explained_variance": None} for i in range(3)]
    assert [title for title, _ in training_curves(metrics)] == ["SFT: loss", "Mean reward"]


def test_a_picture_is_the_same_for_the_same_numbers_and_has_no_fixed_colours():
    picture = curve([0, 1, 2], [1.0, 2.0, 3.0], "reward")
    assert picture == curve([0, 1, 2], [1.0, 2.0, 3.0], "reward")
    assert "var(--rl)" in picture and "fill: #" not in picture and "stroke: #" not in picture


def test_a_moving_average_keeps_the_length_and_a_constant():
    assert moving_average([2.0] * 7, 3) == [2.0] * 7
    assert moving_average([0.0, 3.0, 6.0], 3) == [1.5, 3.0, 4.5]


def test_examples_show_a_gain_first_and_a_failure_too():
    examples = pick_examples(ROLLOUTS, INSTRUCTIONS, num_tasks=3)
    assert [example.stage for example in examples] == ["base", "sft", "rl"] * 3
    assert [example.solved for example in examples[:3]] == [False, False, True]
    assert not examples[-1].solved


def test_examples_without_shared_tasks_are_none():
    other = [replace(rollout, id=RolloutId("other", 0, 0)) for rollout in ROLLOUTS["base"][:1]]
    assert pick_examples({"base": other, "rl": ROLLOUTS["rl"]}, INSTRUCTIONS) == []
    assert pick_examples({}, INSTRUCTIONS) == []


def test_a_half_finished_run_can_be_reported(tmp_path: Path):
    report = build_report({"base": evaluate([])}, wall_s=1.0, gap=None, audit={})
    write_report(tmp_path, report)
    assert report["rl_share_of_gain"] is None
    assert "not measured" in (tmp_path / "report.html").read_text()


def test_the_terminal_table_names_every_stage():
    console = Console(width=120, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as shown:
        console.print(report_table(REPORT))
    assert all(word in shown.get() for word in ("base", "sft", "rl", "90.0%", "RL earned 56%"))
