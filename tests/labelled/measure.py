"""Measures the audit on the labelled set: `python -m tests.labelled.measure`. The last line is JSON.

One third of the bases is held back: `--seen` leaves it out, so that the probes were never tuned on it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from t1.sandboxes import NamespaceProvider
from t1.synthesis.audit import AuditReport, audit_task
from tests.labelled.bases_files import BASES as FILES
from tests.labelled.bases_programs import BASES as PROGRAMS
from tests.labelled.bases_text import BASES as TEXT
from tests.labelled.drafts import KINDS, Labelled, write_all

BASES = (*TEXT, *FILES, *PROGRAMS)
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


def figures(rows: Iterable[Row]) -> dict[str, dict[str, float | int]]:
    """Precision and recall of each kind; kinds that the author allows beside the planted one are not counted."""
    rows, table = list(rows), {}
    for kind in KINDS:
        counted = [(item, report) for item, report in rows if kind not in item.also]
        hits = sum(kind in report.kinds and item.kind == kind for item, report in counted)
        said = sum(kind in report.kinds for _, report in counted)
        planted = sum(item.kind == kind for item, _ in counted)
        precision, recall = hits / said if said else 1.0, hits / planted if planted else 1.0
        table[kind] = {"precision": round(precision, 4), "recall": round(recall, 4), "planted": planted}
    return table


def main() -> None:
    """Print what was wrong, then the figures of the seen, the held-back, and all tasks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seen", action="store_true", help="without the third that is held back")
    parser.add_argument("--static", action="store_true", help="read only, run nothing")
    options = parser.parse_args()
    bases = [base for base in BASES if not (options.seen and base.is_held_back)]
    with tempfile.TemporaryDirectory(prefix="t1-labelled-") as folder:
        rows = asyncio.run(audit_all(write_all(bases, Path(folder)), static=options.static))
    for item, report in rows:
        wanted = {item.kind} - {""}
        if wanted - report.kinds or report.kinds - wanted - item.also or report.problem:
            print(f"{item.task.id}: planted {item.kind or 'nothing'}; {report.problem}")
            for reject in report.rejects:
                print(f"    {reject}")
    summary: dict[str, Any] = {
        "seen": figures(row for row in rows if not row[0].base.is_held_back),
        "held_back": figures(row for row in rows if row[0].base.is_held_back),
        "num_sound": sum(not item.kind for item, _ in rows),
        "num_faults": sum(bool(item.kind) for item, _ in rows),
    }
    print(json.dumps({**figures(rows), **summary}))


if __name__ == "__main__":
    main()
