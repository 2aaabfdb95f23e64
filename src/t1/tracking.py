"""Where the metrics of a run go: JSON lines always, TensorBoard on request.

Boundary: a tracker takes numbers. It never learns where they come from, and a tracker's trouble never changes a run's
numbers.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t1.errors import RunError, UserError
from t1.protocols import Tracker


def _plain(value: Any) -> Any:
    """A value as strict JSON knows it: numpy and torch scalars become numbers, nan and inf become null."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def _line(record: Mapping[str, Any]) -> str:
    """One record as a line of strict JSON."""
    return json.dumps(_plain(record), separators=(",", ":"), allow_nan=False) + "\n"


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics file, without the unfinished last line that a kill leaves. Other damage is an error."""
    if not path.exists():
        return []
    *lines, rest = path.read_text(encoding="utf-8").split("\n")
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise RunError(f"{path}: line {number} is not JSON ({error.msg})") from None
    if rest:
        with contextlib.suppress(json.JSONDecodeError):
            records.append(json.loads(rest))
    return records


class JsonLinesTracker:
    """One JSON object a line, flushed at once, so that a killed run keeps what it logged.

    A resumed run passes `keep`: records that it refuses (the steps that will be done again) are dropped.
    """

    def __init__(self, path: Path, *, keep: Callable[[Mapping[str, Any]], bool] = lambda record: True) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [record for record in read_metrics(path) if keep(record)]
        scratch = path.with_name(path.name + ".new")
        scratch.write_text("".join(_line(record) for record in kept), encoding="utf-8")
        scratch.replace(path)
        self._file = path.open("a", encoding="utf-8")

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Append one record."""
        self._file.write(_line(metrics))
        self._file.flush()

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self._file.close()


class TensorBoardTracker:
    """Scalars for TensorBoard; needs the `tensorboard` extra."""

    def __init__(self, path: Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise UserError("tracker.tensorboard needs a package: pip install 't1[tensorboard]'") from None
        self._writer = SummaryWriter(logdir=str(path))

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Write every number as `stage/name` at the record's step."""
        prefix = f"{metrics['stage']}/" if "stage" in metrics else ""
        for key, value in metrics.items():
            number = _plain(value)
            if key != "step" and isinstance(number, (int, float)):
                self._writer.add_scalar(prefix + key, number, int(metrics.get("step", 0)))

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class Trackers:
    """Several trackers as one."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = tuple(trackers)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Hand the record to each."""
        for tracker in self._trackers:
            tracker.log(metrics)

    def close(self) -> None:
        """Close each."""
        for tracker in self._trackers:
            tracker.close()
