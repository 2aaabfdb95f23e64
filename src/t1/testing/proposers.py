"""A public fake of the Proposer: small sound tasks about words, with as little text as a task can have."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from t1.synthesis.candidate import Candidate, Rewrite, Seed, StageResult
from t1.synthesis.proposer import BudgetSpent, ProposalRejected
from t1.tasks.shell_basics import TEST_FOOTER, TEST_HEADER
from t1.tasks.vocabulary import WORDS

COMMANDS = (
    ("in the opposite order of their lines", "tac"),
    ("sorted by their bytes", "LC_ALL=C sort"),
    ("with every letter a capital one", "LC_ALL=C tr a-z A-Z"),
    ("without their last line", "head -n -1"),
)


DOCKERFILE = "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY files/ /app/\n"


class FakeProposer:
    """Seed → task, the same every time. Refuses the seeds that it is told to, and stops when its budget is spent."""

    name = "fake"

    def __init__(self, *, refused: Collection[int] = (), budget: int = 1 << 30) -> None:
        """`refused`: indices of seeds it has nothing for. `budget`: answers that it has."""
        self.asked: list[str] = []
        """Every question, in order."""
        self._refused = refused
        self._budget = budget

    async def propose(self, seed: Seed) -> Candidate:
        """See `Proposer.propose`."""
        self._pay(f"propose {seed.index}")
        if seed.index in self._refused:
            raise ProposalRejected("refused", f"nothing for seed {seed.index}")
        return _made(seed, 0, ())

    async def rewrite(self, seed: Seed, candidate: Candidate, kind: Rewrite, problem: StageResult | None) -> Candidate:
        """See `Proposer.rewrite`."""
        self._pay(f"rewrite {seed.index} {kind}")
        return _made(seed, int(candidate.recipe["turn"]) + 1, (*candidate.rewrites, kind))

    def _pay(self, question: str) -> None:
        if len(self.asked) >= self._budget:
            raise BudgetSpent(f"{self._budget} answers were paid for")
        self.asked.append(question)

    async def aclose(self) -> None:
        """See `Proposer.aclose`."""


def _made(seed: Seed, turn: int, rewrites: tuple[str, ...]) -> Candidate:
    rng = Random(f"fake {seed.index} {turn}")
    words = rng.sample(WORDS, 6)
    how, command = COMMANDS[(seed.index + turn) % len(COMMANDS)]
    source, target, *_ = (f"{word}.txt" for word in words)
    lines = "".join(f"{rng.choice(WORDS)} {word}\n" for word in words)
    check = f"check 'the same lines' '[ \"$(cat /app/{target})\" = \"$({command} /tests/given)\" ]'\n"
    if command.endswith("A-Z"):
        check = check.replace("A-Z /tests", "A-Z < /tests")
    return Candidate(
        domain=seed.domain or "text",
        skill=seed.skill,
        difficulty="easy",
        instruction=f"Write /app/{source} to /app/{target}, {how}. It is for {words[2]}, {words[3]} and {words[4]}.\n",
        environment={"Dockerfile": DOCKERFILE, f"files/{source}": lines},
        tests={"test.sh": TEST_HEADER + check + TEST_FOOTER, "given": lines},
        solution={"solve.sh": f"#!/bin/bash\nset -e\n{command} < {source} > {target}\n"},
        config={"version": "1.0", "metadata": {"num_assertions": 1}, "verifier": {"timeout_sec": 30.0},
                "agent": {"timeout_sec": 30.0}},
        recipe={"turn": turn},
        rewrites=rewrites,
    )  # fmt: skip
