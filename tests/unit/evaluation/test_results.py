"""Rows, summaries and documents of an evaluation."""

import io
import json
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from t1.config import load_config
from t1.errors import ConfigError, RunError
from t1.evaluation.atif import trial_name, write_trajectories
from t1.evaluation.attempts import compare_tasks
from t1.evaluation.benchmarks import BENCHMARKS, published_for
from t1.evaluation.documents import comparison, comparison_text, results_markdown, results_table
from t1.evaluation.endpoints import Address
from t1.evaluation.remote import TALKATIVE, evaluate_endpoint
from t1.evaluation.results import Conditions, read_attempts, summarize, tallies, to_attempt, write_results
from t1.rollouts.cost import Prices
from t1.testing.runs import example_failure, example_rollout
from t1.testing.sandboxes import FakeSandboxProvider
from t1.testing.tasks import example_task
from t1.types import RewardSource, StopReason

PRICES = Prices(output_per_million=1e6)
CONDITIONS = Conditions(
    policy="runs/x/rl",
    policy_digest="p1",
    harness="terminal",
    sampling={"temperature": 1.0},
    limits={"max_turns": 10},
    tasks="suites/basics",
    suite_digest="s1",
    attempts=2,
    seed=1000,
    versions={"t1": "0.1.0"},
    git_commit="abc",
)
ROLLOUTS = [
    example_rollout("a", member=0, passed=4),
    example_rollout("a", member=1, passed=1, stop=StopReason.TIME_LIMIT),
    example_rollout("b", member=0, passed=0, report=False),
    example_failure("b", member=1),
    example_failure("c"),
]
ATTEMPTS = [to_attempt(rollout, PRICES) for rollout in ROLLOUTS]


def test_failures_stand_apart_from_scores():
    summary = summarize(ATTEMPTS)
    assert (summary["num_tasks"], summary["num_attempts"]) == (2, 3)
    assert summary["failures"] == {"SandboxVanished": 2}
    assert summary["unscored_tasks"] == ["c"] and summary["relaunched"] == 4
    assert summary["pass_at"]["1"]["mean"] == 0.25
    assert summary["pass_at"]["2"] == {"mean": 1.0, "ci95": summary["pass_at"]["2"]["ci95"], "num_tasks": 1}
    assert summary["pass_hat"]["2"]["mean"] == 0.0


def test_assertions_are_a_mean_over_attempts_that_have_a_report():
    assert summarize(ATTEMPTS)["passed_assertions"]["mean"] == 2.5


def test_time_outs_tokens_and_money_are_counted():
    summary = summarize(ATTEMPTS)
    assert summary["timed_out"]["mean"] == pytest.approx(1 / 3)
    assert summary["tokens_out"]["mean"] == 6
    assert summary["money"] == 18 and summary["money_per_solve"] == 18
    assert summary["wall_s"]["mean"] == 2.0


def test_a_summary_of_nothing_but_failures_has_no_score():
    summary = summarize([ATTEMPTS[-1]])
    assert summary["pass_at"] == {} and summary["turns"] is None and summary["num_tasks"] == 0
    Console(file=io.StringIO()).print(results_table({"conditions": asdict(CONDITIONS), "summary": summary}))


def test_results_are_read_back_as_they_were_written(tmp_path):
    results = write_results(tmp_path, ATTEMPTS, CONDITIONS)
    assert read_attempts(tmp_path) == (ATTEMPTS, CONDITIONS)
    assert json.loads((tmp_path / "results.json").read_text()) == results


def test_every_row_names_policy_harness_and_suite(tmp_path):
    write_results(tmp_path, ATTEMPTS, CONDITIONS)
    rows = pq.read_table(tmp_path / "attempts.parquet").to_pylist()
    assert {(row["policy"], row["harness"], row["suite_digest"]) for row in rows} == {("runs/x/rl", "terminal", "s1")}


def test_what_holds_no_results_is_refused_by_name(tmp_path):
    with pytest.raises(RunError, match="no results of `t1 eval --out`"):
        read_attempts(tmp_path)


def test_a_comparison_names_the_tasks_and_whatever_else_differed():
    before = [to_attempt(example_rollout(task, passed=0)) for task in "ab"]
    after = [to_attempt(example_rollout("a")), to_attempt(example_rollout("b", passed=0))]
    pair = compare_tasks(tallies(before), tallies(after))
    earlier = asdict(replace(CONDITIONS, policy="runs/x/sft", harness="terminus-2"))
    found = comparison(pair, earlier, asdict(CONDITIONS))
    assert found["gained"] == ["a"] and found["also_differs"] == {"harness": ["terminus-2", "terminal"]}
    assert "+50.0 points over runs/x/sft on 2 shared tasks" in comparison_text(found)
    page = results_markdown(
        {"conditions": asdict(CONDITIONS), "summary": summarize(after)}, against=json.loads(json.dumps(found))
    )
    assert "**Not only the policy differs:** harness." in page and "Gained: a." in page


def test_foreign_names_open_no_markup_in_markdown():
    hostile = to_attempt(example_rollout("<script>|**x**\n# y"))
    lost = to_attempt(example_failure("a|b"))
    page = results_markdown({"conditions": asdict(CONDITIONS), "summary": summarize([hostile, lost])})
    assert "a\\|b" in page and "<script>" not in page


