"""A terminal inside a sandbox, for harnesses that type keystrokes and look at a screen.

tmux where the image has it; else `script` gives a pseudo-terminal and pyte draws its screen here. Both are driven by
plain commands, so any sandbox will do, and they end with it. Boundary: keys in, screens out; the host runs nothing.
"""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from t1.errors import SandboxError, SandboxUnavailable, SandboxVanished
from t1.protocols import Sandbox

if TYPE_CHECKING:
    import pyte

COMMAND_S = 30.0
MAX_SCREEN_BYTES = 256 << 10
MAX_NEW_BYTES = 128 << 10
"""Of what was printed since the last look, the pseudo-terminal's end is drawn: a screen holds far less."""
CHUNK_BYTES = 48 << 10
"""Of text that is typed by one command."""
POLL_S = 0.02

NAMED: dict[str, str] = {
    "Enter": "\r", "Tab": "\t", "BTab": "\x1b[Z", "Escape": "\x1b", "Space": " ", "BSpace": "\x7f",
    "Up": "\x1b[A", "Down": "\x1b[B", "Right": "\x1b[C", "Left": "\x1b[D", "Home": "\x1b[H", "End": "\x1b[F",
    "PageUp": "\x1b[5~", "PPage": "\x1b[5~", "PageDown": "\x1b[6~", "NPage": "\x1b[6~", "DC": "\x1b[3~",
    "IC": "\x1b[2~", "F1": "\x1bOP", "F2": "\x1bOQ", "F3": "\x1bOR", "F4": "\x1bOS", "F5": "\x1b[15~", "F6": "\x1b[17~",
    "F7": "\x1b[18~", "F8": "\x1b[19~", "F9": "\x1b[20~", "F10": "\x1b[21~", "F11": "\x1b[23~", "F12": "\x1b[24~",
}  # fmt: skip
"""tmux's names of keys, and what a terminal sends for them."""
_MODIFIED = re.compile(r"(?:(C)-|(M)-)(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Size:
    """Of a screen, in characters."""

    columns: int = 160
    rows: int = 40


class Terminal(Protocol):
    """A shell behind a screen."""

    async def send_keys(self, *keys: str) -> None:
        """Type: each argument is a key by tmux's name (`Enter`, `C-c`, `M-x`, `Up`), or text as it stands."""
        ...

    async def capture_pane(self) -> str:
        """The visible screen, without the blanks at the ends of its lines and below them."""
        ...

    async def close(self) -> None:
        """End the shell and what it runs. Safe to call twice, and after the sandbox is gone."""
        ...


async def open_terminal(sandbox: Sandbox, size: Size = Size()) -> Terminal:
    """A terminal in the sandbox's own directory and environment. Raises SandboxUnavailable where there can be none."""
    found = await sandbox.run("command -v tmux || command -v script", timeout_s=COMMAND_S)
    name = found.output.strip().rpartition("/")[2]
    if name == "tmux":
        return await TmuxTerminal.open(sandbox, size)
    if name == "script":
        return await PseudoTerminal.open(sandbox, size)
    raise SandboxUnavailable("the image has neither tmux nor script. To fix it: install tmux in the task's Dockerfile")


def key_bytes(key: str) -> bytes:
    """What a terminal sends for a key, or for a text as it stands."""
    if key in NAMED:
        return NAMED[key].encode()
    if (found := _MODIFIED.fullmatch(key)) is not None:
        control, _, letter = found.groups()
        if control is None:
            return b"\x1b" + letter.encode()
        if letter.upper() in "@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_":
            return bytes([ord(letter.upper()) & 0x1F])
    return key.encode("utf-8", "surrogateescape")


def _typed(keys: tuple[str, ...]) -> Iterator[str]:
    """The bytes of all keys in base64, in pieces that a command line can hold."""
    data = b"".join(map(key_bytes, keys))
    for start in range(0, len(data), CHUNK_BYTES):
        yield base64.b64encode(data[start : start + CHUNK_BYTES]).decode("ascii")


async def _run(sandbox: Sandbox, command: str, max_bytes: int = MAX_SCREEN_BYTES) -> str:
    """Output of a command in a subshell. Raises SandboxError when it fails."""
    ended = await sandbox.run(f"( {command} )", timeout_s=COMMAND_S, max_output_bytes=max_bytes)
    if ended.exit_code != 0:
        raise SandboxError(f"the terminal does not answer: {ended.output.strip()[-300:]}")
    return ended.output


class TmuxTerminal:
    """A tmux server of its own inside the sandbox."""

    def __init__(self, sandbox: Sandbox, name: str) -> None:
        self._sandbox = sandbox
        self._tmux = f"tmux -u -L {name}"

    @classmethod
    async def open(cls, sandbox: Sandbox, size: Size) -> TmuxTerminal:
        """Start the server with one window."""
        terminal = cls(sandbox, f"t1-{secrets.token_hex(4)}")
        begin = f"new-session -d -s t1 -x {size.columns} -y {size.rows}"
        await _run(sandbox, f"TERM=xterm-256color {terminal._tmux} -f /dev/null {begin} </dev/null >/dev/null 2>&1")
        return terminal

    async def send_keys(self, *keys: str) -> None:
        """See `Terminal.send_keys`."""
        for text in _typed(keys):
            paste = f"{self._tmux} load-buffer -b t1 - && {self._tmux} paste-buffer -d -r -b t1 -t t1"
            await _run(self._sandbox, f"echo {text} | base64 -d | {paste}")

    async def capture_pane(self) -> str:
        """See `Terminal.capture_pane`."""
        return _trimmed((await _run(self._sandbox, f"{self._tmux} capture-pane -p -t t1")).split("\n"))

    async def close(self) -> None:
        """See `Terminal.close`."""
        try:
            await self._sandbox.run(f"{self._tmux} kill-server 2>/dev/null", timeout_s=COMMAND_S)
        except SandboxVanished:
            return


class PseudoTerminal:
    """A pseudo-terminal from `script`, and a screen that is drawn here from what it printed."""

    def __init__(self, sandbox: Sandbox, folder: str, size: Size) -> None:
        try:
            import pyte
        except ImportError as error:
            raise SandboxUnavailable(
                "the image has no tmux, and pyte is missing: pip install 't1[terminal]'"
            ) from error
        self._sandbox = sandbox
        self._folder = shlex.quote(folder)
        self._screen: pyte.Screen = pyte.Screen(size.columns, size.rows)
        self._stream = pyte.ByteStream(self._screen)
        self._seen = 0

    @classmethod
    async def open(cls, sandbox: Sandbox, size: Size) -> PseudoTerminal:
        """Start a shell whose keys come from a pipe, and wait for its prompt."""
        terminal = cls(sandbox, f"/tmp/.t1-terminal-{secrets.token_hex(4)}", size)
        inner = shlex.quote(f"stty rows {size.rows} cols {size.columns}; exec bash -i")
        # With job control (set -m) a background job does not ignore what C-c sends.
        await _run(
            sandbox,
            f"set -m; d={terminal._folder}; mkdir -m 700 $d && mkfifo $d/keys && : > $d/printed && "
            "{ sleep infinity > $d/keys & echo $! > $d/pids; "
            f"TERM=linux script -qfc {inner} $d/printed < $d/keys >/dev/null 2>&1 & echo $! >> $d/pids; }}",
        )
        async with asyncio.timeout(COMMAND_S):
            while not await terminal.capture_pane():  # noqa: ASYNC110 (over there)
                await asyncio.sleep(POLL_S)
        return terminal

    async def send_keys(self, *keys: str) -> None:
        """See `Terminal.send_keys`."""
        for text in _typed(keys):
            await _run(self._sandbox, f"echo {text} | base64 -d > {self._folder}/keys")

    async def capture_pane(self) -> str:
        """See `Terminal.capture_pane`."""
        printed = f"{self._folder}/printed"
        size = int(await _run(self._sandbox, f"stat -c %s {printed}"))
        if size > self._seen:
            start = max(self._seen, size - MAX_NEW_BYTES)
            if start > self._seen:
                self._screen.reset()
            text = await _run(
                self._sandbox,
                f"tail -c +{start + 1} {printed} | head -c {size - start} | base64 -w 0",
                max_bytes=2 * MAX_NEW_BYTES,
            )
            self._stream.feed(base64.b64decode(text))
            self._seen = size
        return _trimmed(list(self._screen.display))

    async def close(self) -> None:
        """See `Terminal.close`: with its terminal gone, the shell and what it runs are hung up."""
        try:
            await self._sandbox.run(
                f"{{ kill -9 $(cat {self._folder}/pids) && rm -rf {self._folder}; }} 2>/dev/null", timeout_s=COMMAND_S
            )
        except SandboxVanished:
            return


def _trimmed(lines: list[str]) -> str:
    """Lines without what is blank at their ends and at the bottom."""
    return "\n".join(line.rstrip() for line in lines).rstrip("\n")
