"""What every proposer keeps to: the fake, the one that composes code, and the one that asks a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from t1.synthesis.candidate import Candidate, Rewrite, Seed, Stage, StageResult
from t1.synthesis.config import ProposerSection
from t1.synthesis.journal import Journal
from t1.synthesis.llm.proposer import LLMProposer
from t1.synthesis.programmatic.proposer import ProgrammaticProposer
from t1.synthesis.proposer import BudgetSpent, ProposalRejected, Proposer
from t1.testing.chat_servers import ChatServer, Request
from t1.testing.proposers import FakeProposer

SEED = Seed(3, "text", "text/turned", "easy")
PROBLEM = StageResult(Stage.SOLVABLE, False, "unsolved", "the solution misses: sorted")


def a_task(request: Request) -> str:
    """A model that answers every question with another version of one task."""
    number = len(request["messages"][-1]["content"]) % 97
    return json.dumps(
        {
            "instruction": f"Sort the {number} lines of names.txt by their bytes into sorted.txt.",
            "difficulty": "easy",
            "files": [{"path": "names.txt", "content": "b\na\n"}],
            "tests": [{"name": "sorted", "command": '[ "$(cat /app/sorted.txt)" = "$(printf "a\\nb")" ]'}],
            "solution": "LC_ALL=C sort names.txt > sorted.txt",
        }
    )


@pytest.fixture(params=["fake", "programmatic", "llm"])
def proposer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Proposer]:
    if request.param == "fake":
        yield FakeProposer()
    elif request.param == "programmatic":
        yield ProgrammaticProposer(5)
    else:
        with ChatServer(a_task) as server, Journal(tmp_path / "journal.sqlite") as journal:
            yield LLMProposer.configured(ProposerSection(kind="llm", base_url=server.url, model="m"), journal)


async def test_the_same_seed_gives_the_same_task_which_can_be_written_and_read(proposer, tmp_path):
    first, again = await proposer.propose(SEED), await proposer.propose(SEED)
    assert first == again and first.rewrites == () and proposer.name
    assert Candidate.from_json(first.to_json()) == first
    task = first.write(tmp_path / "task")
    assert task.instruction.strip() and task.solution is not None
    await proposer.aclose()


async def test_a_rewrite_is_another_task_and_remembers_its_rounds(proposer):
    first = await proposer.propose(SEED)
    longer = await proposer.rewrite(SEED, first, Rewrite.LONGER, None)
    mended = await proposer.rewrite(SEED, longer, Rewrite.REPAIR, PROBLEM)
    assert longer.rewrites == ("longer",) and mended.rewrites == ("longer", "repair")
    assert longer.digest != first.digest and mended.digest != longer.digest
    assert longer == await proposer.rewrite(SEED, first, Rewrite.LONGER, None)
    await proposer.aclose()


async def test_one_that_has_nothing_for_a_seed_or_no_budget_says_so(tmp_path):
    with pytest.raises(ProposalRejected, match="seed 3"):
        await FakeProposer(refused={3}).propose(SEED)
    with pytest.raises(BudgetSpent):
        await FakeProposer(budget=0).propose(SEED)
    priced = ProposerSection(
        kind="llm", model="m", max_cost=0.1, completion_price=1e6, base_url="http://127.0.0.1:9/v1"
    )
    with Journal(tmp_path / "journal.sqlite") as journal:
        asking = LLMProposer.configured(priced, journal)
        with pytest.raises(BudgetSpent, match="max_cost"):
            await asking.propose(SEED)
        await asking.aclose()
