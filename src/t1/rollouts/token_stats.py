"""What the trainer said of every sampled token of a step, in a Parquet file of its own beside the step's rollouts.

One row a trajectory: the trainer's log-probability before it learned, the critic's value, the advantage and the return,
each for the trajectory's actions in the order of its tokens. Rows are found by rollout and segment, and believed only
where the tokens are still the same: a resumed run may have written the rollouts again.

Boundary: reads and writes values. Nothing that trains, resumes or judges a run reads this file; it is there to be
looked at, so it may be cut to a size: whole rollouts are left out, evenly over the step.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from t1.errors import RunError, disk_reason
from t1.types import FloatArray, RolloutId, Trajectory

FORMAT = b"t1-token-stats-1"
COLUMNS = ("logprobs", "values", "advantages", "returns")
BYTES_PER_ACTION = 4 * len(COLUMNS)
ROW_GROUP = 64
"""Trajectories that are read together."""
_FLOATS = pa.large_list(pa.float32())
SCHEMA = pa.schema(
    [
        ("task", pa.string()),
        ("group", pa.int64()),
        ("member", pa.int64()),
        ("segment", pa.int32()),
        ("tokens_crc", pa.int64()),
        *((name, _FLOATS) for name in COLUMNS),
    ],
    metadata={b"format": FORMAT},
)


@dataclass(frozen=True, slots=True, eq=False)
class TokenStats:
    """Of one trajectory with `a` actions, in the order of its tokens."""

    rollout: RolloutId
    segment: int
    tokens_crc: int
    """CRC-32 of the trajectory's tokens."""
    logprobs: FloatArray
    """[a] by the trainer's policy at the weights that the step began with."""
    values: FloatArray
    """[a] by the critic, before the action."""
    advantages: FloatArray
    """[a] as the policy's loss saw them."""
    returns: FloatArray
    """[a] the critic's targets."""

    def __post_init__(self) -> None:
        shapes = {name: getattr(self, name).shape for name in COLUMNS}
        if len(set(shapes.values())) != 1 or self.logprobs.ndim != 1:
            raise ValueError(f"token stats of {self.rollout}: expected [a] for each, got {shapes}")


def tokens_crc(trajectory: Trajectory) -> int:
    """What tells the tokens of two trajectories apart."""
    return zlib.crc32(np.ascontiguousarray(trajectory.tokens).tobytes())


def write_token_stats(path: Path, stats: Sequence[TokenStats], *, max_bytes: int) -> int:
    """Write the stats of as many rollouts as fit in `max_bytes`, evenly over the step; returns how many it left out."""
    kept = _thinned(stats, max_bytes)
    rows = [
        {
            "task": one.rollout.task,
            "group": one.rollout.group,
            "member": one.rollout.member,
            "segment": one.segment,
            "tokens_crc": one.tokens_crc,
            **{name: getattr(one, name) for name in COLUMNS},
        }
        for one in kept
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.new")
    try:
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        pq.write_table(table, scratch, compression="zstd", write_page_checksum=True, row_group_size=ROW_GROUP)
        scratch.replace(path)
    except OSError as error:
        raise RunError(
            f"{path}: what the trainer said of the tokens cannot be written: {disk_reason(error)}"
        ) from error
    finally:
        scratch.unlink(missing_ok=True)
    return len({one.rollout for one in stats}) - len({one.rollout for one in kept})


def _thinned(stats: Sequence[TokenStats], max_bytes: int) -> list[TokenStats]:
    """All, or every n-th rollout with the smallest n that fits."""
    sizes: dict[RolloutId, int] = {}
    for one in stats:
        sizes[one.rollout] = sizes.get(one.rollout, 0) + BYTES_PER_ACTION * len(one.logprobs)
    rollouts = list(sizes)
    every = 1
    while sum(sizes[rollout] for rollout in rollouts[::every]) > max_bytes and every < len(rollouts):
        every += 1
    chosen = rollouts[::every]
    if sum(sizes[rollout] for rollout in chosen) > max_bytes:
        chosen = []
    kept = set(chosen)
    return [one for one in stats if one.rollout in kept]


def read_token_stats(path: Path, trajectory: Trajectory) -> TokenStats | None:
    """What the file says of this trajectory; None where it says nothing, or something of other tokens."""
    if not path.is_file():
        return None
    ident = trajectory.rollout
    asked = [("task", "=", ident.task), ("group", "=", ident.group), ("member", "=", ident.member)]
    try:
        table = pq.read_table(path, filters=[*asked, ("segment", "=", trajectory.segment)])
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"{path}: no readable file of token stats: {error}") from error
    if (table.schema.metadata or {}).get(b"format") != FORMAT:
        raise RunError(f"{path}: a Parquet file, but not of token stats in the format {FORMAT.decode()}")
    crc = tokens_crc(trajectory)
    for row in table.to_pylist():
        if row["tokens_crc"] == crc and len(row["logprobs"]) == trajectory.num_actions:
            arrays = {name: np.asarray(row[name], np.float32) for name in COLUMNS}
            return TokenStats(ident, trajectory.segment, crc, **arrays)
    return None
