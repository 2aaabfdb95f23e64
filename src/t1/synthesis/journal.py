"""The run's memory: every step that was done, with its result, in one SQLite file.

A step is written before anything is built on it, so a run that was killed goes on where it was and pays for nothing
twice. Boundary: keys and JSON; what a step means is the caller's affair.
"""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from t1.errors import RunError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS steps (
    lineage INTEGER NOT NULL, round INTEGER NOT NULL, step TEXT NOT NULL,
    value TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (lineage, round, step)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS calls (
    key TEXT PRIMARY KEY, reply TEXT, cost REAL NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
"""


class Journal:
    """Steps by (lineage, round, name), and paid calls by the digest of their request. Not for two processes at once."""

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises RunError where it is in use or not a journal."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, isolation_level=None, timeout=0.5)
        try:
            # The lock is held for the life of the connection, and the kernel takes it back from a killed process.
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
            self._db.execute("INSERT OR IGNORE INTO meta VALUES ('format', '1')")
        except sqlite3.OperationalError as error:
            self._db.close()
            raise RunError(f"{path}: another run has it open ({error}); wait for that one, or stop it") from None
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise RunError(f"{path}: is not a journal of a synthesis ({error}); move it away") from None

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()

    def hold_to(self, key: str, value: str, advice: str) -> None:
        """Remember what the run was begun with; raise RunError where a later one differs."""
        self._db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (key, value))
        (held,) = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if held != value:
            raise RunError(f"{self.path}: was begun with another {key}; {advice}")

    def get(self, lineage: int, round_: int, step: str) -> Any:
        """The result of a step, or None where it was not done."""
        row = self._db.execute(
            "SELECT value FROM steps WHERE lineage = ? AND round = ? AND step = ?", (lineage, round_, step)
        ).fetchone()
        return None if row is None else json.loads(row[0])

    def put(self, lineage: int, round_: int, step: str, value: Any) -> None:
        """Remember the result of a step. The first one stays."""
        packed = json.dumps(value, sort_keys=True)
        row = (lineage, round_, step, packed, time.time())
        self._db.execute("INSERT OR IGNORE INTO steps VALUES (?, ?, ?, ?, ?)", row)

    def num_steps(self) -> int:
        """How many steps were done."""
        return int(self._db.execute("SELECT count(*) FROM steps").fetchone()[0])

    def begin_call(self, key: str, estimate: float) -> None:
        """A call goes out: until it is answered, its estimated cost counts. A killed run may have paid for it."""
        self._db.execute("INSERT OR REPLACE INTO calls VALUES (?, NULL, ?, ?)", (key, estimate, time.time()))

    def end_call(self, key: str, reply: str | None, cost: float) -> None:
        """A call was answered (None: refused or failed) at this cost."""
        if reply is None and cost == 0.0:
            self._db.execute("DELETE FROM calls WHERE key = ?", (key,))
        else:
            self._db.execute("INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?)", (key, reply, cost, time.time()))

    def reply(self, key: str) -> str | None:
        """The answer to a call that was made before, or None."""
        row = self._db.execute("SELECT reply FROM calls WHERE key = ?", (key,)).fetchone()
        return None if row is None or row[0] is None else str(row[0])

    def spent(self) -> float:
        """Cost of all calls so far, those without an answer included."""
        return float(self._db.execute("SELECT coalesce(sum(cost), 0) FROM calls").fetchone()[0])

    def num_calls(self) -> int:
        """Calls that were answered."""
        return int(self._db.execute("SELECT count(*) FROM calls WHERE reply IS NOT NULL").fetchone()[0])
