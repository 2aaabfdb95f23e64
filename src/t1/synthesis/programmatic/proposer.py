"""The proposer that needs no model: it composes steps into chains, and rewrites recipes by code.

Boundary: it never looks at a sandbox. What it makes is distinct by construction only in its random stream; that the
solution works and the task is new is for selection to find.
"""

from __future__ import annotations

from random import Random

from t1.synthesis.candidate import DIFFICULTIES, Candidate, Rewrite, Seed, StageResult
from t1.synthesis.programmatic.recipe import Recipe, candidate_of
from t1.synthesis.programmatic.rewrites import OPERATORS, domains, grown, repaired, skills
from t1.synthesis.programmatic.scene import FORMATS
from t1.synthesis.programmatic.steps import BOOK, Unfit
from t1.synthesis.proposer import ProposalRejected

MAX_DRAWS = 40


class ProgrammaticProposer:
    """See `proposer.Proposer`. The same seed makes the same tasks on every machine."""

    name = "programmatic"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    async def propose(self, seed: Seed) -> Candidate:
        """See `Proposer.propose`: a chain that has the seed's skill, as long as its difficulty says."""
        skill = seed.skill if seed.skill in BOOK else self._skill(seed)
        lengths = {"easy": (1, 2), "medium": (2, 4), "hard": (3, 6)}[seed.difficulty]
        for draw in range(MAX_DRAWS):
            rng = Random(f"propose {self._seed} {seed.index} {draw}")
            chain = grown(rng, skill, rng.randint(*lengths))
            recipe = Recipe(rng.getrandbits(32), (chain,), rng.choice(FORMATS), rng.choice((6, 8, 10, 12)))
            try:
                return candidate_of(recipe, skill=skill)
            except Unfit:
                continue
        raise ProposalRejected("no-chain", f"no chain with {skill} in {MAX_DRAWS} draws")

    def _skill(self, seed: Seed) -> str:
        """A skill for a seed that comes from an existing task: of its domain, where the book has that."""
        rng = Random(f"skill {self._seed} {seed.index}")
        return rng.choice(skills(seed.domain if seed.domain in domains() else rng.choice(domains())))

    async def rewrite(self, seed: Seed, candidate: Candidate, kind: Rewrite, problem: StageResult | None) -> Candidate:
        """See `Proposer.rewrite`. A rewrite that changes nothing is none."""
        old = Recipe.from_json(candidate.recipe)
        for draw in range(MAX_DRAWS):
            rng = Random(f"rewrite {self._seed} {seed.index} {candidate.num_rounds} {kind} {draw}")
            try:
                new = repaired(old, rng, problem) if kind is Rewrite.REPAIR else OPERATORS[kind](old, rng)
                made = candidate_of(new, skill=candidate.skill, rewrites=(*candidate.rewrites, kind))
            except Unfit:
                continue
            if (made.instruction, made.environment) != (candidate.instruction, candidate.environment):
                return made
        raise ProposalRejected("not-applicable", f"{kind} changes nothing here")

    async def aclose(self) -> None:
        """See `Proposer.aclose`."""


def taxonomy() -> list[tuple[str, str, str]]:
    """Every (domain, skill, difficulty) of the book, spread so that a prefix of it covers all domains."""
    by_domain = {domain: skills(domain) for domain in domains()}
    most = max(map(len, by_domain.values()))
    return [
        (domain, by_domain[domain][turn % len(by_domain[domain])], difficulty)
        for difficulty in DIFFICULTIES
        for turn in range(most)
        for domain in by_domain
    ]
