"""One light row for each rollout of a run: what the list shows, filters and sorts.

Only the columns that a row needs are read, once for each file, and again when the file has changed; answering a query
touches no disk beyond a `stat` a file. Boundary: rows, never tokens; what one rollout holds is `detail`'s business.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from t1.types import Case

_TIMINGS = ("wall_s", "queue_s", "engine_s", "sandbox_s", "verifier_s")
_ELEMENT = "list.element"
COLUMNS = (
    *("task", "group", "member", "attempts", "outcome", *_TIMINGS),
    f"turns.{_ELEMENT}.completion",
    f"trajectories.{_ELEMENT}.boundaries",
)
"""All that a row of the index costs."""
SORTS = ("step", "task", "reward", "num_turns", "num_sampled", "wall_s", "residual")


@dataclass(frozen=True, slots=True)
class Row:
    """One rollout in the list."""

    step: str
    """Stem of its file: `rl-00012`, `eval-sft`, `demonstrations`."""
    place: int
    """Its row in the file."""
    task: str
    group: int
    member: int
    outcome: str
    """solved, unsolved, tampered, failed (infrastructure)."""
    stop: str
    reward: float | None
    reward_source: str
    passed: int | None
    asserted: int | None
    attempts: int
    failure: str
    num_turns: int
    num_sampled: int
    num_segments: int
    cases: tuple[str, ...]
    """Boundary cases beyond open and strict that occur in it."""
    residual: int
    wall_s: float
    sandbox_s: float

    @property
    def key(self) -> str:
        """What addresses it in a run; the task comes last because its id may hold slashes."""
        return f"{self.step}/{self.group}/{self.member}/{self.task}"


@dataclass(frozen=True, slots=True)
class Query:
    """Which rows, in which order. Empty = all."""

    step: str = ""
    task: str = ""
    """A part of the task's id, in any case."""
    outcome: str = ""
    stop: str = ""
    case: str = ""
    finding: str = ""
    """A rule, or `any`."""
    sort: str = "step"
    descending: bool = False


@dataclass(frozen=True, slots=True)
class StepFile:
    """The rows of one file, or why there are none."""

    step: str
    signature: tuple[int, int]
    rows: tuple[Row, ...]
    error: str = ""


class RunIndex:
    """The rows of a run. Safe to ask from several threads."""

    def __init__(self, path: Path) -> None:
        self.folder = path / "rollouts" if (path / "rollouts").is_dir() else path
        self._steps: dict[str, StepFile] = {}
        self._lock = threading.Lock()

    def files(self) -> list[Path]:
        """The step files, in the order of their names: demonstrations and evaluations, then training."""
        return sorted(path for path in self.folder.glob("*.parquet") if not path.name.startswith("."))

    def steps(self) -> list[StepFile]:
        """Every file with its rows; only new and changed files are read."""
        with self._lock:
            kept = {}
            for path in self.files():
                try:
                    found = path.stat()
                except OSError:
                    continue  # removed between the listing and here
                signature, old = (found.st_size, found.st_mtime_ns), self._steps.get(path.stem)
                fresh = old is not None and old.signature == signature
                kept[path.stem] = old if old is not None and fresh else read_step_file(path, signature)
            self._steps = kept
            return list(kept.values())

    def find(self, key: str) -> tuple[Path, Row] | None:
        """The file and the row of a key."""
        step, _, _ = key.partition("/")
        for file in self.steps():
            if file.step == step:
                return next(((self.folder / f"{step}.parquet", row) for row in file.rows if row.key == key), None)
        return None

    def select(self, query: Query, found: Mapping[str, Sequence[str]]) -> list[Row]:
        """The rows of a query; `found` holds the rules that each key broke."""
        needle = query.task.casefold()
        rows = [
            row
            for file in self.steps()
            if not query.step or file.step == query.step
            for row in file.rows
            if (not query.outcome or row.outcome == query.outcome)
            and (not query.stop or row.stop == query.stop)
            and (not needle or needle in row.task.casefold())
            and (not query.case or query.case in row.cases)
            and (not query.finding or _broke(found.get(row.key, ()), query.finding))
        ]
        if query.sort != "step":
            # A missing number sorts last, in either direction; equal ones stay in the order of the run.
            there = [row for row in rows if getattr(row, query.sort) is not None]
            there.sort(key=lambda row: getattr(row, query.sort), reverse=query.descending)
            return there + [row for row in rows if getattr(row, query.sort) is None]
        return rows[::-1] if query.descending else rows


