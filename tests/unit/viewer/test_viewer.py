"""The viewer's server: rows, findings, tokens, and what it refuses."""

import numpy as np
import pytest
from starlette.testclient import TestClient

from t1.errors import RunError
from t1.rollouts.store import write_step
from t1.rollouts.token_stats import TokenStats, tokens_crc, write_token_stats
from t1.types import (
    AssertionResult,
    AssertionStatus,
    Boundary,
    Case,
    FinishReason,
    Outcome,
    RewardSource,
    Rollout,
    RolloutId,
    StopReason,
    Trajectory,
    Turn,
    Verdict,
)
from t1.viewer import app, find_runs
from t1.viewer.detail import HEAD, TAIL, cut
from t1.viewer.findings import Findings
from t1.viewer.index import Query

HOSTILE = "<script>x()</script>\x1b]0;t\x07\x1b[31mred\ud800" + "z" * 100_000


def made(member, observation="ok", solved=True, logprob=-0.5):
    """A rollout of one turn and its trajectory."""
    ident = RolloutId("a/b", 0, member)
    prompt, completion = np.array([1, 2], np.int32), np.array([3, 4], np.int32)
    logprobs, versions = np.full(2, logprob, np.float32), np.zeros(2, np.int32)
    turn = Turn(prompt, completion, logprobs, versions, FinishReason.STOP, action="ls", observation=observation)
    status = AssertionStatus.PASSED if solved else AssertionStatus.FAILED
    verdict = Verdict((AssertionResult("it is there", status),), solved)
    outcome = Outcome(StopReason.SUBMITTED, verdict, float(solved), RewardSource.ASSERTIONS)
    trajectory = Trajectory(
        ident,
        0,
        np.array([1, 2, 3, 4], np.int32),
        np.array([False, False, True, True]),
        np.array([0, 0, logprob, logprob], np.float32),
        np.zeros(4, np.int32),
        np.zeros(4, np.int32),
        None,
        (Boundary(0, Case.OPEN, inserted=2),),
    )
    return Rollout(ident, "d" * 64, (turn,), outcome), trajectory


@pytest.fixture
def run(tmp_path):
    """A run of four rollouts: sound, hostile, unsolved, and one that the auditor refuses."""
    (tmp_path / "rollouts").mkdir()
    pairs = [made(0), made(1, HOSTILE), made(2, solved=False), made(3, logprob=0.5)]
    write_step(tmp_path / "rollouts" / "rl-00000.parquet", *map(list, zip(*pairs, strict=True)))
    (tmp_path / "metrics.jsonl").write_text('{"stage":"rl","step":0}\nnot json\n{"half"')
    return tmp_path


@pytest.fixture
def client(run):
    """A browser's place, without a browser; the page ends with it."""
    with TestClient(app(find_runs(run)), base_url="http://127.0.0.1:8480") as one:
        yield one


def test_rows_are_filtered_sorted_and_found_by_key(run):
    index = next(iter(find_runs(run).values())).index
    assert [row.member for row in index.select(Query(outcome="unsolved"), {})] == [2]
    assert [row.member for row in index.select(Query(descending=True), {})] == [3, 2, 1, 0]
    assert index.select(Query(task="A/B", sort="reward"), {})[0].member == 2
    assert index.find("rl-00000/0/1/a/b")[1].member == 1
    assert index.find("rl-00000/0/9/a/b") is None


def test_a_damaged_file_is_told_and_hides_no_other(run):
    (run / "rollouts" / "rl-00001.parquet").write_bytes(b"PAR1 no")
    steps = next(iter(find_runs(run).values())).index.steps()
    assert [len(step.rows) for step in steps] == [4, 0]
    assert "rl-00001.parquet cannot be read" in steps[1].error


def test_findings_are_those_of_the_auditor(run):
    findings = Findings(run, next(iter(find_runs(run).values())).index)
    assert findings.gather() and not findings.gather()
    assert list(findings.rules()) == ["rl-00000/0/3/a/b"]


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "127.0.0.1:0", ""]
)
def test_a_name_that_is_not_loopback_is_refused(client, host):
    assert client.get("/api/runs", headers={"host": host}).status_code == 421


