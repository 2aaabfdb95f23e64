"""Sessions on disk: one append-only file each, written behind the replies, restored after a crash.

A file is a mark and frames: length, CRC-32, payload; a payload is a line of JSON and the bytes of the arrays that it
names. A thread of its own writes. Entries wait as references to what the session holds in memory anyway, so waiting
costs no copies and a slow disk never holds up a reply; how far the thread is behind is known (`num_behind`), and what a
full disk refuses is tried again. A last frame that a crash tore is cut off and reported. Boundary: entries to bytes and
back; what they mean is in `ledger.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import re
import secrets
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from t1.errors import RunError
from t1.gateway.canonical import ChangeKind
from t1.gateway.conversation import Finish, Message, Role, Tool, ToolCall
from t1.gateway.ledger import Closing, Delivered, Entry, Exchange, Opening
from t1.types import FinishReason, SampleTimings, SamplingParams

MAGIC = b"t1-session-1\n"
SUFFIX = ".session"
FRAME = struct.Struct("<QI")
"""Length of the payload, and its CRC-32."""
RETRY_S = 1.0
CLOSE_S = 30.0
ARRAYS = ("added", "completion", "logprobs", "versions", "routing")


@dataclass(frozen=True, slots=True)
class Restored:
    """A session that was found open."""

    session: str
    path: Path
    num_exchanges: int
    lost_bytes: int
    """At the end of its file: what was being written when the gateway died."""


@dataclass(slots=True, eq=False)
class _Log:
    """One session's file and what is still to be written to it."""

    path: Path
    entries: deque[Entry] = field(default_factory=deque)
    size: int = 0
    """Bytes of the file that are whole."""