def test_every_row_carries_the_conditions_it_was_made_under(tmp_path):
    write_results(tmp_path, ATTEMPTS, CONDITIONS)
    [sampling] = set(pq.read_table(tmp_path / "attempts.parquet")["sampling"].to_pylist())
    row = pq.read_table(tmp_path / "attempts.parquet").to_pylist()[0]
    assert json.loads(sampling) == {"temperature": 1.0} and json.loads(row["versions"]) == {"t1": "0.1.0"}
    assert (row["policy_digest"], row["suite_digest"], row["harness"]) == ("p1", "s1", "terminal")
    assert read_attempts(tmp_path)[1] == CONDITIONS


def test_a_verifiers_own_reward_counts_where_it_decided_and_nothing_was_held_against_the_agent():
    half = example_rollout("a", passed=0, report=False)
    half = replace(half, outcome=replace(half.outcome, verdict=replace(half.outcome.verdict, own_reward=0.5)))
    zeroed = replace(half, outcome=replace(half.outcome, reward_source=RewardSource.TAMPERED))
    assert [to_attempt(one).own_reward for one in (half, zeroed, example_rollout("b"))] == [0.5, 0.0, None]
    assert summarize([to_attempt(half), to_attempt(zeroed)])["own_reward"]["mean"] == 0.25
    assert summarize([to_attempt(example_rollout("b"))])["own_reward"] is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "Not checked: `--trained`"),
        (
            {"trained": "runs/x", "num_trained": 9, "num_tasks": 2, "seen": []},
            "0 of 2 tasks are among the 9 of runs/x.",
        ),
        (
            {"trained": "runs/x", "num_trained": 9, "num_tasks": 2, "seen": [["a", "the same files as b"]]},
            "1 of 2 tasks are among the 9 of runs/x (files, instructions, first prompts): a: the same files as b.",
        ),
    ],
)
def test_the_page_says_whether_the_policy_was_trained_on_these_tasks(found, said):
    results = {"conditions": asdict(CONDITIONS), "summary": summarize(ATTEMPTS), "exposure": found}
    assert said in results_markdown(results).replace("\\", "")


def test_published_scores_stand_apart_with_their_source():
    bench = BENCHMARKS["terminal-bench-2.1"]
    results = {"conditions": asdict(CONDITIONS), "summary": summarize(ATTEMPTS)}
    page = results_markdown(results, published=published_for(bench))
    measured, published = page.split("## Published by others, not measured here")
    assert "64.0%" in published and "49.4%" in published and "43.8%" in published and "preprint" in published
    assert "64.0%" not in measured
    assert "Published" not in results_markdown(results, published=published_for(None))


def test_trajectories_are_written_for_every_attempt_and_failures_carry_no_reward(tmp_path):
    instructions = dict.fromkeys("abc", "do <it>")
    write_trajectories(tmp_path, ROLLOUTS, ATTEMPTS, instructions, CONDITIONS)
    trials = sorted(path.name for path in (tmp_path / "t1-eval").iterdir())
    assert trials == sorted(trial_name(rollout) for rollout in ROLLOUTS)
    good = json.loads((tmp_path / "t1-eval" / "a__0" / "result.json").read_text())
    lost = json.loads((tmp_path / "t1-eval" / "c__0" / "result.json").read_text())
    assert good["verifier_result"]["rewards"]["reward"] == 1.0
    assert "verifier_result" not in lost and lost["exception_info"]["exception_type"] == "SandboxVanished"
    steps = json.loads((tmp_path / "t1-eval" / "a__0" / "agent" / "trajectory.json").read_text())["steps"]
    assert [step["source"] for step in steps] == ["user", "agent", "agent"]


def test_no_name_of_a_task_leaves_the_directory_of_trajectories():
    assert "/" not in trial_name(example_rollout("../../etc/passwd")) and trial_name(example_rollout(".."))[:2] != ".."


# --------------------------------------------------------------------------------------------------------------------
# A whole evaluation of a remote model


class _Model(BaseHTTPRequestHandler):
    """Answers every chat with the same two turns."""

    def do_POST(self):
        messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
        command = "exit" if messages[-1]["content"] == "done" else "echo done > /app/x && cat /app/x"
        body = {"choices": [{"message": {"content": f"```bash\n{command}\n```"}, "finish_reason": "stop"}]}
        payload = json.dumps(body | {"usage": {"prompt_tokens": 50, "completion_tokens": 5}, "model": "m-1"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *words):
        """Quiet."""


@pytest.fixture
def model():
    """The address of a model that knows the answer."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Address.parse(f"openai:m@http://127.0.0.1:{server.server_port}/v1")
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_remote_model_is_measured_with_the_servers_own_counts(model):
    passed = {"/logs/verifier/reward.txt": b"1"}
    provider = FakeSandboxProvider(verify=lambda files: passed)
    config = load_config(None, [*TALKATIVE, "cost.output_per_million=1000000"])
    rollouts, spent, name = evaluate_endpoint(
        config, model, [example_task("one"), example_task("two")], normalizer=1.0, provider=provider
    )
    assert [rollout.outcome.failure for rollout in rollouts] == [None, None]
    assert {len(rollout.turns) for rollout in rollouts} == {2} and name == "m-1"
    assert [(usage.tokens_in, usage.tokens_out, round(usage.money)) for usage in spent] == [(100, 10, 10)] * 2
    assert all(rollout.outcome.solved for rollout in rollouts)


def test_an_endpoint_with_a_foreign_agent_is_refused(model):
    config = load_config(None, ["agent.name=terminus-2"])
    with pytest.raises(ConfigError, match="an endpoint works with `terminal`"):
        evaluate_endpoint(config, model, [], normalizer=1.0)


def test_measuring_a_remote_model_needs_no_torch():
    script = "import sys, t1.evaluation.remote, t1.cli.eval; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60, cwd=Path(__file__).parent).returncode == 0
