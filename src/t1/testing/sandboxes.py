"""A sandbox provider in memory, for tests of whatever uses sandboxes: no processes, no disk, no waiting.

Commands go to a `script` first; what it leaves (None) a tiny shell understands: `cd`, `pwd`, `echo … [> file]`,
`cat`, `NAME=value`, `true`, `false`, `exit N`, `sleep N`, joined by `&&`, `;` or newlines. Held to the same contract
test as the real provider.
"""

from __future__ import annotations

import itertools
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from t1.errors import SandboxError, SandboxVanished
from t1.types import CommandResult, FileChanges, Task

Script = Callable[["FakeSandbox", str], CommandResult | str | None]
"""Answers a command: a result, its output (exit code 0), or None to leave it to the tiny shell."""
Verify = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
"""What `bash /tests/test.sh` does: the files it finds → the files that it writes (absolute paths)."""

CARRIED = ("/app", "/root", "/tmp")


class FakeSandbox:
    """One sandbox in memory: files by absolute path, a directory, variables."""

    def __init__(self, name: str, provider: FakeSandboxProvider, files: dict[str, bytes], *, pristine: bool) -> None:
        self.id = name
        self.files = files
        self.directory = "/app"
        self.variables: dict[str, str] = {}
        self.commands: list[str] = []
        """Every command, in order."""
        self.pristine = pristine
        self.stopped = False
        self.closed = False
        self._provider = provider

    async def run(self, command: str, *, timeout_s: float, max_output_bytes: int = 65536) -> CommandResult:
        """See `protocols.Sandbox.run`."""
        if self.stopped:
            raise SandboxVanished(f"sandbox {self.id} was stopped")
        self.commands.append(command)
        answer = self._provider.script(self, command) if self._provider.script is not None else None
        if isinstance(answer, str):
            return _bounded(CommandResult(answer, 0, 0.0), max_output_bytes)
        if answer is None:
            answer = self._interpret(command, timeout_s)
        return _bounded(answer, max_output_bytes)

    def _interpret(self, command: str, timeout_s: float) -> CommandResult:
        """The tiny shell."""
        if command.endswith("bash /tests/test.sh") and self.pristine:
            if self._provider.verify is not None:
                self.files.update(self._provider.verify(dict(self.files)))
            return CommandResult("", 0, 0.0)
        output, status = "", 0
        for join, simple in _simple_commands(command):
            if join == "&&" and status != 0:
                continue
            try:
                words = shlex.split(simple)
            except ValueError as error:
                return CommandResult(f"{output}fake: {error}\n", 2, 0.0)
            words = [re.sub(r"\$(\w+)", lambda found: self.variables.get(found[1], ""), word) for word in words]
            if words[:1] == ["exit"]:
                self.variables.clear()
                return CommandResult(output, int(words[1]) if words[1:] else status, 0.0, shell_restarted=True)
            if words[:1] == ["sleep"] and float(words[1]) > timeout_s:
                return CommandResult(output, None, timeout_s, timed_out=True)
            printed, status = self._execute(words)
            output += printed
        return CommandResult(output, status, 0.0)

    def _execute(self, words: list[str]) -> tuple[str, int]:
        """Output and status of one simple command."""
        if ">" in words[:-1]:
            cut = words.index(">")
            printed, status = self._execute(words[:cut])
            self.files[self.path(words[cut + 1])] = printed.encode()
            return "", status
        match words:
            case [] | ["true"] | ["sleep", _]:
                return "", 0
            case ["false"]:
                return "", 1
            case ["pwd"]:
                return self.directory + "\n", 0
            case ["cd", target]:
                self.directory = self.path(target)
                return "", 0
            case ["echo", *rest]:
                return " ".join(rest) + "\n", 0
            case ["cat", name] if self.path(name) in self.files:
                return self.files[self.path(name)].decode("utf-8", "replace"), 0
            case ["cat", name]:
                return f"cat: {name}: No such file or directory\n", 1
            case [assignment] if re.fullmatch(r"\w+=.*", assignment, re.DOTALL):
                name, _, value = assignment.partition("=")
                self.variables[name] = value
                return "", 0
        return f"fake: {words[0]}: command not found\n", 127

    def path(self, name: str) -> str:
        """Absolute and normalised."""
        return posixpath.normpath(posixpath.join(self.directory, name))

    async def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """See `protocols.Sandbox.read`."""
        data = self.files.get(posixpath.normpath(path))
        if data is not None and len(data) > max_bytes:
            raise SandboxError(f"{path}: larger than {max_bytes} bytes")
        return data

    async def stop(self) -> FileChanges:
        """See `protocols.Sandbox.stop`. The files stay with the provider until `close`."""
        self.stopped = True
        return FileChanges(Path("/fake") / self.id, {place: place[1:] for place in CARRIED})

    async def close(self) -> None:
        """See `protocols.Sandbox.close`."""
        self.stopped = self.closed = True
        self._provider.live.pop(self.id, None)


class FakeSandboxProvider:
    """Opens fake sandboxes.

    `files` are in every new sandbox; `failures` are raised by the next opens, one each, before any succeeds.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        verify: Verify | None = None,
        files: Mapping[str, bytes] | None = None,
        failures: Sequence[Exception] = (),
    ) -> None:
        self.script = script
        self.verify = verify
        self.live: dict[str, FakeSandbox] = {}
        """Sandboxes that were opened and not closed, by id."""
        self.opened: list[FakeSandbox] = []
        """All that were ever opened."""
        self._files = dict(files or {})
        self._failures = list(failures)
        self._numbers = itertools.count()

    async def open(self, task: Task) -> FakeSandbox:
        """See `protocols.SandboxProvider.open`."""
        return self._new(dict(self._files), pristine=False)

    async def open_pristine(self, task: Task, changes: FileChanges) -> FakeSandbox:
        """See `protocols.SandboxProvider.open_pristine`."""
        left = self.live[changes.root.name].files
        carried = tuple(place + "/" for place in changes.places)
        files = {path: data for path, data in self._files.items() if not path.startswith(carried)}
        files.update((path, data) for path, data in left.items() if path.startswith(carried))
        return self._new(files, pristine=True)

    def _new(self, files: dict[str, bytes], *, pristine: bool) -> FakeSandbox:
        if self._failures:
            raise self._failures.pop(0)
        sandbox = FakeSandbox(f"fake{next(self._numbers)}", self, files, pristine=pristine)
        self.live[sandbox.id] = sandbox
        self.opened.append(sandbox)
        return sandbox

    async def close(self) -> None:
        """See `protocols.SandboxProvider.close`."""
        for sandbox in list(self.live.values()):
            await sandbox.close()


def _simple_commands(command: str) -> list[tuple[str, str]]:
    """(what joins it to the one before, simple command); quoted separators are not understood."""
    parts = re.split(r"(&&|;|\n)", command)
    return list(zip(["", *parts[1::2]], parts[::2], strict=True))


def _bounded(result: CommandResult, max_bytes: int) -> CommandResult:
    """Head and tail of the output, as the protocol bounds it."""
    data = result.output.encode()
    if len(data) <= max_bytes:
        return result
    head, tail = data[: max_bytes // 2], data[len(data) - (max_bytes - max_bytes // 2) :]
    output = head.decode("utf-8", "ignore") + tail.decode("utf-8", "ignore")
    return CommandResult(
        output,
        result.exit_code,
        result.duration_s,
        timed_out=result.timed_out,
        cut_bytes=len(data) - len(output.encode()),
        shell_restarted=result.shell_restarted,
    )