class Capture:
    """The files of a gateway."""

    def __init__(self, directory: Path, *, fsync_s: float = 1.0) -> None:
        """Raises RunError where another gateway has the directory, or it cannot be written."""
        self._directory, self._fsync_s = directory, fsync_s
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = (directory / ".lock").open("ab")
        except OSError as error:
            raise RunError(f"{directory}: sessions cannot be recorded here: {error}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise RunError(f"{directory}: another gateway records here; give each a directory of its own") from error
        self._errors: dict[Path, str] = {}
        """What cannot be written just now, and why."""
        self._logs: dict[str, _Log] = {}
        self._due: dict[_Log, None] = {}
        """Logs with something to write, in order."""
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="t1-capture", daemon=True)
        self._thread.start()

    @property
    def error(self) -> str:
        """Why something cannot be written just now; "" where all can."""
        return next(iter(self._errors.copy().values()), "")

    @property
    def num_behind(self) -> int:
        """Entries that are not written yet."""
        with self._wake:
            return sum(len(log.entries) for log in self._due)

    def start(self, opening: Opening) -> None:
        """Begin a session's file."""
        readable = re.sub(r"[^A-Za-z0-9.-]+", "_", opening.session)[:80].lstrip(".")
        name = f"{readable}-{sha256(opening.session.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
        self._logs[opening.session] = _Log(self._directory / f"{name}-{secrets.token_hex(4)}{SUFFIX}")
        self.write(opening.session, opening)

    def write(self, session: str, entry: Entry) -> None:
        """Have an entry written soon. Never waits."""
        log = self._logs[session]
        if isinstance(entry, Closing):
            del self._logs[session]
        with self._wake:
            log.entries.append(entry)
            self._due[log] = None
            self._wake.notify()

    def restore(self) -> Iterator[tuple[Restored, Opening, list[Exchange | Delivered]]]:
        """The sessions whose files have no end. Their files go on where they stopped."""
        found: dict[str, tuple[Path, int, Opening, list[Exchange | Delivered]]] = {}
        for path in sorted(self._directory.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime_ns):
            entries, size = read_log(path)
            if not entries or isinstance(entries[-1], Closing):
                continue
            opening, *others = entries
            if not isinstance(opening, Opening):
                raise RunError(f"{path}: the file of a session begins with its opening, this one with {opening!r}")
            kept = [entry for entry in others if isinstance(entry, Exchange | Delivered)]
            found[opening.session] = path, size, opening, kept  # of two with one name the newer is the session
        for session, (path, size, opening, kept) in found.items():
            lost = path.stat().st_size - size
            os.truncate(path, size)
            self._logs[session] = _Log(path, size=size)
            num_exchanges = sum(isinstance(entry, Exchange) for entry in kept)
            yield Restored(session, path, num_exchanges, lost), opening, kept

    def close(self) -> None:
        """Write what waits, within a bound, and let go of the directory. Safe to call twice."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(CLOSE_S)
        self._lock.close()

    # ---- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Write what is due until closed and done."""
        unsynced: dict[_Log, None] = {}
        synced = time.monotonic()
        while True:
            due, closed = self._next(synced + self._fsync_s if unsynced else None)
            failed = [log for log in due if not self._write(log)]
            unsynced |= dict.fromkeys(log for log in due if log not in failed)
            if closed or time.monotonic() >= synced + self._fsync_s:
                self._sync(unsynced)
                unsynced, synced = {}, time.monotonic()
            if closed:
                return
            if failed:
                with self._wake:
                    self._due = dict.fromkeys(failed) | self._due
                    self._wake.wait_for(lambda: self._closed, RETRY_S)

    def _next(self, until: float | None) -> tuple[list[_Log], bool]:
        """What is due; waits for it, at most until the time of a sync. And whether that was the last of it."""
        with self._wake:
            timeout = None if until is None else max(0.0, until - time.monotonic())
            self._wake.wait_for(lambda: self._due or self._closed, timeout)
            due, self._due = list(self._due), {}
            return due, self._closed

    def _write(self, log: _Log) -> bool:
        """Append what waits. On failure the file is cut back to what is whole, and the rest waits on."""
        if not log.entries:
            return True
        try:
            with log.path.open("ab" if log.size else "wb", buffering=0) as file:
                while log.entries:
                    frame = encode(log.entries[0])
                    written = frame if log.size else MAGIC + frame
                    _write_all(file, written)
                    log.size += len(written)
                    log.entries.popleft()
        except OSError as error:
            self._errors[log.path] = f"{log.path}: {error.strerror or error}"
            with contextlib.suppress(OSError):
                os.truncate(log.path, log.size)
            return False
        self._errors.pop(log.path, None)
        return True

    def _sync(self, logs: Collection[_Log]) -> None:
        """Have the files, and their names, on the disk."""
        if not logs:
            return
        for path in [*(log.path for log in logs), self._directory]:
            try:
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            except OSError as error:
                self._errors[path] = f"{path}: {error.strerror or error}"
            else:
                self._errors.pop(path, None)


def _write_all(file: RawIOBase, content: bytes) -> None:
    """Every byte: a raw file may take fewer at a time."""
    view = memoryview(content)
    while view:
        view = view[file.write(view) or 0 :]


