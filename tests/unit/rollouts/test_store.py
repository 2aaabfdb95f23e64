"""A step's file gives back what was written, bit for bit, and is whole or absent."""

import errno
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from t1.errors import RunError
from t1.rollouts.store import (
    _TURN,
    ROW_GROUP,
    SCHEMA,
    pack_rollout,
    read_rollout,
    read_step,
    unpack_rollout,
    write_step,
)
from t1.types import (
    AssertionResult,
    AssertionStatus,
    Boundary,
    Case,
    Failure,
    FinishReason,
    Outcome,
    RewardSource,
    Rollout,
    RolloutId,
    RolloutTimings,
    SampleTimings,
    StopReason,
    TamperEvidence,
    Trajectory,
    Turn,
    Verdict,
)


def same(a, b):
    """Equal to the last bit, dtypes and kinds included."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return type(a) is type(b) and a == b


def rollout_of(rng, member, num_turns=3, dtype=np.uint8, routed=True):
    """An append-only rollout and its one trajectory."""
    prompt, turns, start = rng.integers(0, 1000, 20, dtype=np.int32), [], 0
    for index in range(num_turns):
        completion = rng.integers(0, 1000, 7, dtype=np.int32)
        fed = len(prompt) + 6
        turns.append(
            Turn(
                prompt=prompt,
                completion=completion,
                logprobs=-rng.random(7, dtype=np.float32),
                versions=np.full(7, index, dtype=np.int32),
                finish=FinishReason.LENGTH if index == 1 else FinishReason.STOP,
                routing=rng.integers(0, 200, (fed - start, 2, 3)).astype(dtype) if routed else None,
                routing_start=start if routed else 0,
                action=f"echo {index} | sort",
                observation="café\n\x00🙂",
                timings=SampleTimings(0.1, 0.2, 1 / 3, index),
                sandbox_s=0.7,
            )
        )
        start = fed
        prompt = np.concatenate([prompt, completion, rng.integers(0, 1000, 5, dtype=np.int32)])
    verdict = Verdict(
        (AssertionResult("made", AssertionStatus.PASSED), AssertionResult("sorted", AssertionStatus.SKIPPED, "why")),
        solved=False,
        tamper=(TamperEvidence("shim", "/usr/bin/sort"),),
        duration_s=0.3,
    )
    outcome = Outcome(StopReason.TURN_LIMIT, verdict, 1 / 3, RewardSource.ASSERTIONS)
    rollout = Rollout(
        RolloutId("suite/täsk", 4, member), "digest", tuple(turns), outcome, RolloutTimings(1.5, 0.1, 0.2, 0.3, 0.4), 2
    )
    tokens = np.concatenate([turns[-1].prompt, turns[-1].completion])
    mask = np.zeros(len(tokens), dtype=np.bool_)
    turn_of = np.zeros(len(tokens), dtype=np.int32)
    held = 0
    for index, turn in enumerate(turns):
        mask[len(turn.prompt) : len(turn.prompt) + 7] = True
        turn_of[held : len(turn.prompt) + 7] = index
        held = len(turn.prompt) + 7
    logprobs = np.zeros(len(tokens), dtype=np.float32)
    logprobs[mask] = np.concatenate([turn.logprobs for turn in turns])
    return rollout, Trajectory(
        rollout=rollout.id,
        segment=0,
        tokens=tokens,
        mask=mask,
        logprobs=logprobs,
        turn=turn_of,
        version=turn_of.copy(),
        routing=np.concatenate([turn.routing for turn in turns]) if routed else None,
        boundaries=(Boundary(0, Case.OPEN, 0, 20), Boundary(1, Case.STRICT, 27, 5), Boundary(2, Case.STRICT, 39, 5)),
    )


@pytest.mark.parametrize(("dtype", "routed"), [(np.uint8, True), (np.uint16, True), (np.uint8, False)])
def test_a_step_comes_back_bit_for_bit(tmp_path, dtype, routed):
    rng = np.random.default_rng(0)
    pairs = [rollout_of(rng, member, dtype=dtype, routed=routed) for member in range(3)]
    rollouts, trajectories = [list(part) for part in zip(*pairs, strict=True)]
    trajectories.reverse()
    write_step(tmp_path / "step.parquet", rollouts, trajectories)
    read = read_step(tmp_path / "step.parquet")
    assert same(read[0], rollouts)
    assert same(read[1], trajectories)
    assert read[1][0].tokens.flags.writeable


def test_one_rollout_is_read_without_the_others(tmp_path):
    rng = np.random.default_rng(5)
    made = [rollout_of(rng, member, num_turns=2) for member in range(ROW_GROUP + 3)]
    path = tmp_path / "rl-00000.parquet"
    write_step(path, [rollout for rollout, _ in made], [trajectory for _, trajectory in made])
    for row in (0, ROW_GROUP - 1, ROW_GROUP, ROW_GROUP + 2):
        rollout, segments = read_rollout(path, row)
        assert same(rollout, made[row][0])
        assert same(segments, [made[row][1]])
    for row in (-1, ROW_GROUP + 3):
        with pytest.raises(RunError, match=f"none at row {row}"):
            read_rollout(path, row)


def test_odd_values_come_back_bit_for_bit(tmp_path):
    """What the auditor must see is stored as it is: NaN, −0.0, −inf, an empty rollout, turns that share nothing."""
    rollout, trajectory = rollout_of(np.random.default_rng(1), 0)
    odd = np.array([np.nan, -0.0, -np.inf, 1e-45, -1, 2, np.inf], dtype=np.float32)
    first, second, third = rollout.turns
    turns = (replace(first, logprobs=odd), replace(third), replace(second, routing=None, routing_start=3))
    failed = Outcome(StopReason.FAILED, None, None, RewardSource.NONE, Failure("SandboxVanished", "gone", "run"))
    rollouts = [replace(rollout, turns=turns), replace(rollout, id=RolloutId("t", 0, 1), turns=(), outcome=failed)]
    logprobs = trajectory.logprobs.copy()
    logprobs[:7] = odd
    write_step(tmp_path / "step.parquet", rollouts, [replace(trajectory, logprobs=logprobs)])
    read, trained = read_step(tmp_path / "step.parquet")
    assert same(read, rollouts)
    assert same(trained, [replace(trajectory, logprobs=logprobs)])


def test_rows_that_no_capture_gives_back_are_stored_as_they_were_trained(tmp_path):
    rollout, trajectory = rollout_of(np.random.default_rng(2), 0)
    routing = trajectory.routing.copy()
    routing[5] += 1
    corrupt = replace(trajectory, routing=routing)
    misplaced = replace(trajectory, segment=1, turn=trajectory.turn + 1)
    write_step(tmp_path / "step.parquet", [rollout], [corrupt, misplaced])
    assert same(read_step(tmp_path / "step.parquet")[1], [corrupt, misplaced])


def test_an_empty_step_comes_back(tmp_path):
    write_step(tmp_path / "step.parquet", [], [])
    assert read_step(tmp_path / "step.parquet") == ([], [])


def test_bytes_grow_with_tokens_not_with_turns_times_tokens(tmp_path):
    sizes = []
    for num_turns in (20, 80):
        rollout, _ = rollout_of(np.random.default_rng(3), 0, num_turns=num_turns)
        write_step(tmp_path / "step.parquet", [rollout], [])
        sizes.append((tmp_path / "step.parquet").stat().st_size)
    assert sizes[1] < 4.5 * sizes[0]


def test_interleaved_branches_cost_no_more_than_one_after_the_other(tmp_path):
    """Turns A1 B1 A2 B2 …: each prompt is stored as what it adds to its own branch."""
    rng = np.random.default_rng(8)
    branches = [rollout_of(rng, 0, num_turns=30, routed=False)[0].turns for _ in range(3)]
    sizes = []
    for turns in (
        tuple(turn for branch in branches for turn in branch),
        tuple(turn for together in zip(*branches, strict=True) for turn in together),
    ):
        rollout = replace(rollout_of(rng, 0)[0], turns=turns)
        write_step(tmp_path / "step.parquet", [rollout], [])
        assert same(read_step(tmp_path / "step.parquet")[0], [rollout])
        sizes.append((tmp_path / "step.parquet").stat().st_size)
    assert sizes[1] < 1.2 * sizes[0]


TEXTS = {
    "lone surrogate": "name \ud83d end",
    "reversed pair": "\ude42\ud83d",
    "surrogate escape": b"\xff\xfe".decode("utf-8", "surrogateescape"),
    "nul": "a\x00b\x00",
    "carriage return": "a\r\nb\r",
    "replacement character": "\ufffd",
    "not a character": "\uffff\U0010ffff",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_comes_back_exactly_and_can_be_read_by_others(tmp_path, text):
    rollout, _ = rollout_of(np.random.default_rng(9), 0)
    first, *rest = rollout.turns
    verdict = replace(rollout.outcome.verdict, report_error=text)
    rollout = replace(
        rollout,
        turns=(replace(first, action=text, observation=f"{text}!"), *rest),
        outcome=replace(rollout.outcome, verdict=verdict),
    )
    write_step(tmp_path / "step.parquet", [rollout], [])
    assert same(read_step(tmp_path / "step.parquet")[0], [rollout])
    assert same(unpack_rollout(pack_rollout(rollout)), rollout)
    (row,) = pq.read_table(tmp_path / "step.parquet").to_pylist()
    shown = row["turns"][0]["action"]
    assert shown.encode("utf-8") and (shown == text) == (row["turns"][0]["exact_action"] is None)


def test_a_byte_that_flips_on_disk_is_never_believed(tmp_path):
    """Whatever the column, texts and timings too: what is read is what was written, or nothing."""
    rollout, trajectory = rollout_of(np.random.default_rng(10), 0)
    path = tmp_path / "step.parquet"
    write_step(path, [rollout], [trajectory])
    whole = path.read_bytes()
    refused = 0
    for position in np.random.default_rng(11).integers(4, len(whole), 60).tolist():
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        try:
            assert same(read_step(path), ([rollout], [trajectory])), position
        except RunError:
            refused += 1
    assert refused


def test_the_first_format_is_still_read(tmp_path):
    """It has no base and no exact texts: a prompt goes on from the turn before."""
    rollout, trajectory = rollout_of(np.random.default_rng(12), 0)
    path = tmp_path / "step.parquet"
    write_step(path, [rollout], [trajectory])
    rows = pq.read_table(path).to_pylist()
    for turn in rows[0]["turns"]:
        for name in ("base", "exact_action", "exact_observation"):
            del turn[name]
    kept = [field for field in _TURN if field.name not in ("base", "exact_action", "exact_observation")]
    old = pa.schema(
        [pa.field("turns", pa.large_list(pa.struct(kept))) if field.name == "turns" else field for field in SCHEMA],
        metadata={b"format": b"t1-rollouts-1"},
    )
    pq.write_table(pa.Table.from_pylist(rows, schema=old), path)
    assert same(read_step(path), ([rollout], [trajectory]))


def test_any_parquet_reader_can_query_the_file(tmp_path):
    rollout, trajectory = rollout_of(np.random.default_rng(4), 0)
    write_step(tmp_path / "step.parquet", [rollout], [trajectory])
    (row,) = pq.read_table(tmp_path / "step.parquet").to_pylist()
    assert row["turns"][1]["action"] == "echo 1 | sort"
    assert row["trajectories"][0]["boundaries"][2]["case"] == "strict"
    assert row["trajectories"][0]["routing"] is None, "rows are stored once, with the turns"


def test_a_full_disk_is_a_clear_error_and_leaves_no_half_file(tmp_path):
    rollout, trajectory = rollout_of(np.random.default_rng(5), 0)
    target = tmp_path / "step.parquet"
    write_step(target, [rollout], [])
    before = target.read_bytes()
    (tmp_path / ".step.parquet.new").symlink_to("/dev/full")  # every write to it fails like one to a full disk
    with pytest.raises(RunError, match=r"step\.parquet: .*the disk is full") as caught:
        write_step(target, [rollout], [trajectory])
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["step.parquet"]


def test_a_file_that_is_missing_cut_or_of_another_kind_is_refused(tmp_path):
    with pytest.raises(RunError, match="no readable file"):
        read_step(tmp_path / "none.parquet")
    rollout, _ = rollout_of(np.random.default_rng(6), 0)
    write_step(tmp_path / "cut.parquet", [rollout], [])
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "cut.parquet").read_bytes()[:-100])
    with pytest.raises(RunError, match="no readable file"):
        read_step(tmp_path / "cut.parquet")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    with pytest.raises(RunError, match="not of rollouts"):
        read_step(tmp_path / "other.parquet")


def test_a_trajectory_without_its_rollout_is_refused(tmp_path):
    rollout, trajectory = rollout_of(np.random.default_rng(7), 0)
    with pytest.raises(ValueError, match="not among the rollouts"):
        write_step(tmp_path / "step.parquet", [], [trajectory])
    with pytest.raises(ValueError, match="2 rollouts share 1 ids"):
        write_step(tmp_path / "step.parquet", [rollout, rollout], [])
    assert not list(tmp_path.iterdir())
