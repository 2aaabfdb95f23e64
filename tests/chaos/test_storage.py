"""Disks fill up, files rot, clocks jump, and a run that goes on afterwards ends as one that met none of it."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from t1.sandboxes import probe

from .runs import LAST, MAIN, NUM_STEPS, Whole, assert_same, command, finish, trials

pytestmark = pytest.mark.skipif(probe().confinement is None, reason="this host cannot open sandboxes")

JUMPING = """
import itertools, sys, time
real, calls = time.time, itertools.count()
time.time = lambda: real() + 86_400.0 * (-1) ** (next(calls) // 7)
from t1.cli import main
sys.exit(main())
"""
"""The wall clock is a day early, then a day late, and so on, every seventh time that it is read."""


@pytest.fixture
def sandboxes() -> Iterator[Path]:
    """A directory for sandboxes that other uids can pass through."""
    path = Path(tempfile.mkdtemp(prefix="t1-chaos-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The run that nothing happened to."""
    root = Path(tempfile.mkdtemp(prefix="t1-chaos-"))
    root.chmod(0o711)
    path = tmp_path_factory.mktemp("whole") / "run"
    began = time.monotonic()
    status, said = finish(command(path, root), timeout_s=900.0)
    seconds = time.monotonic() - began
    shutil.rmtree(root, ignore_errors=True)
    assert status == 0, said[-2000:]
    return Whole(path, seconds)


def in_namespace(script: str, *arguments: str) -> list[str]:
    """A shell script with mounts of its own, which the host does not see and which end with it."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--mount", "sh", "-ec", script, "sh", *arguments]


@pytest.mark.parametrize("share", [0.3, 0.7])
@pytest.mark.fault("disk full, then room again", runs=4)
def test_the_disk_is_full(whole: Whole, account, tmp_path: Path, sandboxes: Path, share: float) -> None:
    """On a file system of its own that is too small: the run stops with the reason, and goes on where there is room."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(in_namespace('mount -t tmpfs -o size=1m tmpfs "$1"', str(place)), check=False).returncode:
        pytest.skip("this host gives no mounts of one's own")
    kept, room = tmp_path / "kept", int(share * _size(whole.path))
    script = f"""
    mount -t tmpfs -o size={room} tmpfs "$1"; shift
    kept="$1"; place="$2"; shift 2
    status=0; "$@" > "$kept.first" 2>&1 || status=$?
    cp -a "$place" "$kept"
    exit $status
    """
    run = place / "run"
    status, _ = finish(
        in_namespace(script, str(place), str(kept), str(run), *command(run, sandboxes)), timeout_s=account.bound_s
    )
    said = Path(f"{kept}.first").read_text()
    assert status not in (0, -signal.SIGKILL) and "Traceback" not in said, said[-2000:]
    assert re.search("No space left|disk is full|could not be written", said), said[-2000:]
    status, said = finish(command(kept, sandboxes), timeout_s=account.bound_s)
    assert status == 0, said[-2000:]
    assert_same(whole.path, kept)
    account.settle(trials(whole.path), trials(kept), relaunched=1)


@pytest.mark.fault("corrupt checkpoint, the newest", runs=4)
def test_the_newest_checkpoint_is_corrupt(whole: Whole, account, tmp_path: Path, sandboxes: Path) -> None:
    """Cases P3, B1: the one before it is taken, and what was learned since is learned again from the same rollouts."""
    run = tmp_path / "run"
    shutil.copytree(whole.path, run)
    weights = run / LAST / "model.safetensors"
    with weights.open("r+b") as file:
        file.seek(weights.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x10]))
    status, said = finish(command(run, sandboxes), timeout_s=account.bound_s)
    assert status == 0, said[-2000:]
    assert_same(whole.path, run)
    account.settle(trials(whole.path), trials(run), relaunched=1)


@pytest.mark.fault("wall clock jumps by days", runs=4)
def test_the_clock_jumps(whole: Whole, account, tmp_path: Path, sandboxes: Path) -> None:
    """Bounds and order hang on the monotonic clock alone."""
    run = tmp_path / "run"
    status, said = finish(command(run, sandboxes, program=JUMPING), timeout_s=account.bound_s)
    assert status == 0, said[-2000:]
    assert_same(whole.path, run)
    account.settle(trials(whole.path), trials(run))


@pytest.mark.fault("driver killed, at a random instant", runs=6)
def test_the_driver_is_killed(whole: Whole, account, tmp_path: Path, sandboxes: Path) -> None:
    """Cases P3, B1: among others while it publishes or writes a checkpoint."""
    run, rng, kills = tmp_path / "run", random.Random(time.time_ns()), 0
    while kills < 2 and not (run / LAST).is_dir():
        line = command(run, sandboxes, program=MAIN)
        with subprocess.Popen(
            line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        ) as process:
            goal = run / "checkpoints" / "rl" / f"step-{rng.randrange(1, NUM_STEPS):06d}"
            while process.poll() is None and not goal.exists():
                time.sleep(0.02)
            time.sleep(rng.uniform(0.0, 0.5))
            process.kill()
        kills += 1
    status, said = finish(command(run, sandboxes), timeout_s=account.bound_s)
    assert status == 0, said[-2000:]
    assert_same(whole.path, run)
    account.settle(trials(whole.path), trials(run), relaunched=kills)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
