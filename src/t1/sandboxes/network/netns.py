"""Listening sockets that live in the network namespace of another process.

Root enters the namespace in a thread that ends right after; anybody else needs a process of one thread, which enters
the user namespace first and hands the sockets back. So this file is a module and a program, and imports nothing but the
standard library. Boundary: nothing runs inside the sandbox, and no setting of any namespace is changed.
"""

import ctypes
import fcntl
import os
import socket
import subprocess
import sys
import threading

NS_GET_USERNS = 0xB701
"""ioctl(2): the user namespace that owns a namespace."""
HELPER_S = 20.0
BACKLOG = 64


def listen(pid: int, ports: list[int]) -> list[socket.socket]:
    """One socket for each port of 127.0.0.1 as process `pid` sees it. OverflowError: no such port."""
    return listen_in_thread(pid, ports) if os.geteuid() == 0 else listen_in_process(pid, ports)


def listen_in_thread(pid: int, ports: list[int]) -> list[socket.socket]:
    """For root: a thread may leave our network namespace for good, since it ends here."""
    opened: list[socket.socket] = []
    failed: list[Exception] = []

    def enter() -> None:
        try:
            _enter(pid, through_user=False)
            opened.extend(_open(ports))
        except (OSError, OverflowError) as error:
            failed.append(error)

    thread = threading.Thread(target=enter, name="t1-netns")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return opened


def listen_in_process(pid: int, ports: list[int]) -> list[socket.socket]:
    """For others: this file as a program, with a socket to hand the descriptors back through."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = [sys.executable, "-I", "-S", __file__, str(theirs.fileno()), str(pid), *map(str, ports)]
        try:
            told = subprocess.run(
                words, pass_fds=(theirs.fileno(),), capture_output=True, text=True, timeout=HELPER_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"no socket inside the sandbox after {HELPER_S:g} s") from error
        if told.returncode != 0:
            raise OSError((told.stderr.strip().splitlines() or ["the helper ended without a word"])[-1])
        _, descriptors, _, _ = socket.recv_fds(ours, 1, len(ports))
        return [socket.socket(fileno=descriptor) for descriptor in descriptors]


def _enter(pid: int, *, through_user: bool) -> None:
    """Move the calling thread into the network namespace of `pid`."""
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if through_user:
            owner = fcntl.ioctl(namespace, NS_GET_USERNS)
            try:
                if os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:  # noqa: PTH116 (no pathlib here)
                    _setns(owner)
            finally:
                os.close(owner)
        _setns(namespace)
    finally:
        os.close(namespace)


def _setns(descriptor: int) -> None:
    """setns(2), which Python 3.11 does not have."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def _open(ports: list[int]) -> list[socket.socket]:
    """Listening sockets in the namespace of the calling thread."""
    opened: list[socket.socket] = []
    try:
        for port in ports:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            opened.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen(BACKLOG)
            listener.setblocking(False)
    except (OSError, OverflowError):
        for listener in opened:
            listener.close()
        raise
    return opened


def main() -> None:
    """`netns.py FD PID PORT …`: listen, hand the sockets over FD, end."""
    channel, pid, *ports = map(int, sys.argv[1:])
    _enter(pid, through_user=True)
    listeners = _open(ports)
    with socket.socket(fileno=channel) as back:
        socket.send_fds(back, [b"\0"], [listener.fileno() for listener in listeners])


if __name__ == "__main__":
    main()
