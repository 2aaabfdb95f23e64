"""A recipe: chains of steps, by name, with what rewriting added to them; and the task that it makes.

Every step draws from a random stream of its own, so that a rewrite of one leaves the others as they were. Boundary: the
same recipe makes the same candidate, byte for byte; nothing is run.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any

from t1.synthesis.candidate import Candidate
from t1.synthesis.programmatic import data, places, programs, text  # noqa: F401  (they fill the book)
from t1.synthesis.programmatic.riders import RIDERS
from t1.synthesis.programmatic.scene import Check, Move, Scene, Value, is_empty
from t1.synthesis.programmatic.steps import BOOK, END, Step, Unfit
from t1.tasks.shell_basics import TEST_FOOTER, TEST_HEADER

SLIM, FULL = "debian:bookworm-slim", "python:3.12-bookworm"
"""The second has git and Python."""
MAX_SIZE = 40
MAX_DISTRACTORS = 9


@dataclass(frozen=True, slots=True)
class Placed:
    """A step in a chain."""

    name: str
    salt: int
    observe: bool = False
    """Its value is not in the instruction."""
    riders: tuple[str, ...] = ()
    """Further requirements on its output."""

    @property
    def step(self) -> Step:
        return BOOK[self.name]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a task is made of."""

    salt: int
    chains: tuple[tuple[Placed, ...], ...]
    """Each begins with a source of what its first step takes."""
    format: str = "csv"
    size: int = 8
    distractors: int = 0

    @property
    def steps(self) -> list[Placed]:
        """All steps, chain after chain."""
        return [placed for chain in self.chains for placed in chain]

    @property
    def difficulty(self) -> str:
        """easy, medium or hard, by what its steps ask for."""
        points = sum(p.step.level + p.observe + 0.5 * len(p.riders) for p in self.steps)
        points += (self.distractors > 0) + (self.size > 20)
        return "easy" if points <= 3 else "medium" if points <= 6.5 else "hard"

    @property
    def domain(self) -> str:
        """Where most of its steps belong; the first of equals."""
        return Counter(p.step.domain for p in self.steps).most_common(1)[0][0]

    def to_json(self) -> dict[str, Any]:
        """As JSON knows it."""
        made: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return made

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Recipe:
        """The inverse of `to_json`."""
        chains = tuple(
            tuple(Placed(p["name"], p["salt"], p["observe"], tuple(p["riders"])) for p in chain)
            for chain in raw["chains"]
        )
        return Recipe(**{**raw, "chains": chains})


@dataclass(slots=True)
class _Draft:
    """The moves of a recipe, as they are made."""

    scene: Scene
    chains: list[list[Move]] = field(default_factory=list)

    @property
    def moves(self) -> list[Move]:
        return [move for chain in self.chains for move in chain]


def candidate_of(recipe: Recipe, *, skill: str, rewrites: Sequence[str] = ()) -> Candidate:
    """The candidate that a recipe makes. Raises Unfit where a step has nothing to do."""
    draft = _draft(recipe)
    scene, moves = draft.scene, draft.moves
    checks = _distinct([check for move in moves for check in move.checks])
    calls = "".join(f"check {shlex.quote(check.name)} {shlex.quote(check.test)}\n" for check in checks)
    lines = "\n".join(line for move in moves for line in move.lines)
    files = {f"files/{name}": content for name, content in scene.files.items()}
    return Candidate(
        domain=recipe.domain,
        skill=skill,
        difficulty=recipe.difficulty,
        instruction=_instruction(recipe, draft),
        environment={"Dockerfile": _dockerfile(scene), **(files or {"files/.keep": ""})},
        tests={"test.sh": TEST_HEADER + calls + TEST_FOOTER, **scene.expected},
        solution={"solve.sh": f"#!/bin/bash\nset -e\n{lines}\n"},
        config=_config(recipe, len(checks)),
        recipe=recipe.to_json(),
        rewrites=tuple(rewrites),
    )


def outputs(recipe: Recipe) -> list[str]:
    """For each step, the text file that it makes; empty where it makes none."""
    return [move.output for move in _draft(replace_riders(recipe)).moves]


def replace_riders(recipe: Recipe) -> Recipe:
    """The recipe without further requirements."""
    chains = tuple(tuple(replace(placed, riders=()) for placed in chain) for chain in recipe.chains)
    return replace(recipe, chains=chains)


def _draft(recipe: Recipe) -> _Draft:
    """Play every chain from its source to its end."""
    draft = _Draft(Scene(Random(f"scene {recipe.salt}"), format=recipe.format, size=recipe.size))
    scene = draft.scene
    for number, chain in enumerate(recipe.chains):
        scene.rng = Random(f"source {recipe.salt} {number} {chain[0].step.takes}")
        value: Value | None = scene.source(chain[0].step.takes)
        moves: list[Move] = []
        for placed in chain:
            if value is None or is_empty(value):
                raise Unfit
            scene.rng, scene.observe = Random(f"step {placed.name} {placed.salt}"), placed.observe
            move = placed.step.run(scene, value)
            value = move.value
            for rider in placed.riders if move.output else ():
                move = RIDERS[rider](scene, move)
            moves.append(move)
        draft.chains.append(moves)
    scene.rng = Random(f"distractors {recipe.salt}")
    for _ in range(recipe.distractors):
        scene.rng.choice((scene.lines, scene.table))()
    return draft


def _instruction(recipe: Recipe, draft: _Draft) -> str:
    """The sentences, in one of a few manners."""
    rng = Random(f"manner {recipe.salt}")
    where = rng.choice(("All paths are relative to /app.", "You are in /app.", "Everything happens in /app."))
    sentences = [move.sentence for move in draft.moves]
    if len(sentences) > 2 and rng.random() < 0.5:
        return "\n".join([where, "", *(f"{n}. {sentence}" for n, sentence in enumerate(sentences, 1))]) + "\n"
    paragraphs = [" ".join(move.sentence for move in chain) for chain in draft.chains]
    return "\n\n".join([f"{where} {paragraphs[0]}", *paragraphs[1:]]) + "\n"


def _dockerfile(scene: Scene) -> str:
    runs = "".join(f"RUN {run}\n" for run in scene.runs)
    return f"FROM {FULL if scene.needs else SLIM}\nWORKDIR /app\nCOPY files/ /app/\n{runs}"


def _distinct(checks: list[Check]) -> list[Check]:
    """Assertions under names of their own."""
    seen: Counter[str] = Counter()
    made = []
    for check in checks:
        seen[check.name] += 1
        again = f" ({seen[check.name]})" if seen[check.name] > 1 else ""
        made.append(replace(check, name=check.name + again))
    return made


def _config(recipe: Recipe, num_assertions: int) -> dict[str, Any]:
    """task.toml."""
    return {
        "version": "1.0",
        "metadata": {
            "primitives": [placed.name for placed in recipe.steps],
            "reads": any(placed.observe for placed in recipe.steps),
            "num_assertions": num_assertions,
        },
        "verifier": {"timeout_sec": 60.0},
        "agent": {"timeout_sec": 120.0},
        "environment": {"build_timeout_sec": 60.0, "cpus": 1, "memory_mb": 512, "storage_mb": 512},
    }


__all__ = ["END", "MAX_DISTRACTORS", "MAX_SIZE", "Placed", "Recipe", "candidate_of", "outputs"]
