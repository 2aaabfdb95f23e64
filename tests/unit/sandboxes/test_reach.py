"""A sandbox without a network reaches the addresses that it was given, and nothing else."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from t1.errors import SandboxError, SandboxUnavailable
from t1.sandboxes import Confinement, NamespaceProvider, NamespaceSandbox
from t1.sandboxes.network.netns import listen_in_process, listen_in_thread
from t1.sandboxes.network.reach import MAX_CONNECTIONS
from t1.types import Task

WAYS = [Confinement.SHIFTED, Confinement.DROPPED] if os.geteuid() == 0 else [Confinement.USER]
ASK = "exec 9<>/dev/tcp/127.0.0.1/4000; echo hello >&9; cat <&9; exec 9>&-"


async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The service on the host: a line comes back in capitals."""
    writer.write((await reader.readline()).upper())
    writer.close()


@pytest.fixture
async def address() -> AsyncIterator[tuple[str, int]]:
    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()
    server.close()


@pytest.fixture(params=WAYS, ids=str)
async def provider(
    request: pytest.FixtureRequest, confined: Confinement, address: tuple[str, int]
) -> AsyncIterator[NamespaceProvider]:
    made = NamespaceProvider(confinement=request.param, reach={4000: address})
    yield made
    await made.close()


async def output(sandbox: NamespaceSandbox, command: str) -> str:
    return (await sandbox.run(command, timeout_s=20)).output


async def test_an_address_of_the_host_answers_at_its_port_inside(
    provider: NamespaceProvider, make_task: Callable[..., Task]
) -> None:
    sandbox = await provider.open(make_task())
    assert await output(sandbox, ASK) == "HELLO\n"
    assert (await sandbox.run("echo > /dev/tcp/127.0.0.1/4001", timeout_s=20)).exit_code != 0


async def test_it_still_answers_after_the_shell_was_started_anew(
    provider: NamespaceProvider, make_task: Callable[..., Task]
) -> None:
    sandbox = await provider.open(make_task())
    assert (await sandbox.run("exit", timeout_s=20)).shell_restarted
    assert await output(sandbox, ASK) == "HELLO\n"


async def test_the_verifier_reaches_nothing(provider: NamespaceProvider, make_task: Callable[..., Task]) -> None:
    task = make_task()
    pristine = await provider.open_pristine(task, await (await provider.open(task)).stop())
    assert "refused" in await output(pristine, ASK)


async def test_sandboxes_use_the_same_port_and_end_apart(
    provider: NamespaceProvider, make_task: Callable[..., Task]
) -> None:
    task = make_task()
    first, second = await provider.open(task), await provider.open(task)
    await first.close()
    assert await output(second, ASK) == "HELLO\n"


async def test_a_provider_with_reach_shares_the_life_of_the_one_it_came_from(
    provider: NamespaceProvider, make_task: Callable[..., Task], address: tuple[str, int]
) -> None:
    other = provider.with_reach({4001: address})
    sandbox = await other.open(make_task())
    assert await output(sandbox, ASK) == "HELLO\n"
    assert await output(sandbox, ASK.replace("4000", "4001")) == "HELLO\n"
    await provider.close()
    assert not sandbox.directory.exists()


async def test_a_stream_of_any_length_arrives_whole(
    provider: NamespaceProvider, make_task: Callable[..., Task]
) -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(5_000_000))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(pour, "127.0.0.1", 0) as server:
        sandbox = await provider.with_reach({4002: server.sockets[0].getsockname()}).open(make_task())
        assert await output(sandbox, "cat < /dev/tcp/127.0.0.1/4002 | wc -c") == "5000000\n"


async def test_connections_beyond_the_limit_and_to_a_dead_service_are_cut(
    confined: Confinement, make_task: Callable[..., Task], address: tuple[str, int]
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        provider = NamespaceProvider(confinement=confined, reach={4000: address, 4001: nobody.getsockname()})
        try:
            sandbox = await provider.open(make_task())
            assert await output(sandbox, "cat < /dev/tcp/127.0.0.1/4001 2>&1 | tail -c 26") in (
                "", "Connection reset by peer\n", " Connection reset by peer\n"
            )  # fmt: skip
            hold = f"for n in {{1..{MAX_CONNECTIONS}}}; do exec {{held}}<>/dev/tcp/127.0.0.1/4000; done; {ASK}"
            assert "HELLO" not in await output(sandbox, hold)
        finally:
            await provider.close()


async def test_host_paths_are_readable_at_their_own_place_and_never_writable(
    confined: Confinement, make_task: Callable[..., Task]
) -> None:
    folder = Path("/var/lib")
    provider = NamespaceProvider(confinement=confined, readable=(folder,))
    try:
        sandbox = await provider.open(make_task())
        names = set((await output(sandbox, f"ls -A {folder}")).split())
        assert names == set(os.listdir(folder))  # noqa: PTH208
        assert (await sandbox.run(f"touch {folder}/t1", timeout_s=20)).exit_code != 0
    finally:
        await provider.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="root's sandboxes run under other uids")
async def test_a_host_path_that_other_uids_cannot_reach_is_refused_with_the_fix(
    confined: Confinement, make_task: Callable[..., Task], tmp_path: Path
) -> None:
    shut = tmp_path / "shut"
    (shut / "inner").mkdir(parents=True)
    shut.chmod(0o700)
    provider = NamespaceProvider(confinement=confined, readable=(shut / "inner",))
    try:
        with pytest.raises(SandboxUnavailable, match="chmod o\\+x"):
            await provider.open(make_task())
    finally:
        await provider.close()


@pytest.mark.parametrize("listening", [listen_in_thread, listen_in_process])
async def test_root_listens_in_a_thread_and_others_in_a_process_of_their_own(
    sandbox: NamespaceSandbox, listening: Callable[[int, list[int]], list[socket.socket]]
) -> None:
    if listening is listen_in_thread and os.geteuid() != 0:
        pytest.skip("only root's threads may enter a namespace")
    assert sandbox.pid is not None
    first, second = listening(sandbox.pid, [80, 4010])
    with first, second:
        told = await output(sandbox, "echo a > /dev/tcp/127.0.0.1/80 && echo b > /dev/tcp/127.0.0.1/4010 && echo fine")
        assert told == "fine\n"
        for listener in (first, second):
            listener.accept()[0].close()


@pytest.mark.parametrize("listening", [listen_in_thread, listen_in_process])
def test_a_process_that_is_gone_has_no_namespace_to_listen_in(
    listening: Callable[[int, list[int]], list[socket.socket]],
) -> None:
    with pytest.raises(OSError):
        listening(2**22 - 1, [4000])


async def test_a_port_that_cannot_be_had_is_an_infrastructure_failure(
    confined: Confinement, make_task: Callable[..., Task], address: tuple[str, int]
) -> None:
    provider = NamespaceProvider(confinement=confined, reach={4000: address, 99999: address})
    try:
        with pytest.raises(SandboxError, match="ports 4000, 99999"):
            await provider.open(make_task())
    finally:
        await provider.close()
