"""Where the metrics of a run go: JSON lines always; TensorBoard, W&B, Trackio or MLflow beside them on request.

Boundary: a tracker takes numbers. It never learns where they come from, and a tracker's trouble never changes a run's
numbers.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
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


def scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record as `stage/name`; its step, texts, tables and what is not finite stay out."""
    prefix = f"{metrics['stage']}/" if "stage" in metrics else ""
    plain = {prefix + key: _plain(value) for key, value in metrics.items() if key != "step"}
    return {key: float(value) for key, value in plain.items() if isinstance(value, (int, float))}


class TensorBoardTracker:
    """Scalars for TensorBoard; needs the `tensorboard` extra."""

    def __init__(self, path: Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise _missing("tensorboard") from None
        self._writer = SummaryWriter(logdir=str(path / "tensorboard"))

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Write every number as `stage/name` at the record's step."""
        for key, number in scalars(metrics).items():
            self._writer.add_scalar(key, number, int(metrics.get("step", 0)))

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class WandbTracker:
    """Weights & Biases; WANDB_MODE=offline keeps everything here."""

    def __init__(self, path: Path, name: str) -> None:
        try:
            import wandb
        except ImportError:
            raise _missing("wandb") from None
        path.mkdir(parents=True, exist_ok=True)
        settings = wandb.Settings(silent=True, console="off")
        self._run: Any = wandb.init(project="t1", name=name, dir=str(path), settings=settings)
        self._stages: set[str] = set()

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Log every number; each stage counts its own steps."""
        stage = str(metrics.get("stage", "run"))
        if stage not in self._stages:
            self._stages.add(stage)
            self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")
        self._run.log({**scalars(metrics), f"{stage}/step": int(metrics.get("step", 0))})

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


class TrackioTracker:
    """Trackio: a dashboard on this machine."""

    def __init__(self, path: Path, name: str) -> None:
        try:
            import trackio
        except ImportError:
            raise _missing("trackio") from None
        self._trackio: Any = trackio
        self._open = True
        trackio.init(project="t1", name=name)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Log every number, with the step of its stage beside it."""
        stage = str(metrics.get("stage", "run"))
        self._trackio.log({**scalars(metrics), f"{stage}/step": int(metrics.get("step", 0))})

    def close(self) -> None:
        """Finish the run. Safe to call twice."""
        if self._open:
            self._open = False
            self._trackio.finish()


class MlflowTracker:
    """MLflow, at MLFLOW_TRACKING_URI, or in a database beside the run's logs (its store of plain files is closed)."""

    def __init__(self, path: Path, name: str) -> None:
        try:
            from mlflow import MlflowClient
            from mlflow.entities import Metric
        except ImportError:
            raise _missing("mlflow") from None
        path.mkdir(parents=True, exist_ok=True)
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{path.resolve() / 'mlflow.db'}"
        self._client: Any = MlflowClient(tracking_uri=uri)
        self._metric: Any = Metric
        known = self._client.get_experiment_by_name("t1")
        experiment = known.experiment_id if known is not None else self._client.create_experiment("t1")
        self._run: str = self._client.create_run(experiment, run_name=name).info.run_id

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Log every number at the record's step."""
        now, step = int(time.time() * 1000), int(metrics.get("step", 0))
        self._client.log_batch(
            self._run, metrics=[self._metric(key, value, now, step) for key, value in scalars(metrics).items()]
        )

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._run)


def _missing(kind: str) -> UserError:
    return UserError(f"tracker {kind} needs a package: pip install 't1[{kind}]'")


KINDS = ("tensorboard", "wandb", "trackio", "mlflow")


def make_tracker(kind: str, path: Path, name: str) -> Tracker:
    """A tracker of the kind; `path` is the run's directory for logs, `name` what the run is called there.

    Raises UserError where its package is missing. What goes wrong later is its own trouble, never the run's.
    """
    match kind:
        case "tensorboard":
            return Shielded(TensorBoardTracker(path), kind)
        case "wandb":
            return Shielded(WandbTracker(path, name), kind)
        case "trackio":
            return Shielded(TrackioTracker(path, name), kind)
        case "mlflow":
            return Shielded(MlflowTracker(path, name), kind)
    raise UserError(f"tracker {kind!r} is none of {', '.join(KINDS)}")


class Shielded:
    """A tracker whose errors end its own tracking and nothing else: metrics.jsonl has everything in any case."""

    def __init__(self, tracker: Tracker, kind: str) -> None:
        self._tracker: Tracker | None = tracker
        self._kind = kind

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Hand the record on, unless the tracker has failed before."""
        self._attempt(lambda tracker: tracker.log(metrics))

    def close(self) -> None:
        """Close the tracker. Safe to call twice."""
        self._attempt(lambda tracker: tracker.close())
        self._tracker = None

    def _attempt(self, use: Callable[[Tracker], None]) -> None:
        if self._tracker is None:
            return
        try:
            use(self._tracker)
        except Exception as error:
            self._tracker = None
            print(
                f"t1: tracker {self._kind} failed and is off: {error}; metrics.jsonl goes on, and has it all",
                file=sys.stderr,
            )


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
