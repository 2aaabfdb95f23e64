"""The system calls that no process of a sandbox may make, as a classic BPF program for seccomp(2).

Bubblewrap loads it right before the shell, so every process of the sandbox inherits it and none can take it off.
Refused calls fail with an error number and kill nothing: a program that only tries goes on. Boundary: numbers in,
bytes out.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

ALLOW = 0x7FFF0000
ERRNO = 0x00050000

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""BPF operations: load a word of struct seccomp_data, compare the loaded word with a constant, return."""
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
"""Offsets in struct seccomp_data; an argument has 8 bytes, its low word first on the machines below."""

NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET."""
FAMILIES = (socket.AF_UNSPEC, socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""Sockets that the network namespace confines. AF_VSOCK, for one, would reach the host of a virtual machine."""
TERMINAL_REQUESTS = (0x5412, 0x541C)
"""ioctl TIOCSTI and TIOCLINUX type into a terminal."""
FOREIGN_ABI = 0x40000000
"""x32 numbers start here; no other machine has numbers this high."""

# name: (x86-64, the generic table of aarch64). Kernel code, mounts, other namespaces, the clock, keys, tracing of the
# kernel, raw input and output: all of it needs capabilities that a sandbox has not, and none of it should be reachable
# even so.
REFUSED: Mapping[str, tuple[int, int]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
X86_ONLY: Mapping[str, int] = {"ioperm": 173, "iopl": 172, "modify_ldt": 154}
SHMGET = (29, 194)


@dataclass(frozen=True, slots=True)
class Machine:
    """How a processor's system calls are told apart."""

    audit: int
    """AUDIT_ARCH_*: another value is another ABI of the same kernel (32 bits), which is refused whole."""
    column: int
    clone: int
    clone3: int
    socket: int
    ioctl: int


MACHINES = {
    "x86_64": Machine(0xC000003E, 0, clone=56, clone3=435, socket=41, ioctl=16),
    "aarch64": Machine(0xC00000B7, 1, clone=220, clone3=435, socket=198, ioctl=29),
}


def program(machine: str | None = None, *, shared_memory: bool = True) -> bytes | None:
    """The filter for this machine (or the named one); None where its numbers are not known.

    `shared_memory`: allow SysV segments. They outlive every process and no rlimit counts them: a cgroup should.
    """
    known = MACHINES.get(machine or platform.machine())
    return None if known is None else b"".join(_instructions(known, shared_memory))


def _instructions(machine: Machine, shared_memory: bool) -> Iterator[bytes]:
    yield _word(ARCHITECTURE)
    yield from (_jump(EQUAL, machine.audit, 1, 0), _fail(errno.ENOSYS))
    yield _word(NUMBER)
    yield from (_jump(AT_LEAST, FOREIGN_ABI, 0, 1), _fail(errno.ENOSYS))
    # Its flags lie in memory, where a filter cannot look: the C library then calls clone.
    yield from (_jump(EQUAL, machine.clone3, 0, 1), _fail(errno.ENOSYS))
    numbers = {numbers[machine.column] for numbers in REFUSED.values()}
    numbers |= set(X86_ONLY.values()) if machine.column == 0 else set()
    numbers |= set() if shared_memory else {SHMGET[machine.column]}
    for number in sorted(numbers):
        yield from (_jump(EQUAL, number, 0, 1), _fail(errno.EPERM))
    yield from _of_call(machine.clone, 0, [_jump(ANY_BIT, NAMESPACE_FLAGS, 0, 1), _fail(errno.EPERM)])
    families = [_jump(EQUAL, family, len(FAMILIES) - i, 0) for i, family in enumerate(FAMILIES)]
    yield from _of_call(machine.socket, 0, [*families, _fail(errno.EAFNOSUPPORT)])
    requests = [[_jump(EQUAL, request, 0, 1), _fail(errno.EPERM)] for request in TERMINAL_REQUESTS]
    yield from _of_call(machine.ioctl, 1, [word for request in requests for word in request])
    yield _return(ALLOW)


def _of_call(number: int, argument: int, body: list[bytes]) -> Iterator[bytes]:
    """`body` looks at an argument of one call; what it lets pass is allowed."""
    yield _jump(EQUAL, number, 0, len(body) + 2)
    yield _word(FIRST_ARGUMENT + 8 * argument)
    yield from body
    yield _return(ALLOW)


def _word(offset: int) -> bytes:
    return _instruction(LOAD, 0, 0, offset)


def _jump(test: int, value: int, then: int, otherwise: int) -> bytes:
    """Skip `then` instructions where the test holds, `otherwise` where it does not."""
    return _instruction(test, then, otherwise, value)


def _fail(number: int) -> bytes:
    return _return(ERRNO | number)


def _return(verdict: int) -> bytes:
    return _instruction(RETURN, 0, 0, verdict)


def _instruction(operation: int, then: int, otherwise: int, value: int) -> bytes:
    """struct sock_filter."""
    return struct.pack("=HBBI", operation, then, otherwise, value)
