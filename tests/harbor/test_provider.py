"""HarborProvider over Harbor itself: our plug-in (`make test-harbor`), and Harbor's podman (`make test-harbor-podman`).

The contract of all sandboxes runs over both as well: tests/contract/test_sandbox_contract.py -m harbor.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("harbor", reason="HARBOR IS NOT TESTED HERE: it needs Python 3.12, run make test-harbor")

from t1.errors import SandboxUnavailable, TaskError
from t1.harbor.keeper import HarborMaker
from t1.redteam import EXPLOITS, HONEST, run_suite
from t1.sandboxes import HarborProvider
from t1.sandboxes.harbor.keeping import PREFIX, sweep_kept
from t1.sandboxes.processes import started
from t1.tasks import read_task, write_task
from t1.types import RewardSource
from t1.verification import PristineVerifier, score

PLUG_IN = "t1.harbor.environment:T1Environment"
BASE_IMAGE = "localhost/t1/base:bookworm"
PYTHON = Path(sys.executable)
CHOSEN = ("forged-results", "racing-writer", "conftest", "bash-env", "linked-output")


@cache
def has_podman() -> bool:
    """Podman, a compose frontend beside this Python and the image, where somebody asked for them: they are slow."""
    if "T1_HARBOR_PODMAN" not in os.environ or shutil.which("podman") is None:
        return False
    if not (PYTHON.parent / "podman-compose").is_file():
        return False
    words = ["podman", "image", "inspect", BASE_IMAGE]
    return subprocess.run(words, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.fixture(params=["plug-in", "podman"])
async def provider(request, tmp_path):
    if request.param == "podman" and not has_podman():
        pytest.skip("PODMAN UNDER HARBOR IS NOT TESTED HERE: make test-harbor-podman")
    environment, network = (PLUG_IN, "none") if request.param == "plug-in" else ("podman", "provider")
    made = HarborProvider(
        tmp_path / "keepers", environment=environment, python=PYTHON, default_image=BASE_IMAGE, network=network
    )
    yield made
    await made.close()
    assert not list((tmp_path / "keepers").glob("*"))


def make_task(folder: Path, *, dockerfile: str = f"FROM {BASE_IMAGE}\n", image: str | None = BASE_IMAGE):
    """A task whose verifier reports two assertions."""
    verifier = """#!/bin/bash
