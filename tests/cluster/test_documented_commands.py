"""docs/cluster.md: every command is one that the configuration takes; `make test-ray` runs each of them."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from t1.config import load_config
from t1.sandboxes import probe

from . import ranked

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
COMMANDS = [
    line.strip()
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith(("    t1 train ", "    ray "))
]
SMALL = [
    "run.steps=1", "run.threads=1", "rollouts.tasks_per_step=4", "rollouts.group_size=1", "rollouts.max_concurrent=4",
    "trainer.cpus=0.5", "cluster.worker_cpus=0.5", "cluster.engine_cpus=0.5",
]  # fmt: skip
START_S, RUN_S = 180.0, 540.0


def overrides(command: str) -> list[str]:
    """The settings of a `t1 train` line."""
    return [word for word in shlex.split(command) if "=" in word and not word.startswith("--")]


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("t1 ")])
def test_a_documented_command_is_one_that_the_configuration_takes(command: str) -> None:
    load_config(ranked.SMOKE, overrides(command))


def train(command: str, tmp_path: Path, places: dict[str, str]) -> Path:
    """Run a documented line, with small numbers; returns the run's directory."""
    run = tmp_path / "run"
    with ranked.sandbox_root() as sandboxes:
        suite = ranked.write_suite(tmp_path / "suite")
        given = overrides(command)
        for name, place in places.items():
            given = [word.replace(name, place) for word in given]
        main = [sys.executable, "-c", "import sys; from t1.cli import main; sys.exit(main())", "train"]
        line = [*main, str(ranked.SMOKE), "--out", str(run), f"tasks.path={suite}", f"sandboxes.root={sandboxes}"]
        done = subprocess.run([*line, *SMALL, *given], capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    steps = ranked.steps_of(run)
    assert len(steps) == 1 and steps[0]["failures"] == steps[0]["findings"] == 0
    return run


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Ray cluster of two nodes that the documented lines start on this machine."""
    pytest.importorskip("ray")
    with socket.socket() as probed:
        probed.bind(("127.0.0.1", 0))
        port = str(probed.getsockname()[1])
    small = ["--num-cpus=3", "--object-store-memory=100000000", "--node-ip-address=127.0.0.1"]
    lines = [c.replace("HEAD", "127.0.0.1").replace("6379", port) for c in COMMANDS if c.startswith("ray ")]
    with contextlib.ExitStack() as nodes:
        log = nodes.enter_context((tmp_path_factory.mktemp("ray") / "log").open("wb"))
        for line in lines:
            words = [str(Path(sys.executable).with_name("ray")), *shlex.split(line)[1:], *small]
            if "--head" in words:
                words.append("--include-dashboard=false")
            environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
            node = subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True)
            nodes.callback(_end, node)
            _await_port(int(port))
        yield f"127.0.0.1:{port}"


def _await_port(port: int) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "Ray's head does not listen"
            time.sleep(0.5)


def _end(node: subprocess.Popen[bytes]) -> None:
    """End the node that we started, and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(node.pid, signal.SIGTERM)
    try:
        node.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(node.pid, signal.SIGKILL)
        node.wait(10)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.skipif(probe().confinement is None, reason="this host cannot open sandboxes")
@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("t1 ") and "urls" not in c])
def test_a_documented_command_trains(command: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The one with engines found by URL is run by test_found_engines.py."""
    address = request.getfixturevalue("started") if "ray" in command else ""
    run = train(command, tmp_path, {"HEAD:6379": address})
    assert (run / "logs" / "trainer-1.log").exists() == ("trainer.ranks" in command)
