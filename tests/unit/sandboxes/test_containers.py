"""Containers for real, on the base image: what the contract does not say. Loudly skipped where there is no engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from t1.errors import SandboxVanished, TaskError
from t1.sandboxes import ContainerProvider
from t1.sandboxes.containers.engine import ContainerEngine
from t1.sandboxes.containers.images import context_digest
from t1.sandboxes.containers.owners import Owner, list_containers, sweep_containers
from t1.sandboxes.network.proxy import AllowLists
from t1.testing.containers import BASE_IMAGE, engine_with_image
from t1.types import Healthcheck, Task
from t1.verification import PristineVerifier

needs_engine = pytest.mark.containers


@pytest.fixture(scope="session")
def engine() -> ContainerEngine:
    found = engine_with_image()
    if found is None:
        pytest.skip("no podman, no docker or no base image: make test-containers")
    return found


@pytest.fixture
async def provider(engine: ContainerEngine) -> AsyncIterator[ContainerProvider]:
    made = ContainerProvider(engine=engine, default_image=BASE_IMAGE, label="tests")
    yield made
    await made.close()


@needs_engine
async def test_a_dockerfile_is_built_once_and_its_settings_hold(
    provider: ContainerProvider, engine: ContainerEngine, make_task: Callable[..., Task]
) -> None:
    task = make_task(
        f"FROM {BASE_IMAGE}\nENV COLOUR=blue\nWORKDIR /srv/work\nRUN echo built > built.txt && useradd -m someone\n",
        user="someone", env={"SHAPE": "round"},
    )  # fmt: skip
    sandbox = await provider.open(task)
    told = await sandbox.run("pwd; cat built.txt; whoami; echo $COLOUR $SHAPE", timeout_s=20)
    assert told.output == "/srv/work\nbuilt\nsomeone\nblue round\n"
    name = f"localhost/t1/task:{context_digest(task.environment.path)}"
    again = ContainerProvider(engine=engine)
    try:
        first = await engine.must("image", "inspect", "--format", "{{.Created}}", name)
        await (await again.open(task)).close()
        assert (await engine.must("image", "inspect", "--format", "{{.Created}}", name)).text == first.text
    finally:
        await again.close()
        await sandbox.close()
        await engine.call("rmi", name)


@needs_engine
@pytest.mark.parametrize("line", ["RUN exit 3", "FETCH something", "COPY nothing.txt /"])
async def test_an_image_that_does_not_build_names_its_dockerfile(
    provider: ContainerProvider, make_task: Callable[..., Task], line: str
) -> None:
    task = make_task(f"FROM {BASE_IMAGE}\n{line}\n")
    with pytest.raises(TaskError, match="does not build") as caught:
        await provider.open(task)
    assert caught.value.path == task.environment.path / "Dockerfile"


@needs_engine
async def test_a_build_has_a_bound_and_leaves_nothing(
    provider: ContainerProvider, engine: ContainerEngine, make_task: Callable[..., Task]
) -> None:
    before = await working_containers(engine)
    task = make_task(f"FROM {BASE_IMAGE}\nRUN sleep 3141\n", build_timeout_s=3.0)
    with pytest.raises(TaskError, match="did not build within"):
        await provider.open(task)
    assert await working_containers(engine) == before
    assert not running(b"sleep\x003141")


async def working_containers(engine: ContainerEngine) -> list[str]:
    """What builds work in, which `ps` shows only when asked for what is not its own."""
    if not engine.is_podman:
        return []
    return (await engine.must("ps", "--all", "--external", "--format", "{{.Names}}")).text.splitlines()


def running(words: bytes) -> list[Path]:
    """The processes with these words in their command lines."""

    def read(path: Path) -> bytes:
        with contextlib.suppress(OSError):
            return path.read_bytes()
        return b""

    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if words in read(path)]


@needs_engine
async def test_what_a_build_prints_is_bounded(
    provider: ContainerProvider, make_task: Callable[..., Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("t1.sandboxes.containers.engine.MAX_OUTPUT_BYTES", 1000)
    with pytest.raises(TaskError, match="does not build") as caught:
        await provider.open(make_task(f"FROM {BASE_IMAGE}\nRUN yes | head -c 9000000; exit 3\n"))
    assert len(str(caught.value)) < 2000


@needs_engine
async def test_a_health_check_is_waited_for_and_one_that_fails_is_no_sandbox(
    provider: ContainerProvider, engine: ContainerEngine, make_task: Callable[..., Task]
) -> None:
    waits = "test -e /tmp/asked || { touch /tmp/asked; false; }"
    task = make_task(healthcheck=Healthcheck(waits, interval_s=0.01))
    sandbox = await provider.open(task)
    assert (await sandbox.run("ls /tmp/asked", timeout_s=20)).exit_code == 0
    await sandbox.close()


@needs_engine
async def test_limits_hold_and_there_is_no_network_and_no_gain(
    provider: ContainerProvider, make_task: Callable[..., Task]
) -> None:
    sandbox = await provider.open(make_task(memory_mb=64))
    assert (await sandbox.run("x=$(head -c 90000000 /dev/zero | tr '\\0' x)", timeout_s=20)).exit_code != 0
    assert not os.path.exists("oom")  # noqa: ASYNC240, PTH110 (what the engine's monitor leaves where it stands)
    assert (await sandbox.run("tail -n +3 /proc/net/dev | cut -d : -f 1", timeout_s=20)).output.strip() == "lo"
    status = (await sandbox.run("grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status", timeout_s=20)).output
    assert status.split() == ["NoNewPrivs:", "1", "Seccomp:", "2"]
    tried = await sandbox.run("mount -t tmpfs x /mnt; mknod /tmp/sda b 8 0; date -s 0", timeout_s=20)
    assert tried.exit_code != 0
    assert (await sandbox.run("test -e /tmp/sda || mountpoint -q /mnt", timeout_s=20)).exit_code != 0


@needs_engine
async def test_floods_and_binary_output_are_bounded_and_the_shell_lives(
    provider: ContainerProvider, make_task: Callable[..., Task]
) -> None:
    """Case F7."""
    sandbox = await provider.open(make_task())
    assert (await sandbox.run(r"printf 'a\xff\0b'", timeout_s=20)).output == "a\ufffd\0b"
    ended = await sandbox.run("export kept=1; yes", timeout_s=60, max_output_bytes=1000)
    assert (ended.exit_code, ended.timed_out) == (None, False)
    assert "too much output" in ended.output
    assert (await sandbox.run("echo fine", timeout_s=20)).output.endswith("fine\n")


@needs_engine
async def test_what_the_agent_left_is_carried_whole_but_for_system_paths(
    provider: ContainerProvider, make_task: Callable[..., Task]
) -> None:
    """Case F4: its processes are dead before anything is copied."""
    task = make_task()
    sandbox = await provider.open(task)
    await sandbox.run(
        "mkdir -p /app/d /opt/own; echo 1 > /app/d/f; chmod 4755 /app/d/f; ln -s /etc/passwd /app/link; "
        "mkfifo /app/fifo; ln /app/d/f /app/hard; echo 2 > /opt/own/g; echo bad > /usr/bin/pytest; "
        "rm -rf /root; sleep 300 &",
        timeout_s=20,
    )
    changes = await sandbox.stop()
    assert set(changes.places) == {"/app", "/opt", "/root"}
    assert (changes.root / "app" / "link").is_symlink()
    assert not (changes.root / "app" / "fifo").exists()
    pristine = await provider.open_pristine(task, changes)
    told = await pristine.run("cat /app/d/f /app/hard /opt/own/g; ls -A /root; stat -c %a /app/d/f; ls /usr/bin/pytest",
                              timeout_s=20)  # fmt: skip
    assert told.output.startswith("1\n1\n2\n4755\nls: ")


@needs_engine
async def test_a_link_is_read_inside_the_container_only(
    provider: ContainerProvider, make_task: Callable[..., Task]
) -> None:
    sandbox = await provider.open(make_task())
    await sandbox.run(
        "echo inside > /etc/x; ln -s /etc/x /app/a; ln -s a /app/b; ln -s c /app/c; mkdir /app/d", timeout_s=20
    )
    assert await sandbox.read("/app/b", max_bytes=100) == b"inside\n"
    assert [await sandbox.read(f"/app/{name}", max_bytes=100) for name in "cd"] == [None, None]


@needs_engine
async def test_a_trial_in_containers_is_verified(provider: ContainerProvider, make_task: Callable[..., Task]) -> None:
    task = make_task(
        test="test -f /app/done && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n"
    )
    sandbox = await provider.open(task)
    await sandbox.run("touch /app/done", timeout_s=20)
    assert (await PristineVerifier(provider).verify(task, sandbox)).solved


@needs_engine
async def test_a_container_that_somebody_removed_has_vanished(
    provider: ContainerProvider, engine: ContainerEngine, make_task: Callable[..., Task]
) -> None:
    """Case F5."""
    sandbox = await provider.open(make_task())
    await engine.remove(sandbox.id)
    with pytest.raises(SandboxVanished):
        await sandbox.run("true", timeout_s=20)
    with pytest.raises(SandboxVanished):
        await sandbox.stop()
    await sandbox.close()


@needs_engine
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can listen in a container's network")
async def test_a_container_reaches_a_host_address_and_its_task_s_hosts(
    engine: ContainerEngine, make_task: Callable[..., Task]
) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()

    async with await asyncio.start_server(shout, "127.0.0.1", 0) as server:
        address = server.sockets[0].getsockname()
        lists = AllowLists(ports=[address[1]], private=True)
        provider = ContainerProvider(engine=engine, default_image=BASE_IMAGE, reach={4000: address}, allow_lists=lists)
        try:
            sandbox = await provider.open(make_task(allowed_hosts=("localhost",)))
            for _ in range(2):
                told = await sandbox.run("exec 9<>/dev/tcp/127.0.0.1/4000; echo hi >&9; cat <&9", timeout_s=20)
                assert told.output == "HI\n"
                await sandbox.run("exit", timeout_s=20)
            ask = "exec 9<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT localhost:%s HTTP/1.1\\r\\n\\r\\nhi\\n' "
            told = await sandbox.run(f"echo $http_proxy; {ask} {address[1]} >&9; cat <&9", timeout_s=20)
            assert told.output.split("\n")[0] == "http://127.0.0.1:3128"
            assert told.output.endswith("HI\n")
        finally:
            await provider.close()


OWNER = """
import asyncio, sys
from pathlib import Path
from t1.sandboxes import ContainerProvider
from t1.types import Environment, Limits, Task, VerifierSpec