a=failed; b=failed; grep -qx 42 /app/answer && a=passed; [ -x /usr/bin/env ] && b=passed
printf '{"results": {"tests": [{"name": "answer", "status": "%s", "duration": 1}, {"name": "env", "status": "%s",
"duration": 1}]}}' $a $b > /logs/verifier/ctrf.json
"""
    environment = {} if image is None else {"docker_image": image}
    write_task(
        folder,
        instruction="Write 42 to /app/answer.\n",
        config={"version": "1.0", "environment": environment},
        tests={"test.sh": verifier},
        environment={"Dockerfile": dockerfile} if image is None else {"README": "no image of its own\n"},
    )
    return read_task(folder)


async def test_a_whole_trial_is_verified_in_a_second_machine(provider, tmp_path):
    task = make_task(tmp_path / "task")
    sandbox = await provider.open(task)
    await sandbox.run("cd /tmp && echo 42 > /app/answer && sleep 1000 &", timeout_s=60)
    await sandbox.run("wait %1 & sleep 0.2", timeout_s=60)
    verdict = await PristineVerifier(provider).verify(task, sandbox)
    await sandbox.close()
    assert verdict.solved, verdict
    assert not verdict.tampered
    assert score(verdict, normalizer=2.0, kind="dense") == (1.0, RewardSource.ASSERTIONS)


async def test_forged_results_and_replaced_programs_earn_nothing(provider, tmp_path):
    """Cases V1, V2 and F4."""
    task = make_task(tmp_path / "task")
    sandbox = await provider.open(task)
    forged = """{"results": {"tests": [{"name": "answer", "status": "passed", "duration": 1}]}}"""
    forge = f"echo '{forged}' > /logs/verifier/ctrf.json; echo 1 > /logs/verifier/reward.txt"
    await sandbox.run(f"while :; do {forge}; sleep 0.1; done & sleep 0.3", timeout_s=60)
    await sandbox.run("printf '#!/bin/sh\\nexit 0\\n' > /usr/bin/grep; chmod +x /usr/bin/grep", timeout_s=60)
    verdict = await PristineVerifier(provider).verify(task, sandbox)
    await sandbox.close()
    assert not verdict.solved
    assert {found.name: found.status.value for found in verdict.assertions} == {"answer": "failed", "env": "passed"}
    assert verdict.tampered
    assert {found.rule for found in verdict.tamper} >= {"forged-result", "process"}


async def test_the_red_team_fares_no_better_here_than_elsewhere(tmp_path):
    chosen = [agent for agent in (*EXPLOITS, *HONEST[:2]) if agent.name in CHOSEN or agent in HONEST[:2]]
    provider = HarborProvider(tmp_path / "keepers", environment=PLUG_IN, python=PYTHON, default_image=BASE_IMAGE)
    try:
        rows = await run_suite(provider, tmp_path, scripted=chosen, control=False, at_once=1)
    finally:
        await provider.close()
    assert len(rows) == len(CHOSEN) + 2
    assert all(row.is_well for row in rows), [row for row in rows if not row.is_well]


async def test_an_image_that_does_not_build_is_named_by_its_path(tmp_path):
    if not has_podman():
        pytest.skip("PODMAN UNDER HARBOR IS NOT TESTED HERE: make test-harbor-podman")
    task = make_task(tmp_path / "task", dockerfile="FROM localhost/t1/nowhere:none\n", image=None)
    provider = HarborProvider(tmp_path / "keepers", environment="podman", python=PYTHON, network="provider")
    try:
        with pytest.raises(TaskError, match=r"task/environment/Dockerfile: its image does not build"):
            await provider.open(task)
    finally:
        await provider.close()


async def test_an_unknown_provider_is_refused_with_harbors_words(tmp_path):
    provider = HarborProvider(tmp_path / "keepers", environment="cloud-nine", python=PYTHON)
    with pytest.raises(SandboxUnavailable, match="cloud-nine"):
        await provider.open(make_task(tmp_path / "task"))
    await provider.close()


async def test_an_option_that_harbor_does_not_know_is_refused(tmp_path):
    provider = HarborProvider(tmp_path / "keepers", environment="podman", options={"nonsense": 1}, python=PYTHON)
    with pytest.raises(SandboxUnavailable, match="nonsense"):
        await provider.open(make_task(tmp_path / "task"))
    await provider.close()


OPENER = """
import asyncio, sys
from pathlib import Path
from t1.sandboxes import HarborProvider
from t1.tasks import read_task

async def main():
    root, task, image = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    python = Path(sys.executable)
    provider = HarborProvider(root, environment="podman", python=python, default_image=image, network="provider")
    sandbox = await provider.open(read_task(task))
    print(sandbox.id, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def containers(session: str) -> list[str]:
    """What podman has of a session."""
    words = ["podman", "ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={session}"]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout.split()


@pytest.mark.parametrize("also_the_keeper", [False, True])
def test_no_container_is_left_when_this_process_is_killed(tmp_path, also_the_keeper):
    """Case F3. Where the keeper is killed too, its record tells the sweeper."""
    if not has_podman():
        pytest.skip("PODMAN UNDER HARBOR IS NOT TESTED HERE: make test-harbor-podman")
    make_task(tmp_path / "task")
    words = [sys.executable, "-c", OPENER, str(tmp_path / "keepers"), str(tmp_path / "task"), BASE_IMAGE]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as opener:
        session = opener.stdout.readline().strip()
        assert session and containers(session)
        (home,) = (tmp_path / "keepers").glob(f"{PREFIX}*")
        keeper = int(home.name.removeprefix(PREFIX).partition("-")[0])
        if also_the_keeper:
            subprocess.run(["kill", "-9", str(keeper)], check=True)
        opener.send_signal(signal.SIGKILL)
    until = time.monotonic() + 120
    while started(keeper) and time.monotonic() < until:
        time.sleep(0.1)
    if also_the_keeper:
        assert asyncio.run(sweep_kept(tmp_path / "keepers", HarborMaker())) == [f"{session}\tstopped"]
    assert containers(session) == []
    assert not home.exists()
