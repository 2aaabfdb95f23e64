"""How right an audit is on tasks whose faults are known: `labels.json` beside them says what was planted.

    {"orders-fault-1": {"planted": "test-leakage", "also": ["weak-verifier"]}, "orders-sound-0": {}}

Boundary: compares reports with labels; it never tells the audit what a label says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from t1.errors import UserError
from t1.synthesis.audit.report import AuditReport, Kind

MEASURED = (Kind.HIDDEN_REQUIREMENT, Kind.TEST_LEAKAGE, Kind.SOLUTION_SHORTCUT, Kind.WEAK_VERIFIER)
FILE = "labels.json"


class Label(BaseModel):
    """What is wrong with one task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    planted: Kind | None = None
    """None for a sound task."""
    also: frozenset[Kind] = frozenset()
    """Kinds that may be named beside it and be right."""


def read_labels(folder: Path) -> dict[str, Label]:
    """Task → label, from `labels.json` in `folder`. Raises UserError."""
    path = folder / FILE
    try:
        return TypeAdapter(dict[str, Label]).validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}: --labelled needs it beside the tasks") from None
    except ValidationError as errors:
        first = errors.errors(include_url=False)[0]
        raise UserError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def write_labels(folder: Path, labels: Mapping[str, Label]) -> None:
    """The inverse of `read_labels`."""
    made = {name: label.model_dump(mode="json", exclude_defaults=True) for name, label in labels.items()}
    (folder / FILE).write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def figures(pairs: Iterable[tuple[Label, AuditReport]]) -> dict[str, dict[str, float | int]]:
    """Precision and recall of each kind; a task does not count for the kinds that its label allows beside its own."""
    pairs, table = list(pairs), {}
    for kind in MEASURED:
        counted = [(label, report) for label, report in pairs if kind not in label.also]
        hits = sum(kind in report.kinds and label.planted == kind for label, report in counted)
        said = sum(kind in report.kinds for _, report in counted)
        planted = sum(label.planted == kind for label, _ in counted)
        precision, recall = hits / said if said else 1.0, hits / planted if planted else 1.0
        table[str(kind)] = {"precision": round(precision, 4), "recall": round(recall, 4), "planted": planted}
    return table
