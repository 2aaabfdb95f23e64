"""Where the processes of sandboxes are born: under the filter, inside their control group.

All of them are children of one thread, which lives until `close`: the kernel kills a sandbox with the thread that
started it, and with the whole program at the latest. That thread is never the first of the program, whose control
group is the one that the program's memory is charged to. Where sandboxes have uids of their own the thread also has a
mount table of its own, with less to read in it. Boundary: processes only; what runs in them is the caller's.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from t1.sandboxes.cgroups import Group
from t1.sandboxes.namespaces import mount_table

Confine = Callable[[Sequence[str], int | None], list[str]]
"""(program, descriptor of the filter that it starts under, or None) → the whole argument list."""


class Nursery:
    """Starts processes. `filter_file` holds a BPF program for bubblewrap.

    `reached`: the paths that the thread must reach itself, if it gets a mount table of its own (see `mount_table`).
    """

    def __init__(self, filter_file: Path | None = None, *, reached: Sequence[Path] | None = None) -> None:
        self._filter_file = filter_file
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="t1-nursery")
        if reached is not None:
            self._thread.submit(mount_table.shorten, reached).result()

    def start(
        self, confine: Confine, program: Sequence[str], group: Group | None, *, stdin: int, stdout: int
    ) -> subprocess.Popen[bytes]:
        """Start `program` confined; waits for it (about a millisecond) rather than lose a process to a cancel.

        Raises OSError.
        """
        started = self._thread.submit(self._start, confine, program, group, stdin, stdout)
        if group is not None:
            # Nobody waits for this: the kernel lets the new process run first, and entering the next group leaves too.
            self._thread.submit(group.leave)
        return started.result()

    def _start(
        self, confine: Confine, program: Sequence[str], group: Group | None, stdin: int, stdout: int
    ) -> subprocess.Popen[bytes]:
        if group is not None:
            group.enter()
        if self._filter_file is None:
            return _born(confine(program, None), stdin, stdout, ())
        # Opened anew for each: bubblewrap reads it to the end.
        descriptor = os.open(self._filter_file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _born(confine(program, descriptor), stdin, stdout, (descriptor,))
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """End the thread, and with it every process that it started."""
        self._thread.shutdown(wait=True)


def _born(words: list[str], stdin: int, stdout: int, descriptors: tuple[int, ...]) -> subprocess.Popen[bytes]:
    """Only arguments that let Popen vfork: this program may hold gigabytes of weights. A process group of its own, so
    that Ctrl-C reaches us and not a rollout that we may want to finish.
    """
    return subprocess.Popen(
        words, stdin=stdin, stdout=stdout, stderr=stdout, env={}, process_group=0, pass_fds=descriptors
    )