def read_log(path: Path) -> tuple[list[Entry], int]:
    """The whole entries of a file, and the bytes that they take: what follows them was torn.

    Raises RunError where the file is no session's.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: a session's file that cannot be read: {error}") from error
    if not content.startswith(MAGIC):
        if MAGIC.startswith(content):
            return [], 0  # torn within the first bytes
        raise RunError(f"{path}: not the file of a session in the format {MAGIC.decode().strip()}")
    entries: list[Entry] = []
    exchanges: dict[int, Exchange] = {}
    at = len(MAGIC)
    while (payload := _frame(content, at)) is not None:
        try:
            entry = decode(payload, exchanges)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{path}: entry {len(entries)} is whole, but makes no sense: {error!r}") from error
        if isinstance(entry, Exchange):
            exchanges[entry.number] = entry
        elif isinstance(entry, Delivered) and entry.number not in exchanges:
            raise RunError(f"{path}: entry {len(entries)} delivers a reply that the file lacks")
        entries.append(entry)
        at += FRAME.size + len(payload)
    return entries, at


def _frame(content: bytes, at: int) -> bytes | None:
    """The payload of the frame at `at`, or None where there is no whole one."""
    if at + FRAME.size > len(content):
        return None
    size, checksum = FRAME.unpack_from(content, at)
    payload = content[at + FRAME.size : at + FRAME.size + size]
    return payload if len(payload) == size and zlib.crc32(payload) == checksum else None


def encode(entry: Entry) -> bytes:
    """An entry as a frame."""
    arrays: Mapping[str, npt.NDArray[Any] | None] = {}
    match entry:
        case Opening():
            fields = asdict(entry) | {"key_digest": entry.key_digest.hex()}
        case Exchange():
            fields, arrays = _exchange_fields(entry), {name: getattr(entry, name) for name in ARRAYS}
        case Delivered(number):
            fields = {"number": number}
        case Closing():
            fields = {}
    present = {name: array for name, array in arrays.items() if array is not None}
    head = {
        "kind": type(entry).__name__,
        "fields": fields,
        "arrays": [[name, array.dtype.str, array.shape] for name, array in present.items()],
    }
    # ASCII: lone surrogates, which clients may send, have no UTF-8.
    payload = b"".join([json.dumps(head).encode(), b"\n", *(array.tobytes() for array in present.values())])
    return FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def decode(payload: bytes, exchanges: Mapping[int, Exchange]) -> Entry:
    """The entry of a payload; `exchanges`: the earlier ones, by number."""
    line, _, rest = payload.partition(b"\n")
    head = json.loads(line)
    fields, stream = head["fields"], io.BytesIO(rest)
    match head["kind"]:
        case "Opening":
            params = SamplingParams(**fields["params"] | {"stop_ids": tuple(fields["params"]["stop_ids"])})
            return Opening(**fields | {"key_digest": bytes.fromhex(fields["key_digest"]), "params": params})
        case "Exchange":
            arrays = {name: _array(stream, kind, shape) for name, kind, shape in head["arrays"]}
            return _exchange(fields, arrays, exchanges)
        case "Delivered":
            return Delivered(fields["number"])
        case "Closing":
            return Closing()
    raise ValueError(f"no entry is of the kind {head['kind']!r}")


def _array(stream: BinaryIO, kind: str, shape: list[int]) -> npt.NDArray[Any]:
    dtype = np.dtype(kind)
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(stream.read(size), dtype=dtype).reshape(shape)


def _exchange_fields(exchange: Exchange) -> dict[str, Any]:
    return {
        "number": exchange.number,
        "parent": None if exchange.parent is None else exchange.parent.number,
        "finish": exchange.finish,
        "routing_start": exchange.routing_start,
        "timings": asdict(exchange.timings),
        "tools": [] if exchange.parent is not None else [asdict(tool) for tool in exchange.tools],
        "messages": [asdict(message) for message in exchange.messages],
        "reply": asdict(exchange.reply),
        "request": exchange.request.hex(),
        "ended": exchange.ended,
        "stop_sequence": exchange.stop_sequence,
        "idempotency_key": exchange.idempotency_key,
        "lane": exchange.lane,
        "changes": exchange.changes,
    }


def _exchange(
    fields: dict[str, Any], arrays: Mapping[str, npt.NDArray[Any]], exchanges: Mapping[int, Exchange]
) -> Exchange:
    parent = None if fields["parent"] is None else exchanges[fields["parent"]]
    return Exchange(
        **fields
        | {name: arrays.get(name) for name in ARRAYS}
        | {
            "parent": parent,
            "finish": FinishReason(fields["finish"]),
            "timings": SampleTimings(**fields["timings"]),
            "tools": tuple(Tool(**tool) for tool in fields["tools"]) if parent is None else parent.tools,
            "messages": tuple(_message(message) for message in fields["messages"]),
            "reply": _message(fields["reply"]),
            "request": bytes.fromhex(fields["request"]),
            "ended": Finish(fields["ended"]),
            "changes": tuple((ChangeKind(kind), detail) for kind, detail in fields["changes"]),
        }
    )


def _message(fields: dict[str, Any]) -> Message:
    calls = tuple(ToolCall(**call) for call in fields["tool_calls"])
    return Message(**fields | {"role": Role(fields["role"]), "tool_calls": calls})
