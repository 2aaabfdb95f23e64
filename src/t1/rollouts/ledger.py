"""What was launched, finished, admitted and learned from: every rollout is consumed exactly once, through any crash.

One SQLite file in WAL mode. A launch is written before it runs, a finished rollout with its whole content before
anyone learns from it, a batch in one transaction. A run that was killed goes on from its last checkpoint: batches that
were admitted after it are handed out again as they were, finished rollouts wait for admission as before, and launches
that never finished are launched again under their own ids and seeds. Boundary: records and states; the rules are
`admission.py`'s, the weights are the checkpoint's.

A commit survives the death of the process at any instant. `synchronous=NORMAL`: a power cut may take the last commits
with it, never the file.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from t1.errors import RunError
from t1.rollouts.cost import Usage
from t1.rollouts.store import pack_rollout, unpack_rollout
from t1.types import Rollout, RolloutId

FORMAT = 1
BUSY_TIMEOUT_S = 30.0
_TABLES = """
CREATE TABLE IF NOT EXISTS trials (
    position INTEGER PRIMARY KEY,       -- place in the stream of launches
    task TEXT NOT NULL, draw INTEGER NOT NULL, member INTEGER NOT NULL, seed INTEGER,
    version INTEGER NOT NULL,           -- weights when it was launched
    state TEXT NOT NULL,                -- running | finished | admitted | dropped
    launched_at REAL NOT NULL, finished_at REAL,
    finished_order INTEGER,             -- place in the order of completion
    step INTEGER,                       -- batch that admitted it, or that it was dropped from
    place INTEGER,                      -- its place in the batch
    attempts INTEGER, solved INTEGER, reward REAL, failure TEXT, turns INTEGER,
    trial_s REAL,                       -- of a dropped trial: as far as it came
    tokens_in INTEGER, tokens_cached INTEGER, tokens_out INTEGER,
    engine_s REAL, sandbox_s REAL, verifier_s REAL, queue_s REAL, money REAL,
    content BLOB                        -- the rollout, until its step's file holds it
);
CREATE INDEX IF NOT EXISTS trials_by_state ON trials(state);
CREATE INDEX IF NOT EXISTS trials_by_step ON trials(step, place);
CREATE TABLE IF NOT EXISTS updates (
    step INTEGER PRIMARY KEY,           -- the weights became version step + 1
    num_rollouts INTEGER NOT NULL, at REAL NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A trial of the ledger that has not been settled."""

    position: int
    rollout: RolloutId
    seed: int | None
    version: int
    finished: int | None
    """Its place in the order of completion; None while it runs."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A trial of a batch."""

    rollout: RolloutId
    version: int
    content: bytes | None
    """Packed; None once the step's file holds it."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What the bias meter asks of a trial that was admitted or dropped."""

    task: str
    admitted: bool
    trial_s: float
    turns: int | None
    solved: bool | None
    """This and `turns`: None where it never finished."""


class Ledger:
    """Open for one process, from any of its threads."""

    def __init__(self, path: Path) -> None:
        """Open the ledger at `path`, or make it. Raises RunError where the file is not one."""
        self._path = path
        self._lock = threading.RLock()
        try:
            self._db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            (written,) = self._db.execute("PRAGMA user_version").fetchone()
            if written not in (0, FORMAT):
                raise RunError(f"{path}: a ledger of format {written}; this version of t1 reads {FORMAT}")
            self._db.executescript(_TABLES)
            self._db.execute(f"PRAGMA user_version={FORMAT}")
        except sqlite3.Error as error:
            raise RunError(f"{path}: cannot be opened as a ledger: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # ----------------------------------------------------------------------------------------------------------------
    # What happens

    def launched(self, entry: Entry) -> None:
        """A trial is about to run. A position is launched once, and again only after a crash."""
        self._write(
            "INSERT INTO trials(position, task, draw, member, seed, version, state, launched_at) "
            "VALUES(?, ?, ?, ?, ?, ?, 'running', ?) "
            "ON CONFLICT(position) DO UPDATE SET version=excluded.version, launched_at=excluded.launched_at "
            "WHERE state='running'",
            (entry.position, *_id(entry.rollout), entry.seed, entry.version, time.time()),
        )

    def finished(self, position: int, rollout: Rollout, usage: Usage, *, order: int) -> None:
        """A trial ended; its content is safe from now on."""
        outcome = rollout.outcome
        values: dict[str, object] = {
            "finished_at": time.time(),
            "finished_order": order,
            "attempts": rollout.attempts,
            "solved": outcome.solved,
            "reward": outcome.reward,
            "failure": None if outcome.failure is None else outcome.failure.kind,
            "turns": len(rollout.turns),
            **asdict(usage),
            "content": pack_rollout(rollout),
        }
        columns = ", ".join(f"{name}=?" for name in values)
        changed = self._write(
            f"UPDATE trials SET state='finished', {columns} WHERE position=? AND state='running'",
            (*values.values(), position),
        )
        self._must(changed == 1, f"position {position} finished, but was not running")

    def admitted(self, step: int, positions: Sequence[int]) -> None:
        """These finished trials are the batch of `step`, in this order. All of them or none."""
        with self._transaction():
            for place, position in enumerate(positions):
                changed = self._write(
                    "UPDATE trials SET state='admitted', step=?, place=? WHERE position=? AND state='finished'",
                    (step, place, position),
                )
                self._must(changed == 1, f"position {position} was not free to be admitted to step {step}")

    def dropped(self, step: int, ran_s: Mapping[int, float]) -> None:
        """Position → seconds: these trials will never be trained on. They were out when `step` had its batch."""
        with self._transaction():
            for position, seconds in ran_s.items():
                changed = self._write(
                    "UPDATE trials SET state='dropped', step=?, trial_s=?, content=NULL "
                    "WHERE position=? AND state IN ('running', 'finished')",
                    (step, seconds, position),
                )
                self._must(changed == 1, f"position {position} was not free to be dropped")

    def updated(self, step: int, num_rollouts: int) -> None:
        """The weights have learned from the batch of `step`, and its file holds the rollouts."""
        with self._transaction():
            self._write("INSERT OR REPLACE INTO updates VALUES(?, ?, ?)", (step, num_rollouts, time.time()))
            self._write("UPDATE trials SET content=NULL WHERE step=?", (step,))

    # ----------------------------------------------------------------------------------------------------------------
    # What a resumed run asks

    def rewind(self, step: int) -> None:
        """The weights are those before `step`: what was learned from then on is forgotten."""
        self._write("DELETE FROM updates WHERE step>=?", (step,))

    def batch(self, step: int) -> list[Admitted]:
        """An admitted batch in its order; empty if there is none."""
        rows = self._rows(
            "SELECT task, draw, member, version, content FROM trials WHERE step=? AND state='admitted' ORDER BY place",
            (step,),
        )
        return [
            Admitted(RolloutId(task, draw, member), version, content) for task, draw, member, version, content in rows
        ]

    def settled(self, steps: range) -> list[Settled]:
        """Admitted and dropped trials of these steps, in the order in which they were settled."""
        rows = self._rows(
            "SELECT task, state, COALESCE(trial_s, 0), turns, solved, finished_order FROM trials "
            "WHERE step>=? AND step<? ORDER BY step, state, COALESCE(place, position)",
            (steps.start, steps.stop),
        )
        return [
            Settled(task, state == "admitted", trial_s, turns, None if order is None else bool(solved))
            for task, state, trial_s, turns, solved, order in rows
        ]

    def unsettled(self) -> list[Entry]:
        """Trials that are neither admitted nor dropped, by position."""
        rows = self._rows(
            "SELECT position, task, draw, member, seed, version, finished_order FROM trials "
            "WHERE state IN ('running', 'finished') ORDER BY position"
        )
        return [Entry(p, RolloutId(task, d, m), seed, version, order) for p, task, d, m, seed, version, order in rows]

    def content(self, position: int) -> Rollout:
        """The rollout of a finished trial."""
        row = self._rows("SELECT content FROM trials WHERE position=?", (position,))
        self._must(bool(row) and row[0][0] is not None, f"position {position} has no content")
        return unpack_rollout(bytes(row[0][0]))

    def next_position(self) -> int:
        """The first position that was never launched."""
        return int(self._rows("SELECT COALESCE(MAX(position) + 1, 0) FROM trials")[0][0])

    def next_order(self) -> int:
        """The next place in the order of completion."""
        return int(self._rows("SELECT COALESCE(MAX(finished_order) + 1, 0) FROM trials")[0][0])

    def counts(self) -> dict[str, int]:
        """Trials by state."""
        return dict(self._rows("SELECT state, COUNT(*) FROM trials GROUP BY state"))

    # ----------------------------------------------------------------------------------------------------------------

    def _write(self, statement: str, values: tuple[object, ...]) -> int:
        """One statement; how many rows it changed."""
        try:
            with self._lock:
                return self._db.execute(statement, values).rowcount
        except sqlite3.Error as error:
            raise RunError(f"{self._path}: cannot be written: {error}") from error

    def _rows(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        """All rows of a query."""
        with self._lock:
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of the block or nothing of it."""
        with self._lock:
            self._write("BEGIN IMMEDIATE", ())
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._write("COMMIT", ())

    def _must(self, holds: bool, complaint: str) -> None:
        if not holds:
            raise RunError(f"{self._path}: {complaint}: the ledger and the run disagree, do not go on with this run")


def _id(rollout: RolloutId) -> tuple[str, int, int]:
    return rollout.task, rollout.group, rollout.member
