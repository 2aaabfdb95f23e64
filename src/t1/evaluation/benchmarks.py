"""Named benchmarks and the protocols that scores of them were measured under, as data; scores that others published.

What is not published is None, and nothing is guessed. Published scores are never mixed with measured ones: another
harness, another time limit or another set of tasks makes another number. Boundary: data; finding tasks is
`task_sets`' business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from t1.config import RunConfig
from t1.types import Limits, Task

_PREPRINT = "T1 preprint, arXiv 2609.11042"
Metric = Literal["solved", "reward"]
"""What a score is a mean of: tasks solved, or the verifier's own reward between 0 and 1."""


UNBOUND = (
    *("harness.max_turns=1000", "harness.max_tokens_per_turn=16384", "harness.max_sampled_tokens=10000000"),
    *("harness.max_observation_chars=16000", "harness.command_timeout_s=600"),
)
"""Limits of the harness so wide that those of the protocol bind, and not those of the small quickstart."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a score under some name was measured under. None: not said, and left to whoever measures."""

    name: str
    source: str
    """Where that is said."""
    harness: str | None = None
    attempts: int | None = None
    """Attempts at each task; the score is their mean."""
    max_turns: int | None = None
    max_tokens_per_turn: int | None = None
    agent_timeout_s: float | None = None
    """Of every task. None: each task's own, from its task.toml."""
    verifier_timeout_s: float | None = None
    max_context: int | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)
    """Of `harness.sampling`; empty: not said."""
    note: str = ""

    def settings(self) -> list[str]:
        """`section.key=value` for all of it that the configuration knows; what the command line says wins over it."""
        values = {
            "agent.name": self.harness,
            "evaluation.rollouts_per_task": self.attempts,
            "harness.max_turns": self.max_turns,
            "harness.max_tokens_per_turn": self.max_tokens_per_turn,
            **{f"harness.sampling.{key}": value for key, value in self.sampling.items()},
        }
        return [*UNBOUND, *(f"{key}={value}" for key, value in values.items() if value is not None)]

    def limit(self, task: Task) -> Task:
        """The task under this protocol's time limits; its digest stays, the files are the same."""
        limits = task.limits if self.agent_timeout_s is None else Limits(self.agent_timeout_s)
        timeout_s = self.verifier_timeout_s or task.verifier.timeout_s
        return replace(task, limits=limits, verifier=replace(task.verifier, timeout_s=timeout_s))


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A named set of tasks in Harbor's format."""

    name: str
    title: str
    num_tasks: int | None
    metric: Metric
    protocol: str
    """Name of the protocol that holds unless another is asked for."""
    download: str
    """What to run where the tasks are not here."""


@dataclass(frozen=True, slots=True)
class Published:
    """A score that others published: context, not measured here."""

    benchmark: str
    policy: str
    score: float
    """Of the benchmark's metric, between 0 and 1."""
    harness: str
    turns: float | None
    """Mean turns a task, where published."""
    source: str


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            name="t1",
            source=f"{_PREPRINT}, section 6.1, one configuration for all three suites; tokens a turn from 6.4",
            harness="terminus-2",
            attempts=3,
            max_turns=60,
            max_tokens_per_turn=8192,
            agent_timeout_s=3600.0,
            verifier_timeout_s=900.0,
            max_context=96_000,
            sampling={"temperature": 0.1, "top_p": 0.95, "top_k": 20},
            note="thinking off, the agent summarises its own history; section 6.4 speaks of 94.4 turns on average and "
            "of a ceiling of 500, which 60 turns contradict",
        ),
        Protocol(
            name="leaderboard",
            source="tbench.ai: at least five runs of every task, time limits and resources unchanged, any harness",
            attempts=5,
        ),
    )
}
BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            name="terminal-bench-2.1",
            title="Terminal-Bench 2.1",
            num_tasks=89,
            metric="solved",
            protocol="t1",
            download="git clone https://github.com/harbor-framework/terminal-bench-2-1 /tmp/tb21 && "
            "mkdir -p suites && cp -r /tmp/tb21/tasks suites/terminal-bench-2.1",
        ),
        Benchmark(
            name="long-horizon-terminal-bench",
            title="Long-Horizon Terminal Bench",
            num_tasks=46,
            metric="reward",
            protocol="t1",
            download="get its task directories from its authors (arXiv 2607.08964), "
            "then copy them to suites/long-horizon-terminal-bench",
        ),
        Benchmark(
            name="terminal-bench-hard",
            title="Terminal-Bench Hard",
            num_tasks=100,
            metric="solved",
            protocol="t1",
            download="get its list of tasks from its authors, "
            "then copy those directories to suites/terminal-bench-hard",
        ),
    )
}


def _published() -> Iterator[Published]:
    """The preprint's own rows, and those that it measured under the same harness."""
    tb, lhtb, hard = BENCHMARKS
    table, figures = f"{_PREPRINT}, table 1", f"{_PREPRINT}, figures 10 and 11"
    model = "Qwen3.5-122B-A10B"
    for policy, scores, turns in (
        (f"T1 ({model}), RL", (0.640, 0.279, 0.380), 94.4),
        (f"T1 ({model}), SFT", (0.494, 0.236, 0.283), 31.5),
        (f"{model}, base", (0.438, 0.189, 0.200), 41.1),
    ):
        for name, score in zip((tb, lhtb, hard), scores, strict=True):
            shown = turns if name == tb else None
            yield Published(name, policy, score, "terminus-2", shown, table if name != hard else figures)
    yield Published(tb, f"{model}, RL on binary reward", 0.472, "terminus-2", None, table)
    yield Published(tb, f"{model}, RL before the audit of tasks", 0.599, "terminus-2", None, table)
    for policy, score in (("Claude Opus 4.7", 0.661), ("Claude Opus 4.6", 0.638), ("GPT-5.4", 0.548)):
        yield Published(tb, policy, score, "terminus-2", None, table)


PUBLISHED = tuple(_published())


def published_for(benchmark: Benchmark | None) -> Sequence[Published]:
    """The published scores of a benchmark."""
    return [row for row in PUBLISHED if benchmark is not None and row.benchmark == benchmark.name]


def departures(protocol: Protocol, config: RunConfig, tasks: Sequence[Task], expected: int | None = None) -> list[str]:
    """In what an evaluation departs from a protocol; empty = comparable as far as the protocol says.

    `expected` is how many tasks the benchmark has.
    """
    limits, sampling = config.harness, config.harness.sampling.model_dump()
    pairs: list[tuple[str, Any, Any]] = [
        ("harness", config.agent.name, protocol.harness),
        ("attempts a task", config.evaluation.rollouts_per_task, protocol.attempts),
        ("turns at most", limits.max_turns, protocol.max_turns),
        ("tokens a turn", limits.max_tokens_per_turn, protocol.max_tokens_per_turn),
        ("tokens of context", config.model.max_context, protocol.max_context),
        ("tasks", len(tasks), expected),
        *((key.replace("_", "-"), sampling[key], value) for key, value in protocol.sampling.items()),
    ]
    found = [f"{what}: {here} instead of {there}" for what, here, there in pairs if there not in (None, here)]
    for what, wanted, given in (
        ("agent time", protocol.agent_timeout_s, {task.limits.agent_timeout_s for task in tasks}),
        ("verifier time", protocol.verifier_timeout_s, {task.verifier.timeout_s for task in tasks}),
    ):
        if wanted is not None and given != {wanted}:
            found.append(f"{what}: {', '.join(f'{s:g}' for s in sorted(given))} s instead of {wanted:g} s")
    return found
