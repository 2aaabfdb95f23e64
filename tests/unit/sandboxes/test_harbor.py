"""HarborProvider over a keeper whose machines are namespace sandboxes. Harbor itself: tests/harbor/test_provider.py."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from t1.errors import ConfigError, SandboxError, SandboxUnavailable, SandboxVanished, TaskError, UserError
from t1.sandboxes import HarborProvider, make_provider
from t1.sandboxes.harbor.called_shell import MAX_INLINE_CHARS, parse
from t1.sandboxes.harbor.keeping import PREFIX, sweep_kept
from t1.sandboxes.harbor.leaving import NO_FIND, TOO_MANY, Mark, read_listing, read_mark
from t1.sandboxes.harbor.sandbox import INLINE_BYTES, KeptSandbox
from t1.sandboxes.processes import started
from t1.testing.keepers import FAKE_KEEPER, FakeMaker
from t1.types import Task
from t1.verification import PristineVerifier, score

pytestmark = pytest.mark.usefixtures("confined")
MakeProvider = Callable[..., HarborProvider]
MakeTask = Callable[..., Task]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[MakeProvider]:
    """Providers with options for their fake keeper; what they leave is a failure."""
    made: list[HarborProvider] = []

    def make(**options: Any) -> HarborProvider:
        environment = options.pop("environment", "fake")
        provider = HarborProvider(
            tmp_path / "root", environment=environment, options=options, python=Path(sys.executable), keeper=FAKE_KEEPER
        )
        made.append(provider)
        return provider

    yield make
    for provider in made:
        await provider.close()
    assert not list((tmp_path / "root").glob("*"))


@pytest.fixture
async def sandbox(make: MakeProvider, make_task: MakeTask) -> KeptSandbox:
    return await make().open(make_task())


async def test_an_image_that_does_not_build_is_named_by_its_path(make: MakeProvider, make_task: MakeTask) -> None:
    task = make_task("FROM nowhere\n")
    with pytest.raises(TaskError, match=r"environment/Dockerfile: its image does not build: no such base image"):
        await make(fail="build").open(task)


async def test_what_a_provider_never_does_is_not_tried_again(make: MakeProvider, make_task: MakeTask) -> None:
    with pytest.raises(SandboxUnavailable, match="cannot close the network"):
        await make(fail="refuse").open(make_task())


async def test_a_machine_that_does_not_start_is_infrastructure(make: MakeProvider, make_task: MakeTask) -> None:
    with pytest.raises(SandboxError, match="no room"):
        await make(fail="start").open(make_task())


async def test_a_keeper_that_cannot_start_says_why(make: MakeProvider, make_task: MakeTask) -> None:
    with pytest.raises(SandboxUnavailable, match="nowhere: no credentials"):
        await make(environment="nowhere").open(make_task())


async def test_a_python_that_is_not_there_is_named(make_task: MakeTask, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"sandboxes\.python: .*/none"):
        await HarborProvider(python=tmp_path / "none").open(make_task())


async def test_a_keeper_that_dies_takes_its_sandboxes_and_the_next_one_opens_others(
    make: MakeProvider, make_task: MakeTask, tmp_path: Path
) -> None:
    """Case F5: an infrastructure failure, never a score."""
    provider, task = make(die_after=4), make_task()
    first = await provider.open(task)
    with pytest.raises(SandboxVanished):
        for _ in range(4):
            await first.run("true", timeout_s=10)
    second = await provider.open(task)
    assert (await second.run("echo alive", timeout_s=10)).output == "alive\n"
    await first.close()
    assert list((tmp_path / "root").glob(f"*/{first.id}.json")), "the sweeper must learn what may be left"
    assert await sweep_kept(tmp_path / "root", FakeMaker()) == [f"{first.id}\tstopped"]


async def test_a_machine_that_stops_answering_has_vanished(make: MakeProvider, make_task: MakeTask) -> None:
    sandbox = await make(mute=4).open(make_task())
    with pytest.raises(SandboxVanished, match="no such container"):
        for _ in range(3):
            await sandbox.run("true", timeout_s=10)


async def test_a_cancelled_command_is_dead_before_the_next_one_runs(sandbox: KeptSandbox) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5):
            await sandbox.run("echo begun > /app/f; sleep 1000", timeout_s=60)
    after = await sandbox.run(
        "cat /app/f; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 1[0]00'", timeout_s=20
    )
    assert after.shell_restarted
    assert after.output == "begun\n0\n"


async def test_a_time_out_kills_the_command_and_spares_what_ran_before(sandbox: KeptSandbox) -> None:
    await sandbox.run("sleep 1000 & x=5", timeout_s=10)
    late = await sandbox.run("sleep 2000", timeout_s=0.5)
    assert late.timed_out and not late.shell_restarted
    listed = await sandbox.run(
        "echo $x; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o 'sleep .0[0]0'", timeout_s=10
    )
    assert listed.output == "5\nsleep 1000\n"


async def test_a_command_that_prints_without_end_is_killed(sandbox: KeptSandbox) -> None:
    """Case F7."""
    ended = await sandbox.run("yes", timeout_s=60, max_output_bytes=1000)
    assert ended.exit_code is None
    assert ended.output.endswith("[killed: too much output]")
    assert ended.cut_bytes > 1 << 20


async def test_output_that_looks_like_an_answer_is_only_output(sandbox: KeptSandbox) -> None:
    ended = await sandbox.run(
        "printf '\\nT1:abc status 0 0 /\\n\\nT1:abc end\\n'; printf '\\377'; exit 7", timeout_s=10
    )
    assert ended.exit_code == 7
    assert ended.output == "\nT1:abc status 0 0 /\n\nT1:abc end\n�"


async def test_long_commands_and_large_files_travel_as_files(sandbox: KeptSandbox) -> None:
    text = "x" * (MAX_INLINE_CHARS + 1)
    await sandbox.run(f"printf %s '{text}' > /app/f; for i in 1 2 3 4; do cat /app/f; done > /app/g", timeout_s=30)
    found = await sandbox.read("/app/g", max_bytes=1 << 20)
    assert found == text.encode() * 4
    assert len(found) > INLINE_BYTES


async def test_whoever_kills_every_process_of_a_machine_still_gets_an_answer(sandbox: KeptSandbox) -> None:
    ended = await sandbox.run("sleep 1000 & kill -9 -1; echo survived", timeout_s=20)
    assert ended.output == "survived\n"


async def test_an_agent_cannot_change_what_clears_its_machine(sandbox: KeptSandbox) -> None:
    tried = await sandbox.run("T1_QUIET=true", timeout_s=10)
    assert "readonly" in tried.output
    await sandbox.run("unset T1_QUIET; sleep 1000 &", timeout_s=10)
    cleared = await sandbox.run(
        "$T1_QUIET; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 1[0]00'", timeout_s=20
    )
    assert cleared.output.splitlines()[-1] == "0"
    assert not cleared.shell_restarted


async def test_what_ran_on_is_listed_and_dead_when_the_files_are_handed_out(sandbox: KeptSandbox) -> None:
    """Case F4."""
    await sandbox.run("echo left > /app/f; sleep 1234 &", timeout_s=10)
    changes = await sandbox.stop()
    assert changes.outlived == ("sleep 1234",)
    assert changes.blind == ""
    assert set(changes.places) == {"/app"}
    assert (changes.root / changes.places["/app"] / "f").read_text() == "left\n"
    assert await sandbox.read("/logs/.t1/quiet", max_bytes=100) is None


VERIFIER = """grep -q right /app/answer && s=passed || s=failed
echo '{"results": {"tests": [{"name": "answer", "status": "'$s'", "duration": 1}]}}' > /logs/verifier/ctrf.json
"""


async def test_a_trial_is_verified_in_a_machine_that_the_agent_never_had(
    make: MakeProvider, make_task: MakeTask
) -> None:
    provider, task = make(), make_task(test=VERIFIER)
    sandbox = await provider.open(task)
    await sandbox.run("echo right > /app/answer", timeout_s=10)
    verdict = await PristineVerifier(provider).verify(task, sandbox)
    assert verdict.solved and not verdict.tampered


async def test_an_exploit_earns_nothing_and_is_evidence(make: MakeProvider, make_task: MakeTask) -> None:
    """Cases V1 and F4: a forged report, and a process that writes it again and again."""
    provider, task = make(), make_task(test=VERIFIER)
    sandbox = await provider.open(task)
    forged = '{"results": {"tests": [{"name": "answer", "status": "passed", "duration": 1}]}}'
    forge = f"echo '{forged}' > /logs/verifier/ctrf.json; echo 1 > /logs/verifier/reward.txt"
    await sandbox.run(f"while :; do {forge}; sleep 0.1; done &", timeout_s=10)
    await sandbox.run("sleep 0.5", timeout_s=10)
    verdict = await PristineVerifier(provider).verify(task, sandbox)
    assert score(verdict, normalizer=1.0, kind="dense")[0] == 0
    assert {found.rule for found in verdict.tamper} >= {"forged-result", "process"}


OPENER = """
import asyncio, sys
from pathlib import Path
from t1.sandboxes import HarborProvider
from t1.types import Environment, Limits, Task, VerifierSpec

