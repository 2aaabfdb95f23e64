"""What bounds a whole sandbox, on this host's control groups and on trees of files that look like others'."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from t1.sandboxes import NamespaceProvider, cgroups
from t1.sandboxes.cgroups import Group, GroupLimits, Place
from t1.sandboxes.leases import lease, sweep
from t1.types import Task

LIMITS = GroupLimits(memory_mb=64, num_processes=50, cpus=0.5)
place = cgroups.find()
needs_groups = pytest.mark.skipif(place is None, reason="this host has no place for control groups")


def groups_named(prefix: str) -> list[Path]:
    """Groups of this host whose name starts so."""
    assert place is not None
    return [path for parent in place.parents.values() for path in parent.glob(f"{prefix}*")]


@needs_groups
def test_a_group_has_its_limits_and_goes_away() -> None:
    assert place is not None
    group = place.make(f"t1-test-{os.getpid()}", LIMITS)
    try:
        texts = {path.name: path.read_text() for folder in group.directories for path in folder.glob("*.m*")}
        assert texts["pids.max"] == "50\n"
        assert texts.get("memory.max", texts.get("memory.max_usage_in_bytes")) is not None
    finally:
        group.remove()
    assert not any(folder.exists() for folder in group.directories)


@needs_groups
async def test_processes_together_cannot_take_more_memory_than_the_task_allows(
    provider: NamespaceProvider, make_task: Callable[..., Task]
) -> None:
    sandbox = await provider.open(make_task(memory_mb=64))
    hold = "x=$(head -c 12000000 /dev/zero | tr '\\0' x); sleep 0.3; echo held ${#x}"
    alone = await sandbox.run(f"({hold})", timeout_s=20)
    assert alone.output == "held 12000000\n"
    ended = await sandbox.run(f"for n in 1 2 3 4 5 6; do ({hold}) & done; wait", timeout_s=20)
    assert ended.output.count("held 12000000") < 6
    assert (await sandbox.run("echo fine", timeout_s=20)).output.endswith("fine\n")


@needs_groups
async def test_a_closed_sandbox_leaves_no_group(provider: NamespaceProvider, make_task: Callable[..., Task]) -> None:
    sandbox = await provider.open(make_task())
    name = sandbox.directory.parent.name
    assert groups_named(name)
    await sandbox.close()
    assert groups_named(name) == []


@needs_groups
def test_groups_of_a_killed_owner_are_swept(tmp_path: Path) -> None:
    """Case F3."""
    assert place is not None
    left = lease(tmp_path, groups=map(str, place.parents.values()))
    place.make(f"{left.name}-s0", LIMITS)
    (left / "owner.json").write_text((left / "owner.json").read_text().replace('"started": ', '"started": 1'))
    assert sweep(tmp_path) == [left]
    assert groups_named(left.name) == []


@needs_groups
async def test_nothing_but_its_processes_is_ever_moved_into_a_group(
    provider: NamespaceProvider, make_task: Callable[..., Task]
) -> None:
    before = group_of("self")
    sandbox = await provider.open(make_task())
    assert {group_of(f"self/task/{task}") for task in os.listdir("/proc/self/task")} == {before}  # noqa: PTH208
    assert group_of(str(sandbox.pid)) != before


def group_of(process: str) -> str:
    """The control groups of a process or thread."""
    return Path(f"/proc/{process}/cgroup").read_text()


def test_version_2_writes_its_own_files_and_adopts_by_pid(tmp_path: Path) -> None:
    (tmp_path / "g").mkdir()
    for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "cgroup.procs"):
        (tmp_path / "g" / name).touch()
    group = Group(2, (tmp_path / "g",), (tmp_path,))
    for controller, files in LIMITS.unified_files().items():
        assert controller in ("memory", "pids", "cpu")
        cgroups._set(tmp_path / "g", files)
    group.enter()
    group.adopt(123)
    group.leave()
    written = {path.name: path.read_text() for path in (tmp_path / "g").iterdir()}
    assert written == {
        "memory.max": str(64 << 20), "memory.swap.max": "0", "pids.max": "50", "cpu.max": "50000 100000",
        "cgroup.procs": "123",
    }  # fmt: skip


def test_a_group_that_cannot_be_had_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir()
    with pytest.raises(OSError):
        Place(1, {"memory": tmp_path / "none", "pids": tmp_path / "shut"}).make("x", LIMITS)
    assert not (tmp_path / "shut" / "x").exists()


@needs_groups
def test_a_place_is_tried_before_it_is_used(tmp_path: Path) -> None:
    assert place is not None
    name = f"t1-test-works-{os.getpid()}"
    assert place.works(name)
    assert groups_named(name) == []
    assert not Place(1, {"memory": tmp_path / "none", "pids": tmp_path}).works(name)


def test_the_place_says_what_it_bounds() -> None:
    assert str(Place(2, {"memory": Path("/x"), "pids": Path("/x")})) == "cgroups v2: memory, pids"