def test_other_methods_and_other_sites_are_refused(client):
    assert client.post("/api/runs").status_code == 405
    assert client.get("/api/runs", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.get("/page/../runs.py").status_code in (200, 404)
    assert client.get("/page/%2e%2e/runs.py").status_code == 404


def test_every_answer_forbids_inline_code(client):
    for address in ("/", "/api/runs", "/page/app.js", "/page/missing"):
        policy = client.get(address).headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy


def test_hostile_text_is_cut_replayed_and_there_as_it_was_written(client, run):
    asked = {"run": run.name, "key": "rl-00000/0/1/a/b"}
    reply = client.get("/api/rollout", params=asked)
    observation = reply.json()["turns"][0]["observation"]
    assert reply.headers["content-type"] == "application/json"
    assert observation["left_out"] == len(HOSTILE) - HEAD - TAIL
    assert observation["runs"][:2] == [["<script>x()</script>", ""], ["red⟨D800⟩" + "z" * (HEAD - 35), "fg1"]]
    raw = client.get("/api/text", params={**asked, "turn": 0, "name": "observation", "raw": 1})
    assert "".join(text for text, _ in raw.json()["runs"]).startswith("<script>x()</script>␛]0;t⟨07⟩␛[31mred⟨D800⟩zzz")


def test_a_long_text_comes_in_parts(client, run, monkeypatch):
    monkeypatch.setattr("t1.viewer.detail.MAX_TEXT", 40_000)
    asked = {"run": run.name, "key": "rl-00000/0/1/a/b", "turn": 0, "name": "observation", "raw": 1}
    sizes, start = [], 0
    while start is not None:
        part = client.get("/api/text", params={**asked, "start": start}).json()
        sizes.append(part["runs"][0][0].count("z"))
        start = part["next"]
    assert len(sizes) == 3 and sum(sizes) == 100_000


def test_what_the_trainer_said_stands_beside_the_tokens_it_was_said_of(client, run):
    trajectory = made(0)[1]
    said = [np.array(pair, np.float32) for pair in ((-0.75, -0.5), (0.25, 0.5), (1.0, -1.0), (1.25, 1.5))]
    stats = TokenStats(trajectory.rollout, 0, tokens_crc(trajectory), *said)
    write_token_stats(run / "token_stats" / "rl-00000.parquet", [stats], max_bytes=1000)
    got = client.get("/api/tokens", params={"run": run.name, "key": "rl-00000/0/0/a/b"}).json()
    assert got["trainer_logprob"] == [None, None, -0.75, -0.5] and got["gap"] == [None, None, -0.25, 0.0]
    assert got["value"] == [None, None, 0.25, 0.5] and got["advantage"] == [None, None, 1.0, -1.0]
    assert got["return"] == [None, None, 1.25, 1.5]
    other = client.get("/api/tokens", params={"run": run.name, "key": "rl-00000/0/2/a/b"}).json()
    assert "gap" not in other


def test_the_verdict_of_a_run_is_shown_with_it(client, run):
    (run / "verdict.json").write_text('{"grade": "warn", "checks": []}')
    assert client.get("/api/runs").json()[0]["grade"] == "warn"
    facts = client.get("/api/run", params={"run": run.name}).json()
    assert facts["verdict"] == {"grade": "warn", "checks": []}


def test_tokens_come_as_columns(client, run):
    got = client.get("/api/tokens", params={"run": run.name, "key": "rl-00000/0/0/a/b"}).json()
    assert got["ids"] == [1, 2, 3, 4] and got["mask"] == [False, False, True, True]
    assert got["logprob"] == [None, None, -0.5, -0.5] and got["next"] is None


def test_metrics_are_read_in_whole_lines_from_where_one_was(client, run):
    first = client.get("/api/metrics", params={"run": run.name}).json()
    assert first["records"] == [{"stage": "rl", "step": 0}] and first["damaged"] == 1
    with (run / "metrics.jsonl").open("a") as file:
        file.write(":1}\n")
    later = client.get("/api/metrics", params={"run": run.name, "since": first["next"]}).json()
    assert later["records"] == [{"half": 1}]


def test_a_wrong_question_says_what_was_expected(client, run):
    for address, status in (("/api/run", 400), ("/api/run?run=no", 404), (f"/api/rollout?run={run.name}&key=x", 422)):
        reply = client.get(address)
        assert reply.status_code == status and reply.json()["error"]


def test_a_directory_without_runs_names_the_next_step(tmp_path):
    with pytest.raises(RunError, match="t1 quickstart"):
        find_runs(tmp_path)


def test_a_short_text_is_whole():
    assert cut("abc")["runs"] == (("abc", ""),) and cut("abc")["left_out"] == 0
