"""The filter, run by a small interpreter of BPF, and its numbers against the kernel's own headers."""

from __future__ import annotations

import errno
import re
import socket
import struct
from pathlib import Path

import pytest

from t1.sandboxes.namespaces import seccomp

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


def verdict(program: bytes, number: int, *arguments: int, audit: int = 0xC000003E) -> int:
    """What the kernel would return: 0 = allowed, else the error number."""
    words = struct.pack("=iIQ6Q", number, audit, 0, *arguments, *([0] * (6 - len(arguments))))
    loaded, at = 0, 0
    while True:
        operation, then, otherwise, value = struct.unpack_from("=HBBI", program, 8 * at)
        at += 1
        if operation == seccomp.LOAD:
            (loaded,) = struct.unpack_from("=I", words, value)
        elif operation == seccomp.RETURN:
            return 0 if value == seccomp.ALLOW else value & 0xFFFF
        else:
            holds = {
                seccomp.EQUAL: loaded == value,
                seccomp.AT_LEAST: loaded >= value,
                seccomp.ANY_BIT: bool(loaded & value),
            }[operation]
            at += then if holds else otherwise


@pytest.fixture
def program() -> bytes:
    made = seccomp.program("x86_64")
    assert made is not None
    return made


def test_plain_calls_pass(program: bytes) -> None:
    assert [verdict(program, number) for number in (0, 1, 57, 59, 60, 101, 231, 257)] == [0] * 8


def test_every_refused_call_fails_with_eperm(program: bytes) -> None:
    assert {verdict(program, x86) for x86, _ in seccomp.REFUSED.values()} == {errno.EPERM}


def test_other_abis_of_the_same_kernel_are_refused_whole(program: bytes) -> None:
    assert verdict(program, 1, audit=0x40000003) == errno.ENOSYS
    assert verdict(program, 0x40000001) == errno.ENOSYS


def test_clone_makes_processes_and_threads_but_no_namespaces(program: bytes) -> None:
    assert verdict(program, 56, 0x1200011) == 0
    assert verdict(program, 56, 0x3D0F00) == 0
    assert verdict(program, 56, 0x10000011) == errno.EPERM
    assert verdict(program, 56, 0x00020011) == errno.EPERM
    assert verdict(program, 435) == errno.ENOSYS


def test_only_sockets_that_a_network_namespace_confines_can_be_made(program: bytes) -> None:
    for family in seccomp.FAMILIES:
        assert verdict(program, 41, family) == 0
    for family in (socket.AF_PACKET, socket.AF_VSOCK, socket.AF_ALG):
        assert verdict(program, 41, family) == errno.EAFNOSUPPORT


def test_nothing_can_be_typed_into_a_terminal(program: bytes) -> None:
    assert verdict(program, 16, 0, 0x5412) == errno.EPERM
    assert verdict(program, 16, 0, 0x5413) == 0


def test_sysv_memory_is_refused_where_nothing_counts_it(program: bytes) -> None:
    strict = seccomp.program("x86_64", shared_memory=False)
    assert strict is not None
    assert (verdict(program, 29), verdict(strict, 29)) == (0, errno.EPERM)


def test_an_unknown_machine_has_no_filter() -> None:
    assert seccomp.program("vax") is None


@pytest.mark.parametrize("machine", HEADERS)
def test_the_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    header, column = HEADERS[machine], seccomp.MACHINES[machine].column
    if not header.is_file():
        pytest.skip(f"no {header}")
    numbers = {name: int(text) for name, text in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())}
    expected = {name: pair[column] for name, pair in seccomp.REFUSED.items()} | {"shmget": seccomp.SHMGET[column]}
    expected |= seccomp.X86_ONLY if column == 0 else {}
    expected |= {name: getattr(seccomp.MACHINES[machine], name) for name in ("clone", "clone3", "socket", "ioctl")}
    assert {name: numbers.get(name) for name in expected} == expected