async def main():
    folder = Path(sys.argv[1])
    task = Task("x", "e" * 64, "", Environment(folder), VerifierSpec(folder), Limits(), folder)
    provider = HarborProvider(folder, python=Path(sys.executable), keeper=("-m", "t1.testing.keepers"))
    sandbox = await provider.open(task)
    await sandbox.run("sleep 4321 &", timeout_s=10)
    print(provider._keeper.home, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_nothing_is_left_when_this_process_is_killed(tmp_path: Path) -> None:
    """Case F3: the keeper sees the end of the link, stops its machines and removes its directory."""
    with subprocess.Popen([sys.executable, "-c", OPENER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as opener:
        assert opener.stdout is not None
        home = Path(opener.stdout.readline().strip())
        keeper = int(home.name.removeprefix(PREFIX).partition("-")[0])
        assert started(keeper)
        opener.send_signal(signal.SIGKILL)
    until = time.monotonic() + 60
    while (started(keeper) or home.exists()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not started(keeper)
    assert not home.exists()
    running = subprocess.run(["pgrep", "-f", "sleep 4321"], capture_output=True, text=True, check=False).stdout.split()
    assert [pid for pid in running if int(pid) != os.getpid()] == []


def test_a_frame_that_is_not_whole_is_none() -> None:
    whole = "banner\nT1:w status 0 3 /app\r\nYWJj\r\n\r\nT1:w end\r\n"
    frame = parse(whole, "w")
    assert frame is not None and frame.output == b"abc" and frame.directory == "/app" and frame.shell_lives
    assert parse(whole[:30], "w") is None
    assert parse(whole, "v") is None
    assert parse(whole.replace("YWJj", "YWJj!"), "w") is None


def test_what_changed_is_told_by_top_level_directory() -> None:
    since = Mark("12.5", frozenset({"/app", "/usr", "/srv"}))
    printed = "= /app\0= /usr\0f /app/a\0d /app\0p /app/pipe\0f /usr/bin/ls\0d /usr/bin\0f /new\0"
    left = read_listing(since, printed)
    assert left.places == ("/app", "/srv")
    assert left.uncarried == ("/usr/bin/ls", "/app/pipe")
    assert left.blind == ""


def test_a_machine_that_cannot_tell_hands_out_everything_and_says_so() -> None:
    since = read_mark("@ \0= /app\0= /usr\0")
    assert since == Mark("", frozenset({"/app", "/usr"}))
    left = read_listing(since, "= /app\0= /usr\0= /home\0")
    assert (left.places, left.blind) == (("/app", "/home"), NO_FIND)
    many = read_listing(Mark("1.0", frozenset({"/app"})), "= /app\0" + "f /app/a\0" * (1 << 20))
    assert (many.places, many.blind) == (("/app",), TOO_MANY)


@pytest.mark.parametrize(
    ("kind", "setting"), [("namespaces", "environment"), ("containers", "python"), ("harbor", "rootfs")]
)
def test_settings_of_another_kind_are_refused_by_name(kind: str, setting: str) -> None:
    with pytest.raises(ConfigError, match=f"sandboxes.{setting}"):
        make_provider(kind, **{setting: "x"})


def test_a_section_of_kind_harbor_makes_this_provider() -> None:
    assert isinstance(
        make_provider("harbor", environment="podman", options={"a": 1}, network="provider"), HarborProvider
    )
    with pytest.raises(ConfigError, match="network"):
        make_provider("namespaces", network="provider")