async def main():
    folder = Path(sys.argv[1])
    task = Task("x", "x", "x", Environment(folder), VerifierSpec(folder), Limits(), folder)
    sandbox = await ContainerProvider(default_image=sys.argv[2]).open(task)
    print(sandbox.id, flush=True)
    await sandbox.run("sleep 300", timeout_s=300)

asyncio.run(main())
"""


@needs_engine
async def test_what_of_the_host_is_readable_inside_is_no_change_of_the_agent_s(
    engine: ContainerEngine, make_task: Callable[..., Task], tmp_path: Path
) -> None:
    installation = tmp_path / "opt" / "agent"
    installation.mkdir(parents=True)
    (installation / "program").write_text("#!/bin/sh\necho hello\n")
    (installation / "program").chmod(0o755)
    provider = ContainerProvider(engine=engine, default_image=BASE_IMAGE, readable=[installation], label="tests")
    try:
        sandbox = await provider.open(make_task())
        assert (await sandbox.run(f"{installation}/program", timeout_s=20)).output == "hello\n"
        assert (await sandbox.run(f"echo x > {installation}/program", timeout_s=20)).exit_code != 0
        await sandbox.run("mkdir -p /app && echo done > /app/done.txt", timeout_s=20)
        changes = await sandbox.stop()
        assert set(changes.places) == {"/app"}
        assert set(changes.uncarried) <= {"/etc"}  # where the engine itself writes
    finally:
        await provider.close()


@needs_engine
async def test_containers_of_a_killed_owner_are_swept(engine: ContainerEngine, tmp_path: Path) -> None:
    """Case F3."""
    owner = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", OWNER, str(tmp_path), BASE_IMAGE], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    name = owner.stdout.readline().strip()
    assert name not in await sweep_containers(engine)
    owner.send_signal(signal.SIGKILL)
    owner.wait(timeout=10)
    owner.stdout.close()
    assert name in await sweep_containers(engine)
    assert name not in {container.name for container in await list_containers(engine)}


@needs_engine
async def test_a_container_whose_time_is_over_is_swept_though_its_owner_lives(
    engine: ContainerEngine, make_task: Callable[..., Task]
) -> None:
    provider = ContainerProvider(engine=engine, default_image=BASE_IMAGE, lease_s=-1.0)
    try:
        sandbox = await provider.open(make_task())
        assert sandbox.id in await sweep_containers(engine)
    finally:
        await provider.close()


def test_an_owner_is_read_back_and_told_from_others() -> None:
    mine = Owner.current()
    assert Owner.read(str(mine)) == mine
    assert not mine.gone
    assert Owner(mine.boot, mine.namespace, mine.pid, mine.started - 1).gone
    assert Owner("0" * 12, mine.namespace, mine.pid, mine.started).gone
    assert not Owner(mine.boot, 1, 1, 1).gone
    assert Owner.read("nonsense") is None


def test_a_build_context_is_the_same_while_its_files_are(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    before = context_digest(tmp_path)
    os.utime(tmp_path / "a", (0, 0))
    assert context_digest(tmp_path) == before
    (tmp_path / "a").chmod(0o755)
    assert context_digest(tmp_path) != before
