"""Protocols as data: what they set, which limits they give tasks, and how departures are named."""

import pytest

from t1.config import load_config
from t1.evaluation.benchmarks import BENCHMARKS, PROTOCOLS, PUBLISHED, departures, published_for
from t1.testing.tasks import example_task

T1 = PROTOCOLS["t1"]


def settings(*more):
    return load_config(None, [*T1.settings(), "model.max_context=96000", *more])


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=lambda protocol: protocol.name)
def test_the_configuration_takes_every_setting_of_a_protocol(protocol):
    config = load_config(None, protocol.settings())
    assert config.evaluation.rollouts_per_task == protocol.attempts
    assert protocol.source


def test_a_protocol_that_is_kept_has_no_departures():
    assert departures(T1, settings(), [T1.limit(example_task("a"))], expected=1) == []


def test_every_departure_is_named_with_both_values():
    config = settings("agent.name=terminal", "evaluation.rollouts_per_task=1", "harness.sampling.temperature=1.0")
    found = departures(T1, config, [example_task("a", agent_timeout_s=60)], expected=89)
    assert found == [
        "harness: terminal instead of terminus-2",
        "attempts a task: 1 instead of 3",
        "tasks: 1 instead of 89",
        "temperature: 1.0 instead of 0.1",
        "agent time: 60 s instead of 3600 s",
        "verifier time: 60 s instead of 900 s",
    ]


def test_time_limits_of_a_protocol_change_no_digest_and_those_that_it_leaves_stay():
    task = example_task("a", agent_timeout_s=60)
    limited = T1.limit(task)
    assert (limited.limits.agent_timeout_s, limited.verifier.timeout_s) == (3600, 900)
    assert limited.digest == task.digest and PROTOCOLS["leaderboard"].limit(task) == task


def test_every_published_row_is_of_a_benchmark_and_has_a_source():
    assert {row.benchmark for row in PUBLISHED} == set(BENCHMARKS)
    assert all(0 < row.score < 1 and "arXiv" in row.source for row in PUBLISHED)
    shown = {(row.benchmark, row.score) for row in PUBLISHED if "Qwen3.5" in row.policy}
    assert shown >= {("terminal-bench-2.1", 0.64), ("terminal-bench-2.1", 0.494), ("terminal-bench-2.1", 0.438)}
    assert shown >= {("long-horizon-terminal-bench", 0.279), ("terminal-bench-hard", 0.38)}
    assert published_for(None) == []


def test_every_benchmark_has_a_protocol_and_says_how_to_get_it():
    assert all(one.protocol in PROTOCOLS and "suites/" + one.name in one.download for one in BENCHMARKS.values())
