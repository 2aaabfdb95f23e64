"""Case F7: whatever a command does is bounded and becomes an observation."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest

from t1.errors import SandboxVanished
from t1.sandboxes import Confinement, NamespaceProvider, NamespaceSandbox
from t1.sandboxes.leases import remove
from t1.types import CommandResult, Task


async def run(sandbox: NamespaceSandbox, command: str, timeout_s: float = 10) -> CommandResult:
    return await sandbox.run(command, timeout_s=timeout_s)


async def usable(sandbox: NamespaceSandbox) -> bool:
    return (await run(sandbox, "echo fine")).output.endswith("fine\n")


async def test_functions_heredocs_and_many_lines_work(sandbox: NamespaceSandbox) -> None:
    await run(sandbox, "greet() {\n  echo hello $1\n}\nexport NAME=wörld")
    assert (await run(sandbox, "cat <<EOF\n$(greet $NAME)\nEOF\ngreet again")).output == "hello wörld\nhello again\n"


async def test_stdout_and_stderr_are_one_stream_in_order(sandbox: NamespaceSandbox) -> None:
    assert (await run(sandbox, "echo a; echo b >&2; echo c")).output == "a\nb\nc\n"


async def test_standard_input_is_empty(sandbox: NamespaceSandbox) -> None:
    assert (await run(sandbox, "cat; read line; echo $?")).output == "1\n"


async def test_nul_bytes_are_dropped_and_lone_surrogates_survive(sandbox: NamespaceSandbox) -> None:
    assert (await run(sandbox, "echo a\0b")).output == "ab\n"
    assert (await run(sandbox, "printf '%s' '\udcff' | od -An -tx1")).output.strip() == "ff"


async def test_binary_and_invalid_utf8_output_is_replaced(sandbox: NamespaceSandbox) -> None:
    assert (await run(sandbox, r"printf 'a\xff\xfe\0b'")).output == "a\ufffd\ufffd\0b"


async def test_a_command_longer_than_the_sockets_buffer_arrives_whole(sandbox: NamespaceSandbox) -> None:
    text = "é" * 400_000
    assert (await run(sandbox, f"x='{text}'; echo ${{#x}}")).output == "400000\n"


async def test_a_redirection_of_the_shell_itself_ends_with_its_command(sandbox: NamespaceSandbox) -> None:
    await run(sandbox, "exec > /app/log; echo hidden")
    assert (await run(sandbox, "cat /app/log")).output == "hidden\n"


async def test_tracing_shows_commands_and_nothing_of_ours(sandbox: NamespaceSandbox) -> None:
    await run(sandbox, "set -x")
    assert (await run(sandbox, "echo hi")).output == "++ echo hi\nhi\n"


@pytest.mark.parametrize(("command", "status"), [("exit 7", 7), ("exec sh -c 'exit 8'", 8), ("set -e; false", 1)])
async def test_a_command_that_takes_the_shell_with_it_restarts_it_where_it_stood(
    sandbox: NamespaceSandbox, command: str, status: int
) -> None:
    await run(sandbox, "cd /tmp")
    ended = await run(sandbox, command)
    assert (ended.exit_code, ended.shell_restarted) == (status, True)
    assert (await run(sandbox, "pwd")).output == "/tmp\n"


async def test_a_program_that_replaces_the_shell_may_finish(sandbox: NamespaceSandbox) -> None:
    ended = await run(sandbox, "exec sh -c 'sleep 0.1; echo late'")
    assert (ended.output, ended.exit_code, ended.shell_restarted) == ("late\n", 0, True)


@pytest.mark.parametrize("command", ["kill -9 $$", "kill -9 -1"])
async def test_the_shell_cannot_be_killed_from_inside(sandbox: NamespaceSandbox, command: str) -> None:
    ended = await run(sandbox, f"x=1; {command} 2>/dev/null")
    assert not ended.shell_restarted
    assert (await run(sandbox, "echo $x")).output == "1\n"


async def test_a_killed_command_leaves_variables_and_older_background_processes(sandbox: NamespaceSandbox) -> None:
    await run(sandbox, "x=5; sleep 60 & older=$!; sleep 0.05")
    ended = await run(sandbox, "sleep 60", timeout_s=0.1)
    assert (ended.timed_out, ended.shell_restarted, ended.exit_code) == (True, False, None)
    assert (await run(sandbox, "echo $x; kill -0 $older && echo alive")).output == "5\nalive\n"


async def test_a_loop_of_the_shell_itself_costs_the_shell_but_not_the_files(sandbox: NamespaceSandbox) -> None:
    await run(sandbox, "echo kept > /app/file")
    ended = await run(sandbox, "while :; do :; done", timeout_s=0.1)
    assert (ended.timed_out, ended.shell_restarted) == (True, True)
    assert (await run(sandbox, "cat /app/file")).output == "kept\n"


async def test_a_command_that_prints_without_end_is_killed(sandbox: NamespaceSandbox) -> None:
    ended = await sandbox.run("yes", timeout_s=60, max_output_bytes=1000)
    assert ended.exit_code is None
    assert not ended.timed_out
    assert ended.cut_bytes > 16_000_000
    assert len(ended.output) < 1100
    assert await usable(sandbox)


async def test_a_fork_bomb_is_bounded(sandbox: NamespaceSandbox) -> None:
    await run(sandbox, "bomb() { bomb | bomb & }; bomb", timeout_s=1)
    count = await run(sandbox, "cd /proc; set -- [0-9]*; echo processes=$#", timeout_s=1)
    if not count.timed_out:  # the bomb complains into the same output, before and after
        found = re.search(r"processes=(\d+)", count.output)
        assert found is not None, count.output
        assert int(found[1]) <= 300
    for _ in range(2):
        last = await run(sandbox, "exit")
    assert last.shell_restarted
    assert await usable(sandbox)


async def test_a_file_cannot_grow_beyond_its_limit(make_task: Callable[..., Task], confined: Confinement) -> None:
    provider = NamespaceProvider(confinement=confined, file_mb=1)
    try:
        sandbox = await provider.open(make_task())
        ended = await run(sandbox, "head -c 5000000 /dev/zero > /tmp/big; stat -c %s /tmp/big")
        assert ended.output.endswith("1048576\n")
    finally:
        await provider.close()


async def test_filling_the_disk_is_stopped_at_the_tasks_storage(
    provider: NamespaceProvider, make_task: Callable[..., Task]
) -> None:
    sandbox = await provider.open(make_task(storage_mb=2))
    ended = await run(sandbox, "head -c 4000000 /dev/zero > /tmp/big; sleep 60", timeout_s=20)
    assert (ended.exit_code, ended.timed_out) == (None, False)
    assert "no space left" in ended.output
    assert await usable(sandbox)


async def test_short_commands_that_fill_the_disk_are_stopped_until_something_is_removed(
    provider: NamespaceProvider, make_task: Callable[..., Task]
) -> None:
    sandbox = await provider.open(make_task(storage_mb=2))
    await run(sandbox, "head -c 4000000 /dev/zero > /tmp/big")
    await noticed(sandbox)
    assert "File too large" in (await run(sandbox, "echo more > /tmp/small; cat /tmp/small")).output
    await run(sandbox, "rm /tmp/big")
    assert (await run(sandbox, "echo more > /tmp/small; cat /tmp/small")).output == "more\n"


async def test_a_great_many_empty_files_count_as_well(
    provider: NamespaceProvider, make_task: Callable[..., Task]
) -> None:
    sandbox = await provider.open(make_task(storage_mb=1))
    await run(sandbox, "for n in {1..3000}; do : > /tmp/$n; done; echo x > /tmp/x")
    await noticed(sandbox)


async def noticed(sandbox: NamespaceSandbox) -> None:
    """Nothing can be written any more; counting takes a bounded share of the time, so it may be a command later."""
    async with asyncio.timeout(10):
        while "File too large" not in (await run(sandbox, "echo y > /tmp/1")).output:  # noqa: ASYNC110 (over there)
            await asyncio.sleep(0.02)


async def test_a_process_cannot_take_more_memory_than_the_task_allows(
    provider: NamespaceProvider, make_task: Callable[..., Task]
) -> None:
    sandbox = await provider.open(make_task(memory_mb=64))
    ended = await run(sandbox, "head -c 200000000 /dev/zero | sort -S 190M > /dev/null; echo ${PIPESTATUS[1]}")
    assert not ended.output.endswith("\n0\n") or "memory" in ended.output
    assert await usable(sandbox)


async def test_a_cancelled_command_is_dead_and_the_next_one_says_that_the_shell_is_new(
    sandbox: NamespaceSandbox,
) -> None:
    task = asyncio.create_task(run(sandbox, "sleep 60; echo done > /app/done", timeout_s=60))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ended = await run(sandbox, "ls /app")
    assert (ended.output, ended.shell_restarted) == ("", True)


async def test_stop_ends_a_command_under_way(sandbox: NamespaceSandbox) -> None:
    task = asyncio.create_task(run(sandbox, "sleep 60", timeout_s=60))
    await asyncio.sleep(0.05)
    await sandbox.stop()
    with pytest.raises(SandboxVanished):
        await task


async def test_a_sandbox_whose_shell_cannot_restart_has_vanished(sandbox: NamespaceSandbox) -> None:
    """Case F5: an infrastructure failure, launched again elsewhere."""
    await run(sandbox, "true")
    task = asyncio.create_task(run(sandbox, "sleep 0.2; exit"))
    await asyncio.sleep(0.05)
    remove(sandbox.directory)
    with pytest.raises(SandboxVanished, match="could not be started again"):
        await task


async def test_output_of_a_background_process_does_not_hold_a_command_up(sandbox: NamespaceSandbox) -> None:
    ended = await run(sandbox, "(sleep 0.2; echo late) & echo now")
    assert ended.output == "now\n"
    assert (await run(sandbox, "sleep 0.3")).output == "late\n"


async def test_commands_of_many_sandboxes_run_side_by_side(
    provider: NamespaceProvider, make_task: Callable[..., Task]
) -> None:
    task = make_task()
    sandboxes = await asyncio.gather(*(provider.open(task) for _ in range(8)))
    results = await asyncio.gather(*(run(box, f"sleep 0.1; echo {i}") for i, box in enumerate(sandboxes)))
    assert [result.output for result in results] == [f"{i}\n" for i in range(8)]
