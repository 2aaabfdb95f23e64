"""The rollouts of a step, and what was trained of them, in one Parquet file.

One row a rollout, with its turns and its trajectories nested, so that any Parquet reader can query them. A prompt is
stored as what it adds to the earlier turn that it goes on from, so bytes grow with tokens and not with turns × tokens.
Of trajectories every column is stored as it was trained. Only their routing, the widest column, is stored as spans of
the turns' captures, after the spans were found to give it back bit for bit; rows that no spans give back are stored as
they are.

Text. Parquet's strings are UTF-8, which has no lone surrogates. A text that holds one is stored twice: readable, with
U+FFFD in its place, and exact, as bytes (Python's `surrogatepass`); what is read is exact. NUL needs nothing. Pages
carry checksums: a bit that flips on disk makes the file unreadable instead of being believed.

Boundary: reads and writes values, exactly; it judges nothing (`t1.training.offline_audit` does).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from t1.errors import RunError, disk_reason
from t1.types import (
    Boundary,
    Case,
    FinishReason,
    IntArray,
    Outcome,
    Rollout,
    RolloutId,
    RolloutTimings,
    RoutingArray,
    SampleTimings,
    Trajectory,
    Turn,
)

FORMAT = b"t1-rollouts-2"
READABLE = (FORMAT, b"t1-rollouts-1")
"""The first format knew only the turn before, and no exact texts: what is missing in it has one meaning."""
LOOK_BACK = 32
"""Turns among which the one that a prompt goes on from is looked for; more branches at once only cost bytes."""
ROW_GROUP = 64
"""Rollouts that are read together: one rollout costs its row group, not its file."""
GROUP_BYTES = 256 << 20
"""Of captured routing, after which a row group is full in any case."""
_OUTCOME = TypeAdapter(Outcome)
_INTS, _FLOATS = pa.large_list(pa.int32()), pa.large_list(pa.float32())
_ROUTING = pa.struct(
    [("rows", pa.large_binary()), ("layers", pa.int32()), ("chosen", pa.int32()), ("bytes", pa.int8())]
)
_SPAN = pa.struct([("turn", pa.int32()), ("first", pa.int32()), ("count", pa.int32())])
_BOUNDARY = pa.struct(
    [("turn", pa.int32()), ("case", pa.string())]
    + [(name, pa.int32()) for name in ("kept", "inserted", "dropped", "residual")]
)
_TURN = pa.struct(
    [
        ("base", pa.int32()),  # the earlier turn that the prompt goes on from; −1 where there is none
        ("shared", pa.int32()),  # tokens that the prompt shares with that turn's prompt and completion
        ("added", _INTS),  # the rest of the prompt
        ("completion", _INTS),
        ("logprobs", _FLOATS),
        ("versions", _INTS),
        ("finish", pa.string()),
        ("routing", _ROUTING),
        ("routing_start", pa.int32()),
        ("action", pa.large_string()),
        ("observation", pa.large_string()),
        ("exact_action", pa.large_binary()),  # null where the string is exact
        ("exact_observation", pa.large_binary()),
        ("queue_s", pa.float64()),
        ("prefill_s", pa.float64()),
        ("decode_s", pa.float64()),
        ("cached_tokens", pa.int64()),
        ("sandbox_s", pa.float64()),
    ]
)
_TRAJECTORY = pa.struct(
    [
        ("place", pa.int32()),  # index among the trajectories of the step
        ("segment", pa.int32()),
        ("tokens", _INTS),
        ("mask", pa.large_list(pa.bool_())),
        ("logprobs", _FLOATS),
        ("turn", _INTS),
        ("version", _INTS),
        ("spans", pa.list_(_SPAN)),
        ("routing", _ROUTING),
        ("boundaries", pa.list_(_BOUNDARY)),
    ]
)
_TIMINGS = ("wall_s", "queue_s", "engine_s", "sandbox_s", "verifier_s")
SCHEMA = pa.schema(
    [
        ("task", pa.string()),
        ("group", pa.int64()),
        ("member", pa.int64()),
        ("task_digest", pa.string()),
        ("attempts", pa.int32()),
        ("outcome", pa.string()),  # JSON
        *((name, pa.float64()) for name in _TIMINGS),
        ("turns", pa.large_list(_TURN)),
        ("trajectories", pa.large_list(_TRAJECTORY)),
    ],
    metadata={b"format": FORMAT},
)
Record = dict[str, Any]


def write_step(path: Path, rollouts: Sequence[Rollout], trajectories: Sequence[Trajectory]) -> None:
    """Write a step's file; a reader sees all of it or nothing. Each trajectory must belong to one of the rollouts."""
    parts: dict[RolloutId, list[tuple[int, Trajectory]]] = {rollout.id: [] for rollout in rollouts}
    if len(parts) != len(rollouts):
        raise ValueError(f"write_step: {len(rollouts)} rollouts share {len(parts)} ids")
    for place, trajectory in enumerate(trajectories):
        if trajectory.rollout not in parts:
            raise ValueError(f"write_step: trajectory of {trajectory.rollout}, which is not among the rollouts")
        parts[trajectory.rollout].append((place, trajectory))
    scratch = path.with_name(f".{path.name}.new")
    try:
        with scratch.open("wb") as file:
            with pq.ParquetWriter(file, SCHEMA, compression="zstd", write_page_checksum=True) as writer:
                for group in _row_groups(rollouts):
                    records = [_rollout_record(rollout, parts[rollout.id]) for rollout in group]
                    writer.write_table(pa.Table.from_pylist(records, schema=SCHEMA), row_group_size=ROW_GROUP)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:
        raise RunError(f"{path}: the step's rollouts cannot be written: {disk_reason(error)}") from error
    finally:
        scratch.unlink(missing_ok=True)


