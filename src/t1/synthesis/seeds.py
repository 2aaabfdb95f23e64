"""The seeds of a run: cells of the taxonomy, or tasks that exist.

Boundary: which lineages there are; what grows from them is the proposer's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from t1.errors import ConfigError, TaskError
from t1.synthesis.candidate import DIFFICULTIES, Seed
from t1.synthesis.programmatic.proposer import taxonomy
from t1.tasks import read_task

MAX_EXAMPLE = 6000
"""Characters of an existing task's instruction that a proposer is shown."""


def taxonomy_seeds(count: int, domains: Sequence[str] = (), difficulties: Sequence[str] = DIFFICULTIES) -> list[Seed]:
    """`count` seeds that go round the cells. Raises ConfigError where a domain or difficulty is unknown."""
    known = {cell[0] for cell in taxonomy()}
    if wrong := [*(set(domains) - known), *(set(difficulties) - set(DIFFICULTIES))]:
        raise ConfigError(f"seeds: {wrong[0]!r} is none of {', '.join(sorted(known))}; {', '.join(DIFFICULTIES)}")
    cells = [c for c in taxonomy() if (not domains or c[0] in domains) and c[2] in difficulties]
    if not cells:
        raise ConfigError("seeds: no domain or no difficulty is left; mend seeds.domains or seeds.difficulties")
    return [Seed(index, *cells[index % len(cells)]) for index in range(count)]


def task_seeds(paths: Sequence[str], count: int) -> tuple[list[Seed], list[tuple[Path, str]]]:
    """`count` seeds that go round the tasks below `paths`, and those that cannot be read, with the reason.

    Raises TaskError where there is none.
    """
    found, broken = [], []
    for name in paths:
        for file in sorted(Path(name).rglob("task.toml")):
            try:
                found.append(read_task(file.parent))
            except TaskError as error:
                broken.append((file.parent, str(error)))
    if not found:
        reason = f"holds no readable task to begin from{f' ({broken[0][1]})' if broken else ''}; mend seeds.tasks"
        raise TaskError(Path(paths[0]), reason)
    seeds = []
    for index in range(count):
        task = found[index % len(found)]
        difficulty = task.metadata.get("difficulty")
        seeds.append(
            Seed(
                index,
                str(task.metadata.get("category", "")),
                "",
                difficulty if difficulty in DIFFICULTIES else "medium",
                origin=task.id,
                example=task.instruction[:MAX_EXAMPLE],
            )
        )
    return seeds, broken
