"""The rewrite operators as code: recipe in, another recipe out.

Boundary: they say what a rewrite means for a recipe; whether what comes out can be made, the proposer finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from t1.synthesis.candidate import Rewrite, StageResult
from t1.synthesis.programmatic.recipe import MAX_DISTRACTORS, MAX_SIZE, Placed, Recipe, outputs
from t1.synthesis.programmatic.riders import RIDERS
from t1.synthesis.programmatic.scene import FORMATS
from t1.synthesis.programmatic.steps import BOOK, END, Unfit

MAX_STEPS = 12
MAX_RIDERS = 2


def grown(rng: Random, name: str, length: int) -> tuple[Placed, ...]:
    """A chain of about `length` steps that has the step `name` in it."""
    chain = [_placed(rng, name)]
    while len(chain) < length:
        before = [s for s in BOOK.values() if s.gives == chain[0].step.takes]
        after = [s for s in BOOK.values() if s.takes == chain[-1].step.gives]
        if after and (rng.random() < 0.6 or not before):
            chain.append(_placed(rng, rng.choice(after).name))
        elif before:
            chain.insert(0, _placed(rng, rng.choice(before).name))
        else:
            break
    return tuple(chain)


def skills(domain: str) -> list[str]:
    """The steps of a domain."""
    return sorted(step.name for step in BOOK.values() if step.domain == domain)


def domains() -> list[str]:
    """All domains of the book."""
    return sorted({step.domain for step in BOOK.values()})


def _placed(rng: Random, name: str) -> Placed:
    return Placed(name, rng.getrandbits(32))


def _with_chain(recipe: Recipe, number: int, chain: tuple[Placed, ...]) -> Recipe:
    return replace(recipe, chains=(*recipe.chains[:number], chain, *recipe.chains[number + 1 :]))


def _on_step(recipe: Recipe, rng: Random, change: Callable[[Placed], Placed | None]) -> Recipe:
    """One step that `change` can do something with, changed. Raises Unfit where there is none."""
    spots = [(c, i) for c, chain in enumerate(recipe.chains) for i in range(len(chain))]
    for c, i in rng.sample(spots, len(spots)):
        chain = recipe.chains[c]
        if (changed := change(chain[i])) is not None:
            return _with_chain(recipe, c, (*chain[:i], changed, *chain[i + 1 :]))
    raise Unfit


def harder(recipe: Recipe, rng: Random) -> Recipe:
    """More to work on, or a step of a higher level where one fits."""
    if recipe.size < MAX_SIZE and rng.random() < 0.5:
        return replace(recipe, size=min(MAX_SIZE, recipe.size * 2))

    def raised(placed: Placed) -> Placed | None:
        old = placed.step
        above = [s for s in BOOK.values() if s.level > old.level and (s.takes, s.gives) == (old.takes, old.gives)]
        return _placed(rng, rng.choice(above).name) if above else None

    return _on_step(recipe, rng, raised)


def longer(recipe: Recipe, rng: Random) -> Recipe:
    """A step more on a chain that goes on, or a new chain."""
    if len(recipe.steps) >= MAX_STEPS:
        raise Unfit
    ends = [c for c, chain in enumerate(recipe.chains) if chain[-1].step.gives != END]
    if ends and rng.random() < 0.7:
        number = rng.choice(ends)
        chain = recipe.chains[number]
        name = rng.choice([s.name for s in BOOK.values() if s.takes == chain[-1].step.gives])
        return _with_chain(recipe, number, (*chain, _placed(rng, name)))
    return replace(recipe, chains=(*recipe.chains, grown(rng, rng.choice(sorted(BOOK)), rng.randint(1, 2))))


def other_domain(recipe: Recipe, rng: Random) -> Recipe:
    """One chain as long as before, in a domain that the task does not have yet."""
    number = rng.randrange(len(recipe.chains))
    present = {placed.step.domain for placed in recipe.steps}
    absent = [domain for domain in domains() if domain not in present]
    if not absent:
        raise Unfit
    name = rng.choice(skills(rng.choice(absent)))
    return _with_chain(recipe, number, grown(rng, name, len(recipe.chains[number])))


def other_format(recipe: Recipe, rng: Random) -> Recipe:
    """Another data format, where there is a table."""
    if not any(chain[0].step.takes == "table" for chain in recipe.chains):
        raise Unfit
    return replace(recipe, format=rng.choice([f for f in FORMATS if f != recipe.format]))


def one_more_requirement(recipe: Recipe, rng: Random) -> Recipe:
    """Something more that a file must have."""
    made = dict(zip([(p.name, p.salt) for p in recipe.steps], outputs(recipe), strict=True))

    def ridden(placed: Placed) -> Placed | None:
        free = [name for name in RIDERS if name not in placed.riders]
        if not made[placed.name, placed.salt] or len(placed.riders) >= MAX_RIDERS:
            return None
        return replace(placed, riders=(*placed.riders, rng.choice(free)))

    return _on_step(recipe, rng, ridden)


def observation(recipe: Recipe, rng: Random) -> Recipe:
    """A value that has to be read first. (A step without a value stays as it was: the proposer notices.)"""
    return _on_step(recipe, rng, lambda placed: None if placed.observe else replace(placed, observe=True))


def distractors(recipe: Recipe, rng: Random) -> Recipe:
    """Files that have nothing to do with it."""
    if recipe.distractors >= MAX_DISTRACTORS:
        raise Unfit
    return replace(recipe, distractors=min(MAX_DISTRACTORS, recipe.distractors + rng.randint(2, 4)))


def repaired(recipe: Recipe, rng: Random, problem: StageResult | None) -> Recipe:
    """What helps against the last rejection: less where it was too hard, more where too easy, else other work."""
    if problem is not None and problem.reason == "too-hard":
        return _shorter(recipe, rng)
    if problem is not None and problem.reason == "too-easy":
        return longer(recipe, rng)
    recipe = replace(recipe, salt=rng.getrandbits(32))
    number = rng.randrange(len(recipe.chains))
    length = min(len(recipe.chains[number]) + rng.randint(0, 1), 6)
    return _with_chain(recipe, number, grown(rng, rng.choice(sorted(BOOK)), length))


def _shorter(recipe: Recipe, rng: Random) -> Recipe:
    """Without its last step; distractors and size go back too."""
    recipe = replace(recipe, distractors=0, size=8)
    longest = max(range(len(recipe.chains)), key=lambda number: len(recipe.chains[number]))
    if len(recipe.chains[longest]) > 1:
        return _with_chain(recipe, longest, recipe.chains[longest][:-1])
    if len(recipe.chains) == 1:
        raise Unfit
    return replace(recipe, chains=recipe.chains[:-1])


OPERATORS: Mapping[Rewrite, Callable[[Recipe, Random], Recipe]] = {
    Rewrite.HARDER: harder,
    Rewrite.LONGER: longer,
    Rewrite.DOMAIN: other_domain,
    Rewrite.FORMAT: other_format,
    Rewrite.REQUIREMENT: one_more_requirement,
    Rewrite.OBSERVATION: observation,
    Rewrite.DISTRACTORS: distractors,
}
