"""Private memory of this process, now and at its fullest: what the kernel calls RssAnon.

Pages of a mapped file are not in it, since the kernel may drop them whenever it likes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LOOK_S = 0.002


@dataclass(slots=True)
class Watched:
    """Bytes; `peak` grows while the block runs."""

    before: int
    peak: int


def private_bytes() -> int:
    """Of this process, now."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("RssAnon:")[1].split()[0])


@contextmanager
def watching() -> Iterator[Watched]:
    """Look every `LOOK_S` while the block runs."""
    now = private_bytes()
    seen, done = Watched(now, now), threading.Event()

    def watch() -> None:
        while not done.wait(LOOK_S):
            seen.peak = max(seen.peak, private_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join(5.0)