def _broke(rules: Sequence[str], wanted: str) -> bool:
    return bool(rules) if wanted == "any" else wanted in rules


def facets(rows: Iterable[Row], found: Mapping[str, Sequence[str]]) -> dict[str, dict[str, int]]:
    """How many rows there are of each value that one can filter by."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("outcome", "stop", "case", "finding", "step")}
    for row in rows:
        counts["outcome"][row.outcome] += 1
        counts["stop"][row.stop] += 1
        counts["step"][row.step] += 1
        counts["case"].update(row.cases)
        counts["finding"].update(set(found.get(row.key, ())))
    return {name: dict(sorted(counter.items())) for name, counter in counts.items()}


def read_step_file(path: Path, signature: tuple[int, int] = (0, 0)) -> StepFile:
    """The rows of a file. A damaged one has an error instead, and hides no other."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read(columns=list(COLUMNS))
        return StepFile(path.stem, signature, tuple(_rows(path.stem, table)))
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError, AttributeError) as error:
        return StepFile(path.stem, signature, (), f"{path.name} cannot be read: {error}")


def _rows(step: str, table: pa.Table) -> list[Row]:
    names = ("task", "group", "member", "attempts", "outcome", "wall_s", "sandbox_s")
    columns = {name: table[name].to_pylist() for name in names}
    turns, sampled = _lengths(table["turns"])
    rows = []
    for place, segments in enumerate(table["trajectories"].to_pylist()):
        joins = [boundary for part in segments for boundary in part["boundaries"]]
        rows.append(
            Row(
                step=step,
                place=place,
                task=columns["task"][place],
                group=columns["group"][place],
                member=columns["member"][place],
                attempts=columns["attempts"][place],
                wall_s=columns["wall_s"][place],
                sandbox_s=columns["sandbox_s"][place],
                num_turns=turns[place],
                num_sampled=sampled[place],
                num_segments=len(segments),
                cases=_cases(joins, len(segments)),
                residual=sum(boundary["residual"] for boundary in joins),
                **_outcome(json.loads(columns["outcome"][place])),
            )
        )
    return rows


def _cases(joins: Sequence[Mapping[str, Any]], num_segments: int) -> tuple[str, ...]:
    """Cases beyond the plain ones. A segment after the first one opens because a turn did not fit: a split."""
    cases = {boundary["case"] for boundary in joins} - {Case.OPEN, Case.STRICT}
    return tuple(sorted(cases | ({str(Case.SPLIT)} if num_segments > 1 else set())))


def _lengths(turns: pa.ChunkedArray) -> tuple[list[int], list[int]]:
    """(turns, sampled tokens) of every rollout, counted from the offsets."""
    array = turns.combine_chunks()
    each = pc.list_value_length(pc.struct_field(array.flatten(), "completion")).to_pylist()
    counts = pc.list_value_length(array).to_pylist()
    sampled, start = [], 0
    for count in counts:
        sampled.append(sum(each[start : start + count]))
        start += count
    return counts, sampled


def _outcome(record: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that the outcome decides."""
    verdict, failure = record["verdict"], record["failure"]
    asserted = None if verdict is None else verdict["assertions"]
    passed = None if asserted is None else sum(a["status"] == "passed" for a in asserted)
    if failure is not None:
        outcome = "failed"
    elif record["reward_source"] == "tampered" or _is_tampered(verdict):
        outcome = "tampered"
    else:
        outcome = "solved" if verdict is not None and verdict["solved"] else "unsolved"
    return {
        "outcome": outcome,
        "stop": record["stop"],
        "reward": record["reward"],
        "reward_source": record["reward_source"],
        "passed": passed,
        "asserted": None if asserted is None else len(asserted),
        "failure": "" if failure is None else failure["kind"],
    }


def _is_tampered(verdict: Mapping[str, Any] | None) -> bool:
    return verdict is not None and any(e.get("level", "tampering") == "tampering" for e in verdict.get("tamper", ()))
