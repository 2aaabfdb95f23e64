"""The proposer that asks a model, against a scripted server on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from t1.errors import EngineUnavailable, UserError
from t1.synthesis.candidate import Rewrite, Seed, Stage, StageResult
from t1.synthesis.journal import Journal
from t1.synthesis.llm.client import ChatClient, Prices
from t1.synthesis.llm.proposer import LLMProposer
from t1.synthesis.proposer import BudgetSpent, ProposalRejected

SEED = Seed(0, "text", "", "easy")
TASK = {
    "instruction": "Sort the lines of names.txt by their bytes into sorted.txt.",
    "difficulty": "easy",
    "files": [{"path": "names.txt", "content": "b\na\n"}],
    "tests": [{"name": "sorted", "command": '[ "$(cat /app/sorted.txt)" = "$(printf "a\\nb")" ]'}],
    "solution": "LC_ALL=C sort names.txt > sorted.txt",
}


class Server:
    """Answers each request with the next of its script: a status, or the text of a completion."""

    def __init__(self, script: list[int | str]) -> None:
        self.requests: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                said = script.pop(0)
                status = said if isinstance(said, int) else 200
                usage = {"prompt_tokens": 1000, "completion_tokens": 500}
                body = json.dumps({"choices": [{"message": {"content": said}}], "usage": usage}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                """Quiet."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join(5)
        self._http.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[[list[int | str]], Server]]:
    servers = []

    def start(script: list[int | str]) -> Server:
        servers.append(Server(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.sqlite") as made:
        yield made


def client(server: Server, journal: Journal, max_cost: float = 10.0) -> ChatClient:
    return ChatClient(
        server.url,
        "m",
        journal,
        prices=Prices(1000.0, 1000.0, max_cost),
        parameters={"max_tokens": 600},
        backoff_s=0.001,
    )


async def test_an_answer_becomes_a_task_and_is_paid_for_once(serve, journal, tmp_path):
    server = serve([503, 429, json.dumps(TASK)])
    for _ in range(2):
        proposer = LLMProposer(client(server, journal))
        made = await proposer.propose(SEED)
        await proposer.aclose()
    assert len(server.requests) == 3 and journal.spent() == pytest.approx(1.5)
    task = made.write(tmp_path / "task")
    assert task.instruction.startswith("Sort") and (task.environment.path / "files" / "names.txt").is_file()


async def test_a_wrong_answer_is_told_to_the_model_and_a_repair_says_what_was_rejected(serve, journal):
    better = json.dumps(TASK | {"instruction": "Sort names.txt into sorted.txt, by bytes."})
    server = serve(["no JSON", json.dumps(TASK | {"extra": 1}), f"```json\n{json.dumps(TASK)}\n```", better])
    proposer = LLMProposer(client(server, journal))
    made = await proposer.propose(SEED)
    assert "extra" in server.requests[2]["messages"][-1]["content"]
    problem = StageResult(Stage.SOLVABLE, False, "unsolved", "the solution misses: sorted")
    mended = await proposer.rewrite(SEED, made, Rewrite.REPAIR, problem)
    assert "the solution misses: sorted" in server.requests[3]["messages"][1]["content"]
    assert mended.rewrites == ("repair",)
    await proposer.aclose()


async def test_answers_that_never_fit_reject_the_seed_and_paths_stay_inside(serve, journal):
    outside = json.dumps(TASK | {"files": [{"path": "../x", "content": ""}]})
    proposer = LLMProposer(client(serve([outside] * 3), journal))
    with pytest.raises(ProposalRejected, match=r"files\.0\.path"):
        await proposer.propose(SEED)
    await proposer.aclose()


async def test_the_cost_cap_is_never_passed_and_refusals_cost_nothing(serve, journal):
    server = serve([401, 500, 500, 500, 500, json.dumps(TASK)])
    capped = client(server, journal, max_cost=2.5)
    with pytest.raises(UserError, match="401"):
        await capped.complete([{"role": "user", "content": "a"}])
    with pytest.raises(EngineUnavailable, match="4 attempts"):
        await capped.complete([{"role": "user", "content": "a"}])
    assert journal.spent() == 0.0
    await capped.complete([{"role": "user", "content": "a"}])
    await capped.complete([{"role": "user", "content": "a"}])
    with pytest.raises(BudgetSpent, match="max_cost"):
        await capped.complete([{"role": "user", "content": "b" * 2000}])
    assert len(server.requests) == 6
    await capped.aclose()
