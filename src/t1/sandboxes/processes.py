"""Processes of a pid namespace as the host's /proc shows them, and how to kill them without hitting another.

Boundary: reads /proc, sends signals through process descriptors; never learns of sandboxes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path


def started(pid: int) -> int | None:
    """When a process started (clock ticks since boot), or None if there is none: pids are used again."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def pid_namespace(pid: int) -> int:
    """The inode that names a process's pid namespace."""
    return os.stat(f"/proc/{pid}/ns/pid").st_ino  # noqa: PTH116 (hot)


def descendants(pid: int) -> Iterator[int]:
    """Every process below `pid`, as far as /proc shows them."""
    todo = [pid]
    while todo:
        folder = Path(f"/proc/{todo.pop()}/task")
        with contextlib.suppress(OSError):
            for task in folder.iterdir():
                children = [int(word) for word in (task / "children").read_bytes().split()]
                todo += children
                yield from children


def kill_descendants(pid: int, namespace: int, since_s: float) -> None:
    """Kill what stands below `pid` in this pid namespace and started at `since_s` (seconds since boot) or later."""
    tick = int(since_s * os.sysconf("SC_CLK_TCK")) - 1
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(child)
            try:
                # The number may have been used again: only what is in the sandbox's namespace is killed.
                if pid_namespace(child) == namespace and (started(child) or 0) >= tick:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)


def command_lines(pid: int, *, most: int = 32) -> tuple[str, ...]:
    """What runs below `pid`, as its own words say: at most `most` processes, 300 characters each."""
    lines = []
    for child in itertools.islice(descendants(pid), most):
        with contextlib.suppress(OSError):
            with open(f"/proc/{child}/cmdline", "rb") as file:  # noqa: PTH123 (bounded)
                words = file.read(300).replace(b"\0", b" ").strip()
            lines.append(words.decode("utf-8", "replace") or "(a process without words)")
    return tuple(lines)
