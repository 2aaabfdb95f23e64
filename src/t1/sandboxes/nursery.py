"""Where the processes of sandboxes are born: under the filter, inside their control group.

All of them are children of one thread, which lives until `close`: the kernel kills a sandbox with the thread that
started it, and with the whole program at the latest. That thread is never the first of the program, whose control
group is the one that the program's memory is charged to. Boundary: processes only; what runs in them is the caller's.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from t1.sandboxes.cgroups import Group

Confine = Callable[[Sequence[str], int | None], list[str]]
"""(program, descriptor of the filter that it starts under, or None) → the whole argument list."""


class Nursery:
    """Starts processes. `filter_file` holds a BPF program for bubblewrap."""

    def __init__(self, filter_file: Path | None = None) -> None:
        self._filter_file = filter_file
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="t1-nursery")

    def start(
        self, confine: Confine, program: Sequence[str], group: Group | None, *, stdin: int, stdout: int
    ) -> subprocess.Popen[bytes]:
        """Start `program` confined; waits for it (about a millisecond) rather than lose a process to a cancel."""
        return self._thread.submit(self._start, confine, program, group, stdin, stdout).result()

    def _start(
        self, confine: Confine, program: Sequence[str], group: Group | None, stdin: int, stdout: int
    ) -> subprocess.Popen[bytes]:
        if self._filter_file is None:
            return _born(confine(program, None), group, stdin, stdout, ())
        # Opened anew for each: bubblewrap reads it to the end.
        descriptor = os.open(self._filter_file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _born(confine(program, descriptor), group, stdin, stdout, (descriptor,))
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """End the thread, and with it every process that it started."""
        self._thread.shutdown(wait=True)


def _born(
    words: list[str], group: Group | None, stdin: int, stdout: int, descriptors: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    """Only arguments that let Popen vfork: this program may hold gigabytes of weights. A process group of its own, so
    that Ctrl-C reaches us and not a rollout that we may want to finish.
    """
    try:
        if group is not None:
            group.enter()
        return subprocess.Popen(
            words, stdin=stdin, stdout=stdout, stderr=stdout, env={}, process_group=0, pass_fds=descriptors
        )
    finally:
        if group is not None:
            group.leave()
