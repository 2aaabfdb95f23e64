"""SQLite databases that a solution left: what they say, and the same with other values.

Boundary: bytes in, bytes or text out. The database of a public task may be hostile: its schema is not trusted, and
every statement is stopped after a bound of work.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

MAGIC = b"SQLite format 3\0"
MAX_STEPS = 2000
"""Calls of the progress handler, 1 000 virtual instructions each."""
MAX_ROWS = 2000


def is_database(content: bytes) -> bool:
    """Whether these are the bytes of one."""
    return content.startswith(MAGIC)


def rows_of(content: bytes) -> str:
    """Every row as a line of its values; empty where it cannot be read."""
    lines: list[str] = []
    try:
        with _opened(content) as db:
            for table in _tables(db):
                rows = db.execute(f"SELECT * FROM {table}").fetchmany(MAX_ROWS)
                lines += [" ".join(str(value) for value in row) for row in rows]
    except sqlite3.Error:
        return ""
    return "\n".join(lines)


def with_other_values(content: bytes) -> bytes:
    """The same tables with every text and number another one; unchanged where it cannot be read."""
    try:
        with _opened(content) as db:
            for table in _tables(db):
                names = [f'"{row[1]}"' for row in db.execute(f"PRAGMA table_info({table})")]
                sets = ", ".join(
                    f"{name} = CASE typeof({name}) WHEN 'text' THEN {name} || 'q' WHEN 'null' THEN NULL "
                    f"WHEN 'blob' THEN x'07' ELSE {name} + 1000001 END"
                    for name in names
                )
                db.execute(f"UPDATE {table} SET {sets}")
            db.commit()
            return db.serialize()
    except sqlite3.Error:
        return content


@contextmanager
def _opened(content: bytes) -> Iterator[sqlite3.Connection]:
    """A copy in memory, whose schema may run nothing."""
    steps = iter(range(MAX_STEPS))
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(content)
        db.execute("PRAGMA trusted_schema = OFF")
        db.set_progress_handler(lambda: int(next(steps, None) is None), 1000)
        yield db


def _tables(db: sqlite3.Connection) -> list[str]:
    """Quoted names of the ordinary tables."""
    rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall()
    return ['"' + str(name).replace('"', '""') + '"' for (name,) in rows]
