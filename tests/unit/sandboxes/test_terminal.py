"""Keystrokes and screens, through tmux and through a pseudo-terminal, in a real sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from t1.errors import SandboxUnavailable
from t1.sandboxes import NamespaceProvider, NamespaceSandbox
from t1.sandboxes.terminal import PseudoTerminal, Size, Terminal, TmuxTerminal, key_bytes, open_terminal
from t1.testing.sandboxes import FakeSandboxProvider
from t1.types import CommandResult, Task

SIZE = Size(columns=60, rows=12)


@pytest.fixture(params=[TmuxTerminal, PseudoTerminal])
async def terminal(request: pytest.FixtureRequest, sandbox: NamespaceSandbox) -> AsyncIterator[Terminal]:
    kind: type[TmuxTerminal] | type[PseudoTerminal] = request.param
    tool = "tmux" if kind is TmuxTerminal else "script"
    if (await sandbox.run(f"command -v {tool}", timeout_s=10)).exit_code != 0:
        pytest.skip(f"no {tool} on this host")
    opened = await kind.open(sandbox, SIZE)
    yield opened
    await opened.close()
    await opened.close()


async def shown(terminal: Terminal, text: str) -> str:
    """The screen, once it shows the text."""
    async with asyncio.timeout(10):
        while text not in (screen := await terminal.capture_pane()):  # noqa: ASYNC110 (over there)
            await asyncio.sleep(0.02)
    return screen


async def test_what_is_typed_runs_and_its_output_is_on_the_screen(terminal: Terminal) -> None:
    await terminal.send_keys("echo $((6*7)) wörld; # -x;", "Enter")
    assert "42 wörld" in await shown(terminal, "\n42 wörld")


async def test_the_screen_has_its_size_and_only_the_last_lines(terminal: Terminal) -> None:
    await terminal.send_keys("stty size; seq 100 140; tput cols 2>/dev/null", "Enter")
    screen = await shown(terminal, "\n140")
    assert "\n110\n" not in screen
    assert len(screen.split("\n")) <= SIZE.rows
    await terminal.send_keys("clear; stty size", "Enter")
    assert await shown(terminal, "12 60")


async def test_control_keys_interrupt_and_edit(terminal: Terminal) -> None:
    await terminal.send_keys("sleep 300", "Enter")
    await asyncio.sleep(0.1)
    await terminal.send_keys("C-c")
    await terminal.send_keys("echo wrong", "C-u", "echo ab", "Left", "BSpace", "X", "Enter")
    assert "\nXb" in await shown(terminal, "\nXb")


async def test_a_full_screen_program_is_drawn(terminal: Terminal, sandbox: NamespaceSandbox) -> None:
    await sandbox.run("seq 1 200 > /app/numbers", timeout_s=10)
    await terminal.send_keys("less /app/numbers", "Enter")
    assert "\n11\n" in await shown(terminal, "\n11\n")
    await terminal.send_keys("G")
    assert await shown(terminal, "\n200\n")
    await terminal.send_keys("q", "echo back", "Enter")
    await shown(terminal, "\nback")


async def test_a_flood_is_bounded_and_its_end_is_seen(terminal: Terminal) -> None:
    """Case F7."""
    await terminal.send_keys("seq 1 300000; echo the end", "Enter")
    await shown(terminal, "300000\nthe end")


async def test_closing_the_terminal_ends_what_runs_in_it(terminal: Terminal, sandbox: NamespaceSandbox) -> None:
    await terminal.send_keys("sleep 300", "Enter")
    await shown(terminal, "sleep 300")
    await terminal.close()
    async with asyncio.timeout(10):
        while (await sandbox.run("pgrep -x sleep", timeout_s=10)).exit_code == 0:  # noqa: ASYNC110 (over there)
            await asyncio.sleep(0.02)


async def test_open_terminal_takes_tmux_where_there_is_one_and_says_what_is_missing(
    make_task: Callable[..., Task], provider: NamespaceProvider
) -> None:
    task = make_task()
    sandbox = await provider.open(task)
    has = await sandbox.run("command -v tmux", timeout_s=10)
    terminal = await open_terminal(sandbox, SIZE)
    assert isinstance(terminal, TmuxTerminal if has.exit_code == 0 else PseudoTerminal)
    await terminal.close()
    fake = FakeSandboxProvider(lambda _, command: CommandResult("", 1, 0.0) if "command -v" in command else None)
    with pytest.raises(SandboxUnavailable, match="install tmux"):
        await open_terminal(await fake.open(task))


@pytest.mark.parametrize(
    ("key", "sent"),
    [("Enter", b"\r"), ("C-c", b"\x03"), ("C-[", b"\x1b"), ("M-x", b"\x1bx"), ("Up", b"\x1b[A"), ("C-1", b"C-1"),
     ("ls -l", b"ls -l"), ("é", "é".encode()), ("enter", b"enter")],
)  # fmt: skip
def test_keys_have_tmuxs_names_and_anything_else_is_text(key: str, sent: bytes) -> None:
    assert key_bytes(key) == sent
