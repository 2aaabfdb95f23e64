"""The proposer that asks a model, against a scripted server on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from t1.errors import EngineUnavailable, UserError
from t1.synthesis.candidate import Rewrite, Seed, Stage, StageResult
from t1.synthesis.journal import Journal
from t1.synthesis.llm.client import ChatClient, Prices
from t1.synthesis.llm.proposer import LLMProposer
from t1.synthesis.proposer import BudgetSpent, ProposalRejected
from t1.testing.chat_servers import ChatServer

SEED = Seed(0, "text", "", "easy")
TASK = {
    "instruction": "Sort the lines of names.txt by their bytes into sorted.txt.",
    "difficulty": "easy",
    "files": [{"path": "names.txt", "content": "b\na\n"}],
    "tests": [{"name": "sorted", "command": '[ "$(cat /app/sorted.txt)" = "$(printf "a\\nb")" ]'}],
    "solution": "LC_ALL=C sort names.txt > sorted.txt",
}


@pytest.fixture
def serve() -> Iterator[Callable[[list[int | str]], ChatServer]]:
    servers: list[ChatServer] = []

    def start(script: list[int | str]) -> ChatServer:
        servers.append(ChatServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.sqlite") as made:
        yield made


def client(server: ChatServer, journal: Journal, max_cost: float = 10.0) -> ChatClient:
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