def _row_groups(rollouts: Sequence[Rollout]) -> Iterator[Sequence[Rollout]]:
    """The rollouts in groups that are written, and read, together: few enough for their captures to fit in memory."""
    start, captured = 0, 0
    for stop, rollout in enumerate(rollouts, start=1):
        captured += sum(turn.routing.nbytes for turn in rollout.turns if turn.routing is not None)
        if stop - start == ROW_GROUP or captured >= GROUP_BYTES:
            yield rollouts[start:stop]
            start, captured = stop, 0
    if start < len(rollouts) or not rollouts:
        yield rollouts[start:]


def read_step(path: Path) -> tuple[list[Rollout], list[Trajectory]]:
    """The rollouts and trajectories of a step's file, as they were written."""
    try:
        table = pq.read_table(path, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"{path}: no readable file of rollouts: {error}") from error
    if (table.schema.metadata or {}).get(b"format") not in READABLE:
        raise RunError(f"{path}: a Parquet file, but not of rollouts in the format {FORMAT.decode()}")
    if table.schema.metadata[b"format"] == FORMAT and not table.schema.equals(SCHEMA):
        raise RunError(f"{path}: its columns are not those of the format {FORMAT.decode()}: the file is damaged")
    rollouts, placed = [], []
    for row in _cells(table.to_struct_array().combine_chunks()):
        rollout = _rollout(row)
        rollouts.append(rollout)
        placed += [(record["place"], _trajectory(record, rollout)) for record in row["trajectories"]]
    return rollouts, [trajectory for _, trajectory in sorted(placed, key=lambda pair: pair[0])]


