"""Measures the audit on the labelled set: `python -m tests.labelled.measure`. The last line is JSON.

There are two sets. The second was written when the probes had been tuned on the first, without a look at them; what the
audit made of it the first time it saw it stands in the README, and is the figure to trust.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t1.sandboxes import NamespaceProvider
from t1.synthesis.audit import AuditReport, Kind, audit_task
from t1.synthesis.audit.labels import Label, figures, write_labels
from tests.labelled.bases_files import BASES as FILES
from tests.labelled.bases_programs import BASES as PROGRAMS
from tests.labelled.bases_text import BASES as TEXT
from tests.labelled.drafts import Base, Labelled, write_all
from tests.labelled.unseen_records import BASES as RECORDS
from tests.labelled.unseen_systems import BASES as SYSTEMS

SETS: dict[str, tuple[Base, ...]] = {"first": (*TEXT, *FILES, *PROGRAMS), "second": (*RECORDS, *SYSTEMS)}
Row = tuple[Labelled, AuditReport]


async def audit_all(labelled: Iterable[Labelled], *, static: bool) -> list[Row]:
    """Audit every labelled task, two at once."""
    provider = None if static else NamespaceProvider()
    gate = asyncio.Semaphore(len(os.sched_getaffinity(0)))

    async def one(item: Labelled) -> Row:
        async with gate:
            return item, await audit_task(item.task, provider=provider)

    try:
        return list(await asyncio.gather(*map(one, labelled)))
    finally:
        if provider is not None:
            await provider.close()


def label_of(item: Labelled) -> Label:
    """A labelled task's label, as the audit's command reads it."""
    return Label(planted=Kind(item.kind) if item.kind else None, also=frozenset(map(Kind, item.also)))


def figures_of(rows: Iterable[Row]) -> dict[str, Any]:
    """Precision and recall of each kind."""
    return figures((label_of(item), report) for item, report in rows)


def main() -> None:
    """Print what was wrong, then the figures of all tasks and of each set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=sorted(SETS), help="only this set")
    parser.add_argument("--static", action="store_true", help="read only, run nothing")
    parser.add_argument("--write", type=Path, help="only write tasks and labels there, for t1 tasks audit --labelled")
    options = parser.parse_args()
    chosen = {name: bases for name, bases in SETS.items() if options.set in (None, name)}
    if options.write is not None:
        written = write_all([base for bases in chosen.values() for base in bases], options.write)
        write_labels(options.write, {item.task.id: label_of(item) for item in written})
        return
    with tempfile.TemporaryDirectory(prefix="t1-labelled-") as folder:
        labelled = write_all([base for bases in chosen.values() for base in bases], Path(folder))
        rows = asyncio.run(audit_all(labelled, static=options.static))
    for item, report in rows:
        wanted = {item.kind} - {""}
        if wanted - report.kinds or report.kinds - wanted - item.also or report.problem:
            print(f"{item.task.id}: planted {item.kind or 'nothing'}; {report.problem}")
            for reject in report.rejects:
                print(f"    {reject}")
    print(json.dumps(figures_of(rows) | summary(rows, chosen)))


def summary(rows: Sequence[Row], chosen: Mapping[str, tuple[Base, ...]]) -> dict[str, Any]:
    """The figures of each set, and how large it is."""
    table: dict[str, Any] = {}
    for name, bases in chosen.items():
        own = [row for row in rows if row[0].base.name in {base.name for base in bases}]
        sizes = {
            "num_bases": len(bases),
            "num_sound": sum(not item.kind for item, _ in own),
            "num_faults": sum(bool(item.kind) for item, _ in own),
        }
        table[name] = figures_of(own) | sizes
    return table


if __name__ == "__main__":
    main()
