"""What every sandbox provider promises, fake and real."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from t1.errors import SandboxError, SandboxVanished
from t1.protocols import Sandbox, SandboxProvider
from t1.sandboxes import Confinement, ContainerProvider, HarborProvider, NamespaceProvider, probe
from t1.sandboxes.pool import PoolLimits, SandboxPool
from t1.testing.containers import BASE_IMAGE, engine_with_image
from t1.testing.keepers import FAKE_KEEPER
from t1.testing.sandboxes import FakeSandboxProvider
from t1.types import Environment, Limits, Task, VerifierSpec


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "environment").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test.sh").write_text("echo 1 > /logs/verifier/reward.txt\n")
    (tmp_path / "task.toml").write_text(f'version = "1.0"\n[environment]\ndocker_image = "{BASE_IMAGE}"\n')
    (tmp_path / "instruction.md").write_text("Do it.\n")
    environment, verifier = Environment(tmp_path / "environment"), VerifierSpec(tmp_path / "tests")
    return Task("contract", "c" * 64, "Do it.", environment, verifier, Limits(), tmp_path)


WAYS = [Confinement.SHIFTED, Confinement.DROPPED] if os.geteuid() == 0 else [Confinement.USER]
HARBOR = Path(__file__).parents[2] / ".venv-harbor" / "bin" / "python"
"""What `make test-harbor` makes; its tests run this file too."""


def harbor_python() -> Path:
    """The Python that has Harbor; skips where there is none."""
    if not HARBOR.is_file():
        pytest.skip("no Python with Harbor: make test-harbor")
    return HARBOR


def make_provider(kind: str) -> SandboxProvider:
    """A provider of each kind; skips what this host lacks."""
    if kind == "fake":
        return FakeSandboxProvider(verify=lambda files: {"/logs/verifier/reward.txt": b"1\n"})
    if kind == "pool":
        return SandboxPool(make_provider(str(WAYS[0])), PoolLimits(num_warm=1))
    if kind == "containers":
        if engine_with_image() is None:
            pytest.skip("no container engine with the base image: make test-containers")
        return ContainerProvider(engine=engine_with_image(), default_image=BASE_IMAGE)
    if (found := probe()).confinement is None and kind != "harbor-podman":
        pytest.skip(str(found))
    if kind == "keeper":
        return HarborProvider(python=Path(sys.executable), keeper=FAKE_KEEPER)
    if kind == "harbor":
        return HarborProvider(environment="t1.harbor.environment:T1Environment", python=harbor_python())
    if kind == "harbor-podman":
        if "T1_HARBOR_PODMAN" not in os.environ or engine_with_image() is None:
            pytest.skip("slow, and needs podman, podman-compose and the base image: make test-harbor-podman")
        return HarborProvider(
            environment="podman", python=harbor_python(), default_image=BASE_IMAGE, network="provider"
        )
    return NamespaceProvider(confinement=Confinement(kind))


KINDS = [
    "fake",
    *map(str, WAYS),
    "pool",
    "keeper",
    pytest.param("containers", marks=pytest.mark.containers),
    pytest.param("harbor", marks=pytest.mark.harbor),
    pytest.param("harbor-podman", marks=pytest.mark.harbor),
]


@pytest.fixture(params=KINDS)
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[SandboxProvider]:
    made = make_provider(request.param)
    yield made
    await made.close()


@pytest.fixture
async def sandbox(provider: SandboxProvider, task: Task) -> AsyncIterator[Sandbox]:
    opened = await provider.open(task)
    yield opened
    await opened.close()


async def output(sandbox: Sandbox, command: str) -> str:
    return (await sandbox.run(command, timeout_s=10)).output


async def test_the_shell_starts_in_the_workdir(sandbox: Sandbox) -> None:
    assert await output(sandbox, "pwd") == "/app\n"


async def test_directory_and_variables_persist_between_commands(sandbox: Sandbox) -> None:
    await sandbox.run("cd /tmp && x=5", timeout_s=10)
    assert await output(sandbox, "pwd; echo $x") == "/tmp\n5\n"


async def test_the_exit_code_is_that_of_the_command(sandbox: Sandbox) -> None:
    assert (await sandbox.run("true", timeout_s=10)).exit_code == 0
    assert (await sandbox.run("false", timeout_s=10)).exit_code == 1
    assert (await sandbox.run("no-such-program", timeout_s=10)).exit_code == 127


async def test_a_syntax_error_is_an_observation(sandbox: Sandbox) -> None:
    ended = await sandbox.run("echo 'unbalanced", timeout_s=10)
    assert ended.exit_code == 2
    assert ended.output
    assert await output(sandbox, "echo fine") == "fine\n"


async def test_a_command_that_ends_the_shell_is_an_observation_and_files_stay(sandbox: Sandbox) -> None:
    await sandbox.run("echo kept > /app/file; y=1", timeout_s=10)
    ended = await sandbox.run("exit 3", timeout_s=10)
    assert (ended.exit_code, ended.shell_restarted, ended.timed_out) == (3, True, False)
    assert await output(sandbox, "cat /app/file; echo [$y]") == "kept\n[]\n"


async def test_a_command_beyond_its_time_is_killed_and_the_sandbox_stays_usable(sandbox: Sandbox) -> None:
    ended = await sandbox.run("sleep 60", timeout_s=0.1)
    assert ended.timed_out
    assert ended.exit_code is None
    assert await output(sandbox, "echo fine") == "fine\n"


async def test_long_output_keeps_head_and_tail_and_says_how_much_was_cut(sandbox: Sandbox) -> None:
    text = "a" * 500 + "b" * 500
    ended = await sandbox.run(f"echo {text}", timeout_s=10, max_output_bytes=100)
    assert ended.output == "a" * 50 + "b" * 49 + "\n"
    assert ended.cut_bytes == 901


async def test_read_gives_a_files_bytes_none_where_there_is_none_and_refuses_a_large_one(sandbox: Sandbox) -> None:
    await sandbox.run("echo hello > /app/file", timeout_s=10)
    assert await sandbox.read("/app/file", max_bytes=100) == b"hello\n"
    assert await sandbox.read("/app/none", max_bytes=100) is None
    with pytest.raises(SandboxError, match="larger than 3 bytes"):
        await sandbox.read("/app/file", max_bytes=3)


async def test_a_stopped_sandbox_runs_nothing_and_stop_may_be_called_twice(sandbox: Sandbox) -> None:
    assert await sandbox.stop() == await sandbox.stop()
    with pytest.raises(SandboxVanished):
        await sandbox.run("true", timeout_s=10)


async def test_close_is_safe_to_call_twice(sandbox: Sandbox) -> None:
    await sandbox.close()
    await sandbox.close()
    with pytest.raises(SandboxVanished):
        await sandbox.run("true", timeout_s=10)


async def test_sandboxes_do_not_see_one_another(provider: SandboxProvider, task: Task) -> None:
    first, second = await provider.open(task), await provider.open(task)
    await first.run("echo secret > /tmp/file", timeout_s=10)
    assert first.id != second.id
    assert await second.read("/tmp/file", max_bytes=100) is None


async def test_pristine_carries_files_but_neither_the_shell_nor_the_logs(
    provider: SandboxProvider, sandbox: Sandbox, task: Task
) -> None:
    await sandbox.run("echo made > /app/file; z=1; cd /tmp; echo 1 > /logs/verifier/reward.txt", timeout_s=10)
    pristine = await provider.open_pristine(task, await sandbox.stop())
    assert await output(pristine, "pwd; cat /app/file; echo [$z]") == "/app\nmade\n[]\n"
    assert await pristine.read("/logs/verifier/reward.txt", max_bytes=100) is None
    assert (await pristine.run("bash /tests/test.sh", timeout_s=10)).exit_code == 0
    assert await pristine.read("/logs/verifier/reward.txt", max_bytes=100) == b"1\n"


async def test_closing_the_provider_closes_its_sandboxes(provider: SandboxProvider, task: Task) -> None:
    opened = await provider.open(task)
    await provider.close()
    with pytest.raises(SandboxVanished):
        await opened.run("true", timeout_s=10)


@pytest.mark.parametrize("kind", [*map(str, WAYS), pytest.param("containers", marks=pytest.mark.containers)])
async def test_a_snapshot_begins_any_number_of_sandboxes(kind: str, task: Task) -> None:
    """Where the backend can: files come back, processes and variables do not, and each goes its own way."""
    provider = make_provider(kind)
    assert isinstance(provider, NamespaceProvider | ContainerProvider)
    try:
        sandbox = await provider.open(task)
        await sandbox.run(
            "echo one > /app/f; mkdir /app/d; ln -s /nowhere /app/link; cd /app/d; x=5; sleep 60 &", timeout_s=10
        )
        snapshot = await provider.snapshot(sandbox)  # type: ignore[arg-type]
        await sandbox.run("echo two > /app/f", timeout_s=10)
        first, second = await provider.restore(task, snapshot), await provider.restore(task, snapshot)
        assert await output(first, "pwd; cat /app/f; readlink /app/link; echo [$x]") == "/app/d\none\n/nowhere\n[]\n"
        assert await output(second, "cat /app/f; echo three > /app/f") == "one\n"
        await provider.discard(snapshot)
        pristine = await provider.open_pristine(task, await first.stop())
        assert await output(pristine, "cat /app/f") == "one\n"
        with pytest.raises(SandboxError):
            await provider.restore(task, snapshot)
    finally:
        await provider.close()
