"""What is kept of a command's output: its head and its tail, however long it was.

Boundary: bytes in, text out; this module never learns of processes.
"""

from __future__ import annotations


class BoundedOutput:
    """Keeps the first and the last bytes of a stream in constant memory."""

    def __init__(self, max_bytes: int) -> None:
        if max_bytes < 2:
            raise ValueError(f"max_output_bytes: expected at least 2, got {max_bytes}")
        self._head_bytes = max_bytes // 2
        self._tail_bytes = max_bytes - self._head_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        """Bytes seen so far."""

    def add(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(chunk)
        room = self._head_bytes - len(self._head)
        if room:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        # Trimmed at twice its size, so that small chunks do not move the whole tail each time.
        if len(self._tail) > 2 * self._tail_bytes:
            del self._tail[: -self._tail_bytes]

    def text(self) -> tuple[str, int]:
        """The kept text, and how many bytes of the middle are missing. Undecodable bytes are replaced."""
        tail = self._tail[-self._tail_bytes :]
        cut = self.total - len(self._head) - len(tail)
        if cut == 0:
            return (self._head + tail).decode("utf-8", "replace"), 0
        head = self._head[: _whole(self._head)]
        lead = next((i for i, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
        cut += len(self._head) - len(head) + lead
        return head.decode("utf-8", "replace") + tail[lead:].decode("utf-8", "replace"), cut


def _whole(head: bytearray) -> int:
    """Length of `head` without a character that the cut split."""
    for back in range(1, min(4, len(head)) + 1):
        byte = head[-back]
        if byte & 0xC0 == 0x80:
            continue
        width = 1 if byte < 0x80 else 2 if byte >> 5 == 6 else 3 if byte >> 4 == 14 else 4 if byte >> 3 == 30 else 1
        return len(head) - back if width > back else len(head)
    return len(head)
