"""Trajectories by reference: one memory-mapped Arrow file a step, written as rollouts come, sliced by every rank.

A rollout's arrays go to the file at once, routing included, and are forgotten. What travels between processes is the
file's path (`StoredRollouts`). A reader's `Trajectory` holds views of the mapping: bytes are read when a pack is
joined, by the rank whose pack it is, and the operating system may drop them again. Reading and writing cost an index
entry a trajectory. Boundary: stores and returns trajectories exactly; the log of whole rollouts, for people, is
`t1.rollouts.store`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from t1.errors import RunError, disk_reason
from t1.types import Boundary, Case, RolloutId, Trajectory

if TYPE_CHECKING:
    from t1.training.batches import Rewarded

INDEX_BYTES = 98_304
"""Of private memory that a rollout of 300 turns costs whoever writes or reads the file; its arrays cost none."""
_ARRAYS = {"tokens": np.int32, "mask": np.bool_, "logprobs": np.float32, "turn": np.int32, "version": np.int32}
_SCHEMA = pa.schema(
    [pa.field("about", pa.large_string())] + [pa.field(name, pa.large_binary()) for name in (*_ARRAYS, "routing")]
)


class TrajectoryWriter:
    """Appends rollouts to a new file; the file can be read once this is closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial = path.with_name(f".{path.name}.partial")
        self._sink = pa.OSFile(str(self._partial), "wb")
        self._writer = pa.ipc.new_file(self._sink, _SCHEMA)
        self._rollouts = 0

    def write(self, segments: Sequence[Trajectory], reward: float) -> None:
        """One rollout: its segments, and what it earned."""
        for trajectory in segments:
            about = json.dumps(_about(trajectory, self._rollouts, reward))
            arrays = [getattr(trajectory, name) for name in _ARRAYS] + [trajectory.routing]
            columns: list[Any] = [pa.array([about], pa.large_string())]
            columns += [_binary(array) for array in arrays]
            self._writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        self._rollouts += 1

    def close(self) -> None:
        """Finish the file: it appears by one rename."""
        self._writer.close()
        self._sink.close()
        self._partial.rename(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._sink.close()
            self._partial.unlink(missing_ok=True)


class StoredRollouts(Sequence["Rewarded"]):
    """A file's rollouts, by reference: pickled, it is the path, and whoever unpickles it maps the file anew.

    Equal to a list of (segments, reward) for everyone who reads it. Every reader's machine must see the path.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._rollouts = read_rewarded(path)

    def __len__(self) -> int:
        return len(self._rollouts)

    @overload
    def __getitem__(self, index: int) -> Rewarded: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Rewarded]: ...

    def __getitem__(self, index: int | slice) -> Rewarded | Sequence[Rewarded]:
        return self._rollouts[index]

    def __reduce__(self) -> tuple[type[StoredRollouts], tuple[Path]]:
        return StoredRollouts, (self.path,)


def store_rollouts(path: Path, rollouts: Iterable[Rewarded]) -> StoredRollouts:
    """Write rollouts to `path`, over what was there before; those of an iterator are never held together.

    Raises RunError where the disk does not take them.
    """
    try:
        with TrajectoryWriter(path) as writer:
            for segments, reward in rollouts:
                writer.write(segments, reward)
    except OSError as error:
        raise RunError(f"{path}: the step's trajectories could not be written: {disk_reason(error)}") from error
    return StoredRollouts(path)


def read_rewarded(path: Path) -> list[tuple[tuple[Trajectory, ...], float]]:
    """(segments, reward) of every rollout, in the order of writing; arrays are views of the file, read-only.

    Raises RunError for a file that is not whole.
    """
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
    except (OSError, pa.ArrowInvalid) as error:
        raise RunError(f"{path}: no complete file of trajectories: {error}") from error
    rollouts: dict[int, tuple[list[Trajectory], float]] = {}
    for index in range(reader.num_record_batches):
        batch = reader.get_batch(index)
        about = json.loads(batch.column("about")[0].as_py())
        segments, _ = rollouts.setdefault(about["rollout"], ([], about["reward"]))
        segments.append(_trajectory(batch, about))
    return [(tuple(segments), reward) for segments, reward in rollouts.values()]


def _about(trajectory: Trajectory, rollout: int, reward: float) -> dict[str, Any]:
    """What is not an array."""
    routing = trajectory.routing
    return {
        "rollout": rollout,
        "reward": reward,
        "id": dataclasses.astuple(trajectory.rollout),
        "segment": trajectory.segment,
        "routing": None if routing is None else [str(routing.dtype), list(routing.shape)],
        "boundaries": [dataclasses.astuple(boundary) for boundary in trajectory.boundaries],
    }


def _trajectory(batch: Any, about: dict[str, Any]) -> Trajectory:
    """Views of one record batch; they keep the mapping alive."""
    arrays: dict[str, Any] = {name: _view(batch.column(name), dtype) for name, dtype in _ARRAYS.items()}
    routing = None
    if about["routing"] is not None:
        dtype, shape = about["routing"]
        routing = _view(batch.column("routing"), np.dtype(dtype)).reshape(shape)
    boundaries = tuple(Boundary(turn, Case(case), *counts) for turn, case, *counts in about["boundaries"])
    return Trajectory(RolloutId(*about["id"]), about["segment"], **arrays, routing=routing, boundaries=boundaries)


def _binary(array: npt.NDArray[Any] | None) -> Any:
    """A column of one value: the array's own memory, not copied where it is contiguous."""
    if array is None:
        return pa.array([None], pa.large_binary())
    content = pa.py_buffer(np.ascontiguousarray(array))
    offsets = pa.py_buffer(np.array([0, content.size], dtype=np.int64))
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, [None, offsets, content])


def _view(column: Any, dtype: Any) -> npt.NDArray[Any]:
    """The bytes of a column of one value, as an array, without a copy."""
    _, offsets, content = column.buffers()
    start, stop = np.frombuffer(offsets, np.int64, count=2, offset=8 * column.offset)
    if start == stop:
        return np.empty(0, dtype)
    view: npt.NDArray[Any] = np.frombuffer(content, np.uint8)[start:stop].view(dtype)
    return view
