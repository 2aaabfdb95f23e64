"""Named benchmarks: their protocols as data, where their tasks come from, and scores that others published.

A protocol says what a score of that name was measured under; what is not published is None, and nothing is guessed.
Published scores are never mixed with measured ones: another harness, another time limit or another set of tasks makes
another number. Boundary: data, and finding a set of tasks on disk; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from t1.errors import TaskError

SUITES = Path("suites")
"""Where a named benchmark is looked for, by its name."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a score under the benchmark's name was measured under."""

    harness: str | None
    attempts: int | None
    """Attempts at each task; the score is their mean."""
    time_limit: str | None
    sampling: str | None
    source: str
    """Where that is said."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A named set of tasks in Harbor's format."""

    name: str
    title: str
    num_tasks: int | None
    protocol: Protocol
    download: str
    """What to run where the tasks are not here."""


@dataclass(frozen=True, slots=True)
class Published:
    """A score that others published: context, not measured here."""

    benchmark: str
    policy: str
    score: float
    """Share of tasks solved."""
    harness: str
    turns: float | None
    """Mean turns a task, where published."""
    source: str


_T1 = "the T1 preprint of 10 September 2026"
BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            name="terminal-bench-2.1",
            title="Terminal-Bench 2.1",
            num_tasks=89,
            protocol=Protocol(
                harness="terminus-2",
                attempts=5,
                time_limit="each task's own agent.timeout_sec",
                sampling=None,
                source="the leaderboard at tbench.ai: at least five runs of every task, limits unchanged; "
                f"Terminus-2 is the harness of {_T1}",
            ),
            download="git clone https://github.com/harbor-framework/terminal-bench-2-1 /tmp/tb21 && "
            "mkdir -p suites && cp -r /tmp/tb21/tasks suites/terminal-bench-2.1",
        ),
        Benchmark(
            name="long-horizon-terminal-bench",
            title="Long-Horizon Terminal Bench",
            num_tasks=None,
            protocol=Protocol("terminus-2", None, None, None, f"the harness: {_T1}; the rest is not published there"),
            download="get its task directories from its authors (`harbor dataset list` shows what a registry offers), "
            "then copy them to suites/long-horizon-terminal-bench",
        ),
        Benchmark(
            name="terminal-bench-hard",
            title="Terminal-Bench Hard",
            num_tasks=None,
            protocol=Protocol("terminus-2", None, None, None, f"the harness: {_T1}; the rest is not published there"),
            download="get its list of tasks from its authors, "
            "then copy those directories of Terminal-Bench to suites/terminal-bench-hard",
        ),
    )
}
PUBLISHED = (
    Published("terminal-bench-2.1", "T1 (122B-A10B), RL", 0.640, "terminus-2", 94.4, _T1),
    Published("terminal-bench-2.1", "T1 (122B-A10B), SFT", 0.494, "terminus-2", 31.5, _T1),
    Published("terminal-bench-2.1", "Qwen3.5-122B-A10B, base", 0.438, "terminus-2", None, _T1),
    Published("long-horizon-terminal-bench", "T1 (122B-A10B), RL", 0.279, "terminus-2", None, _T1),
    Published("terminal-bench-hard", "T1 (122B-A10B), RL", 0.380, "terminus-2", None, _T1),
)


def find_tasks(name: str, *, suites: Path = SUITES) -> tuple[Path, Benchmark | None]:
    """The directory of a set of tasks: a path, or a benchmark's name, then below `suites`.

    Raises TaskError where a benchmark is not here yet; the message says what to download.
    """
    benchmark = BENCHMARKS.get(name)
    if benchmark is None:
        path = Path(name)
        if not path.exists():
            raise TaskError(path, f"no such set of tasks; named ones are {', '.join(BENCHMARKS)}")
        return path, None
    path = suites / name
    if not path.is_dir():
        raise TaskError(path, f"{benchmark.title} is not here yet: {benchmark.download}")
    return path, benchmark


def published_for(benchmark: Benchmark | None) -> Sequence[Published]:
    """The published scores of a benchmark."""
    return [row for row in PUBLISHED if benchmark is not None and row.benchmark == benchmark.name]


def departures(
    benchmark: Benchmark, *, harness: str, attempts: int, num_tasks: int, time_limit_s: float | None = None
) -> list[str]:
    """In what an evaluation departs from the protocol of the benchmark's name; empty = comparable as far as known."""
    protocol, found = benchmark.protocol, []
    if protocol.harness is not None and harness != protocol.harness:
        found.append(f"harness {harness} instead of {protocol.harness}")
    if protocol.attempts is not None and attempts < protocol.attempts:
        found.append(f"{attempts} attempts a task instead of {protocol.attempts}")
    if benchmark.num_tasks is not None and num_tasks != benchmark.num_tasks:
        found.append(f"{num_tasks} tasks instead of {benchmark.num_tasks}")
    if time_limit_s is not None:
        found.append(f"a time limit of {time_limit_s:g} s for every task")
    unknown = [part for part in ("harness", "attempts", "time_limit", "sampling") if getattr(protocol, part) is None]
    if unknown:
        found.append(f"not published: {', '.join(unknown)}")
    return found
