"""Nothing stays behind: cases F3 (orphans) and F4 (the agent's processes outlive it)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from t1.errors import SandboxVanished
from t1.sandboxes import Confinement, NamespaceProvider, NamespaceSandbox, sweep
from t1.sandboxes.leases import PREFIX, lease, remove
from t1.sandboxes.processes import started
from t1.types import Task
from t1.verification import PristineVerifier


@pytest.fixture
def open_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that other uids can pass through."""
    root = tmp_path_factory.mktemp("root")
    for folder in (root, *root.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o011)
    return root


def children() -> set[str]:
    """Our child processes, whichever thread started them."""
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def descriptors() -> int:
    """How many descriptors we hold."""
    return len(listing(Path("/proc/self/fd")))


def listing(folder: Path) -> list[Path]:
    """What a directory holds."""
    return sorted(folder.iterdir())


async def test_fifty_trials_leave_no_process_directory_or_descriptor(
    open_root: Path, confined: Confinement, make_task: Callable[..., Task]
) -> None:
    task = make_task(test="echo 1 > /logs/verifier/reward.txt\n")
    provider = NamespaceProvider(open_root, confinement=confined)
    verifier = PristineVerifier(provider)

    async def trial() -> None:
        sandbox = await provider.open(task)
        await sandbox.run("sleep 60 & echo x > /app/file", timeout_s=10)
        assert (await verifier.verify(task, sandbox)).solved
        await sandbox.close()

    await trial()
    before = children(), descriptors(), listing(listing(open_root)[0])
    for _ in range(10):
        await asyncio.gather(*(trial() for _ in range(5)))
    assert (children(), descriptors(), listing(listing(open_root)[0])) == before
    await provider.close()
    assert listing(open_root) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="its processes are told from ours by their uid")
async def test_stop_confirms_that_every_process_is_dead(sandbox: NamespaceSandbox) -> None:
    await sandbox.run("for i in 1 2 3; do (trap '' TERM HUP; setsid sleep 300) & done; sleep 0.05", timeout_s=10)
    uid = (sandbox.directory / "app").stat().st_uid
    assert len(list(processes_of(uid))) > 3
    changes = await sandbox.stop()
    assert list(processes_of(uid)) == []
    assert changes.root.is_dir()
    assert set(changes.places) == {"/app", "/root", "/tmp"}


def processes_of(uid: int) -> list[str]:
    """Live processes of a sandbox's uid, as the host sees them."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and folder.stat().st_uid == uid and os.geteuid() != uid:
                found.append(folder.name)
        except FileNotFoundError:
            continue
    return found


async def test_a_cancelled_open_leaves_nothing(
    open_root: Path, confined: Confinement, make_task: Callable[..., Task]
) -> None:
    task = make_task("FROM debian\nRUN sleep 60\n")
    provider = NamespaceProvider(open_root, confinement=confined)
    before = descriptors()
    opening = asyncio.create_task(provider.open(task))
    await asyncio.sleep(0.2)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert descriptors() == before
    assert [path.name for path in listing(listing(open_root)[0]) if path.name.startswith("s")] == []
    await provider.close()
    assert children() == set()


async def test_an_open_that_is_cancelled_at_any_moment_leaves_no_process(
    open_root: Path, confined: Confinement, make_task: Callable[..., Task]
) -> None:
    """Case F3: bubblewrap's half-born child must not outlive it (about one in six did)."""
    task, provider = make_task(), NamespaceProvider(open_root, confinement=confined)
    for moment in range(40):
        opening = asyncio.create_task(provider.open(task))
        await asyncio.sleep(moment * 0.0003)
        opening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await opening).close()
    await provider.close()
    until = time.monotonic() + 10
    while left := processes_naming(open_root):
        assert time.monotonic() < until, left
        await asyncio.sleep(0.05)


def processes_naming(root: Path) -> list[str]:
    """Command lines of living processes that mention the directory."""
    lines = []
    for path in listing(Path("/proc")):
        with contextlib.suppress(OSError):
            lines.append((path / "cmdline").read_bytes().decode(errors="replace") if path.name.isdigit() else "")
    return [line for line in lines if str(root) in line]


async def test_close_removes_trees_that_resist(provider: NamespaceProvider, sandbox: NamespaceSandbox) -> None:
    await sandbox.run(
        "mkdir -p /app/shut/inner && chmod 000 /app/shut/inner /app/shut; cd /tmp; "
        "mkdir -p $(printf 'd/%.0s' {1..1000}); ln -s / loop",
        timeout_s=20,
    )
    await sandbox.close()
    assert not sandbox.directory.exists()


async def test_a_closed_sandbox_runs_nothing(sandbox: NamespaceSandbox) -> None:
    await sandbox.close()
    await sandbox.close()
    with pytest.raises(SandboxVanished):
        await sandbox.run("true", timeout_s=1)


async def test_an_interrupt_from_the_keyboard_does_not_reach_a_sandbox(sandbox: NamespaceSandbox) -> None:
    groups = {os.getpgid(int(pid)) for pid in children()}
    assert groups
    assert os.getpgid(0) not in groups


OWNER = """
import asyncio, sys
from pathlib import Path
from t1.sandboxes import NamespaceProvider
from t1.types import Environment, Limits, Task, VerifierSpec

async def main():
    folder = Path(sys.argv[1])
    task = Task("x", "x", "x", Environment(folder), VerifierSpec(folder), Limits(), folder)
    sandbox = await NamespaceProvider(Path(sys.argv[2])).open(task)
    await sandbox.run("sleep 300 & true", timeout_s=5)
    print((sandbox.directory / "app").stat().st_uid, flush=True)
    await sandbox.run("sleep 300", timeout_s=300)

asyncio.run(main())
"""


def test_sandboxes_of_a_killed_owner_die_with_it_and_its_directories_are_swept(
    open_root: Path, tmp_path: Path, confined: Confinement
) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), str(open_root)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    uid = int(owner.stdout.readline())
    assert sweep(open_root) == []
    owner.send_signal(signal.SIGKILL)
    owner.wait(timeout=10)
    owner.stdout.close()
    for _ in range(100):
        if not processes_of(uid):
            break
        time.sleep(0.02)
    assert processes_of(uid) == []
    (left,) = listing(open_root)
    assert sweep(open_root) == [left]
    assert listing(open_root) == []


def test_the_sweeper_spares_live_owners_strangers_and_half_made_leases(tmp_path: Path) -> None:
    mine = lease(tmp_path)
    half = tmp_path / f"{PREFIX}half"
    half.mkdir()
    (tmp_path / "something").mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "something")
    assert sweep(tmp_path) == []
    os.utime(half, (time.time() - 7200, time.time() - 7200))
    assert sweep(tmp_path) == [half]
    assert mine.is_dir()


def test_a_pid_that_was_used_again_is_not_the_owner(tmp_path: Path) -> None:
    path = lease(tmp_path)
    owner = json.loads((path / "owner.json").read_text())
    assert (owner["pid"], owner["started"]) == (os.getpid(), started(os.getpid()))
    (path / "owner.json").write_text(json.dumps({**owner, "started": owner["started"] - 1}))
    assert sweep(tmp_path) == [path]


def test_removing_what_is_not_there_is_fine(tmp_path: Path) -> None:
    remove(tmp_path / "none")
    assert listing(tmp_path) == []