def read_rollout(path: Path, row: int) -> tuple[Rollout, list[Trajectory]]:
    """One rollout of a step's file and its segments in order, without reading the row groups beside its own."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if (file.schema_arrow.metadata or {}).get(b"format") not in READABLE:
                raise RunError(f"{path}: a Parquet file, but not of rollouts in the format {FORMAT.decode()}")
            group, first = 0, 0
            while group < file.num_row_groups and first + file.metadata.row_group(group).num_rows <= row:
                first += file.metadata.row_group(group).num_rows
                group += 1
            if row < 0 or group == file.num_row_groups:
                raise RunError(f"{path}: there is none at row {row}")
            table = file.read_row_group(group).take(pa.array([row - first]))
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"{path}: no readable file of rollouts: {error}") from error
    (record,) = _cells(table.to_struct_array().combine_chunks())
    rollout = _rollout(record)
    parts = [_trajectory(part, rollout) for part in record["trajectories"]]
    return rollout, sorted(parts, key=lambda part: part.segment)


def pack_rollout(rollout: Rollout) -> bytes:
    """One rollout, without trajectories, as an Arrow stream: what a ledger keeps until the step's file is written."""
    table = pa.Table.from_pylist([_rollout_record(rollout, [])], schema=SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpack_rollout(packed: bytes) -> Rollout:
    """The rollout that `pack_rollout` packed."""
    with pa.ipc.open_stream(packed) as reader:
        table = reader.read_all()
    if (table.schema.metadata or {}).get(b"format") not in READABLE or table.num_rows != 1:
        raise RunError(f"expected one packed rollout in the format {FORMAT.decode()}, got {table.num_rows} rows")
    (row,) = _cells(table.to_struct_array().combine_chunks())
    return _rollout(row)


# --------------------------------------------------------------------------------------------------------------------
# Values to records


def _rollout_record(rollout: Rollout, parts: Sequence[tuple[int, Trajectory]]) -> Record:
    return {
        "task": rollout.id.task,
        "group": rollout.id.group,
        "member": rollout.id.member,
        "task_digest": rollout.task_digest,
        "attempts": rollout.attempts,
        "outcome": json.dumps(_OUTCOME.dump_python(rollout.outcome, mode="json")),
        **{name: getattr(rollout.timings, name) for name in _TIMINGS},
        "turns": _turn_records(rollout.turns),
        "trajectories": [_trajectory_record(place, trajectory, rollout.turns) for place, trajectory in parts],
    }


def _turn_records(turns: Sequence[Turn]) -> list[Record]:
    """The turns, each prompt as its difference from an earlier turn."""
    records = []
    for index, turn in enumerate(turns):
        base, shared = _base_of(turns, index)
        (action, exact_action), (observation, exact_observation) = _text(turn.action), _text(turn.observation)
        records.append(
            {
                "base": base,
                "shared": shared,
                "added": turn.prompt[shared:],
                "completion": turn.completion,
                "logprobs": turn.logprobs,
                "versions": turn.versions,
                "finish": str(turn.finish),
                "routing": _routing_record(turn.routing),
                "routing_start": turn.routing_start,
                "action": action,
                "observation": observation,
                "exact_action": exact_action,
                "exact_observation": exact_observation,
                "queue_s": turn.timings.queue_s,
                "prefill_s": turn.timings.prefill_s,
                "decode_s": turn.timings.decode_s,
                "cached_tokens": turn.timings.cached_tokens,
                "sandbox_s": turn.sandbox_s,
            }
        )
    return records


def _base_of(turns: Sequence[Turn], index: int) -> tuple[int, int]:
    """(turn, tokens) of the earlier turn that the prompt shares most with; (−1, 0) where there is none."""
    base, most = -1, 0
    for earlier in range(index - 1, max(index - 1 - LOOK_BACK, -1), -1):
        seen = np.concatenate([turns[earlier].prompt, turns[earlier].completion])
        shared = _common_prefix(seen, turns[index].prompt)
        if shared > most:
            base, most = earlier, shared
        if shared in (len(seen), len(turns[index].prompt)):
            break
    return base, most


def _text(text: str) -> tuple[str, bytes | None]:
    """(what a string column can hold, the exact text where that is another one)."""
    exact = text.encode("utf-8", "surrogatepass")
    readable = exact.decode("utf-8", "replace")
    return readable, None if readable == text else exact


def _trajectory_record(place: int, trajectory: Trajectory, turns: Sequence[Turn]) -> Record:
    spans = _spans(trajectory, turns)
    return {
        "place": place,
        "segment": trajectory.segment,
        "tokens": trajectory.tokens,
        "mask": trajectory.mask,
        "logprobs": trajectory.logprobs,
        "turn": trajectory.turn,
        "version": trajectory.version,
        "spans": None if spans is None else [dict(zip(("turn", "first", "count"), s, strict=True)) for s in spans],
        "routing": _routing_record(trajectory.routing) if spans is None else None,
        "boundaries": [
            {name: getattr(b, name) for name in ("turn", "kept", "inserted", "dropped", "residual")}
            | {"case": str(b.case)}
            for b in trajectory.boundaries
        ],
    }


def _spans(trajectory: Trajectory, turns: Sequence[Turn]) -> list[tuple[int, int, int]] | None:
    """(turn, first row, rows) that give the trajectory's routing back bit for bit, or None where none do.

    Tried: the last rows of each turn's capture, as many as the turn brought tokens.
    """
    if trajectory.routing is None:
        return None
    owners, counts = np.unique(trajectory.turn, return_counts=True)
    counts[0] -= 1
    spans = []
    for owner, count in zip(owners.tolist(), counts.tolist(), strict=True):
        capture = turns[owner].routing if 0 <= owner < len(turns) else None
        if capture is None or len(capture) < count:
            return None
        spans.append((owner, len(capture) - count, count))
    return spans if _same(_rows(spans, turns), trajectory.routing) else None


def _rows(spans: Sequence[tuple[int, int, int]], turns: Sequence[Turn]) -> RoutingArray:
    """[T−1, L, K] the rows that the spans name."""
    captures = [(turns[turn].routing, first, count) for turn, first, count in spans]
    rows: RoutingArray = np.concatenate([c[first : first + count] for c, first, count in captures if c is not None])
    return rows


def _same(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    return a.dtype == b.dtype and np.array_equal(a, b)


def _routing_record(routing: RoutingArray | None) -> Record | None:
    if routing is None:
        return None
    _, layers, chosen = routing.shape
    return {"rows": routing.tobytes(), "layers": layers, "chosen": chosen, "bytes": routing.dtype.itemsize}


def _common_prefix(a: IntArray, b: IntArray) -> int:
    size = min(len(a), len(b))
    differ = np.flatnonzero(a[:size] != b[:size])
    return int(differ[0]) if len(differ) else size


# --------------------------------------------------------------------------------------------------------------------
# Records to values


def _cells(array: pa.Array) -> list[Any]:
    """The cells of a column: structs as dicts, lists of numbers as numpy arrays, never an object a token."""
    kind = array.type
    if pa.types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        rows = zip(*(_cells(column) for column in array.flatten()), strict=True)
        cells: list[Any] = [dict(zip(names, row, strict=True)) for row in rows]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values, offsets = array.values, array.offsets.to_pylist()
        inner = _cells(values) if pa.types.is_struct(kind.value_type) else values.to_numpy(zero_copy_only=False)
        cells = [inner[a:b] if isinstance(inner, list) else inner[a:b].copy() for a, b in pairwise(offsets)]
    else:
        cells = array.to_pylist()
    if array.null_count:
        return [cell if there else None for cell, there in zip(cells, array.is_valid().to_pylist(), strict=True)]
    return cells


def _rollout(record: Record) -> Rollout:
    return Rollout(
        id=RolloutId(record["task"], record["group"], record["member"]),
        task_digest=record["task_digest"],
        turns=_turns(record["turns"]),
        outcome=_OUTCOME.validate_python(json.loads(record["outcome"])),
        timings=RolloutTimings(**{name: record[name] for name in _TIMINGS}),
        attempts=record["attempts"],
    )


def _turns(records: Sequence[Record]) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    for index, record in enumerate(records):
        prompt, base = record["added"], record.get("base", index - 1)
        if record["shared"]:
            prompt = np.concatenate([turns[base].prompt, turns[base].completion])[: record["shared"]]
            prompt = np.concatenate([prompt, record["added"]])
        turns.append(
            Turn(
                prompt=prompt,
                completion=record["completion"],
                logprobs=record["logprobs"],
                versions=record["versions"],
                finish=FinishReason(record["finish"]),
                routing=_routing(record["routing"]),
                routing_start=record["routing_start"],
                action=_exact(record, "action"),
                observation=_exact(record, "observation"),
                timings=SampleTimings(
                    record["queue_s"], record["prefill_s"], record["decode_s"], record["cached_tokens"]
                ),
                sandbox_s=record["sandbox_s"],
            )
        )
    return tuple(turns)


def _exact(record: Record, name: str) -> str:
    """A text as it was written."""
    exact: bytes | None = record.get(f"exact_{name}")
    text: str = record[name] if exact is None else exact.decode("utf-8", "surrogatepass")
    return text


def _trajectory(record: Record, rollout: Rollout) -> Trajectory:
    routing = _routing(record["routing"])
    if record["spans"] is not None:
        routing = _rows([(span["turn"], span["first"], span["count"]) for span in record["spans"]], rollout.turns)
    return Trajectory(
        rollout=rollout.id,
        segment=record["segment"],
        tokens=record["tokens"],
        mask=record["mask"],
        logprobs=record["logprobs"],
        turn=record["turn"],
        version=record["version"],
        routing=routing,
        boundaries=tuple([Boundary(**{**fields, "case": Case(fields["case"])}) for fields in record["boundaries"]]),
    )


def _routing(record: Record | None) -> RoutingArray | None:
    if record is None:
        return None
    flat: RoutingArray = np.frombuffer(record["rows"], np.uint8 if record["bytes"] == 1 else np.uint16)  # type: ignore
    return flat.reshape(-1, record["layers"], record["chosen"]).copy()
