"""How a sandbox is confined on this host: what bubblewrap is asked for, and a probe of what works.

Three ways, best first; an unconfined shell is never one of them.
- *shifted* (we are root): bubblewrap starts as an unprivileged uid of the sandbox's own, in its user namespace.
- *user* (we are not root): the same, with our own uid.
- *dropped* (root, and the host forbids user namespaces): bubblewrap sets up as root, and the shell
  runs as the sandbox's own uid without any capability.

In all of them /proc/sys is read-only. Boundary: argument lists and read-only checks; kernel settings are never
written, not even to probe.
"""

from __future__ import annotations

import os
import platform
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from t1.sandboxes import cgroups
from t1.sandboxes.namespaces import seccomp

PROBE_TIMEOUT_S = 20.0
SHM_BYTES = 64 << 20
USERLAND = ("usr", "bin", "lib", "lib32", "lib64", "libx32", "sbin")
APART = ("dev", "etc", "proc", "sys", "tests", "tmp")
"""Of a root file system: what every sandbox has in its own way."""
SHIFTED_UIDS = (0x70000000, 0x7FFFFFF0)
"""A range that no distribution hands out (systemd leaves it unused)."""

_MEANT_FOR_US = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
)


class Confinement(StrEnum):
    """How the shell loses its privileges."""

    SHIFTED = "shifted"
    USER = "user"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class SandboxProbe:
    """What this host can do; true when sandboxes can be opened."""

    bwrap: str = ""
    """Version of bubblewrap, or empty."""
    confinement: Confinement | None = None
    limits: str = ""
    """What bounds memory and processes, and whether system calls are filtered."""
    problem: str = ""
    fix: str = ""

    def __bool__(self) -> bool:
        return self.confinement is not None

    def __str__(self) -> str:
        if self.confinement is None:
            return f"{self.problem}; {self.fix}"
        return f"bubblewrap {self.bwrap}, {_WAYS[self.confinement]}, {self.limits}"


_WAYS = {
    Confinement.SHIFTED: "a uid of its own per sandbox",
    Confinement.USER: "user namespaces under your own uid",
    Confinement.DROPPED: "no user namespaces here: root drops every capability",
}
_INSTALL = "install bubblewrap: apt-get install bubblewrap (or dnf, pacman, apk)"
_ALLOW = (
    "allow user namespaces: sysctl -w user.max_user_namespaces=15000, and where they exist "
    "kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0 "
    "(in a container: start it with --security-opt seccomp=unconfined)"
)


@dataclass(frozen=True, slots=True)
class Mounts:
    """What a sandbox sees beside the userland: the host's, or that of `rootfs`."""

    etc: Path
    writable: Mapping[str, Path]
    readonly: Mapping[str, Path]
    """Path in the sandbox → host directory or file, as `writable`."""
    rootfs: Path | None = None
    """A directory whose /usr, /etc and all else stand in for the host's."""


def command_line(
    way: Confinement, uid: int, mounts: Mounts, env: Mapping[str, str], program: Sequence[str], filter_fd: int | None
) -> list[str]:
    """The whole argument list that runs `program` confined. `uid` is the sandbox's own; unused where it is ours.

    `filter_fd`: an open descriptor of the seccomp program, which every process inherits; None = no filter.
    """
    inner = list(program)
    if way is Confinement.DROPPED:
        who = (f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
        inner = [_tool("setpriv"), *who, "--inh-caps=-all", "--bounding-set=-all", *inner]
    return [
        *_undisturbed(),
        *(_as_uid(uid) if way is Confinement.SHIFTED else ()),
        _tool("bwrap"),
        *_namespaces(way),
        *(() if filter_fd is None else ("--seccomp", str(filter_fd))),
        *_system(mounts.rootfs or Path("/")),
        *("--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm"),
        *("--ro-bind", "/proc/sys", "/proc/sys"),
        *("--ro-bind", str(mounts.etc if mounts.rootfs is None else mounts.rootfs / "etc"), "/etc"),
        *(word for dest, source in mounts.writable.items() for word in ("--bind", str(source), dest)),
        *(word for dest, source in mounts.readonly.items() for word in ("--ro-bind", str(source), dest)),
        # Last: nothing outside the places can be written, not even in memory.
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        # Through bubblewrap, so that a task's LD_PRELOAD never reaches bubblewrap itself.
        *(word for name, value in env.items() for word in ("--setenv", name, value)),
        "--",
        *inner,
    ]


def _namespaces(way: Confinement) -> Iterator[str]:
    yield from ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
    yield from ("--hostname", "sandbox", "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL")
    if way is Confinement.DROPPED:
        yield from ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP")
    else:
        yield from ("--unshare-user", "--disable-userns", "--uid", "0", "--gid", "0")


def _undisturbed() -> Iterator[str]:
    """Under nohup, or in the background of a script, we ignore signals that programs of a sandbox must not ignore."""
    if any(signal.getsignal(number) is signal.SIG_IGN for number in _MEANT_FOR_US):
        yield from (_tool("env"), "--default-signal")


def _as_uid(uid: int) -> Iterator[str]:
    """Give up root before bubblewrap starts. chroot(1) to / is the cheapest program that does it, and keeps vfork."""
    yield from (_tool("chroot"), f"--userspec=+{uid}:+{uid}", "--groups=", "--skip-chdir", "/")


@lru_cache(maxsize=8)
def _system(rootfs: Path) -> tuple[str, ...]:
    """The userland, read-only: of the host the programs and libraries, of a root file system everything."""
    host = rootfs == Path("/")
    names = USERLAND if host else sorted(path.name for path in rootfs.iterdir() if path.name not in APART)
    words: list[str] = []
    for name in names:
        path = rootfs / name
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), f"/{name}"]
        elif path.is_dir():
            words += ["--ro-bind", str(path), f"/{name}"]
    return tuple(words)


@lru_cache(maxsize=8)
def _tool(name: str) -> str:
    """Full path of a system program, from the system's own directories first."""
    return shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin") or shutil.which(name) or name


def uids() -> Iterator[int]:
    """Distinct unprivileged uids, from a random start so that concurrent runs do not meet."""
    low, high = _uid_range()
    uid = random.SystemRandom().randrange(low, high)
    while True:
        yield uid
        uid = low + (uid + 1 - low) % (high - low)


def _uid_range() -> tuple[int, int]:
    """The usual range, or what a container that we are in maps."""
    ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    for start, _, count in ranges:
        if start <= SHIFTED_UIDS[0] and start + count >= SHIFTED_UIDS[1]:
            return SHIFTED_UIDS
    start, count = max(((start, count) for start, _, count in ranges), key=lambda pair: pair[1])
    return start + count // 2, start + count


def make_etc(path: Path) -> Path:
    """A minimal /etc, shared read-only by all sandboxes: names, no secrets, and what the linker needs."""
    path.mkdir(mode=0o755)
    texts = {
        "passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
        "group": "root:x:0:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "hostname": "sandbox\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "profile": "",
        "resolv.conf": "",
    }
    for name, text in texts.items():
        (path / name).write_text(text, encoding="ascii")
    for name in ("ld.so.cache", "ld.so.conf", "os-release", "debian_version", "mime.types", "localtime"):
        source = Path("/etc") / name
        if source.is_file():
            shutil.copyfile(source, path / name)
    if Path("/etc/alternatives").is_dir():
        manuals = shutil.ignore_patterns("*.gz")
        shutil.copytree("/etc/alternatives", path / "alternatives", symlinks=True, ignore=manuals)
    for entry in path.iterdir():
        if not entry.is_symlink():
            entry.chmod(0o755 if entry.is_dir() else 0o644)
    path.chmod(0o755)
    return path


def probe() -> SandboxProbe:
    """Try what this host allows, with read-only checks; names the fix for what is missing."""
    try:
        told = subprocess.run([_tool("bwrap"), "--version"], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S)
    except (FileNotFoundError, PermissionError):
        return SandboxProbe(problem="bubblewrap is not installed", fix=_INSTALL)
    version = told.stdout.strip().removeprefix("bubblewrap").strip()
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < (0, 8):
        return SandboxProbe(bwrap=version, problem=f"bubblewrap {version or '?'} is older than 0.8", fix=_INSTALL)
    ways = (Confinement.SHIFTED, Confinement.DROPPED) if os.geteuid() == 0 else (Confinement.USER,)
    problem = ""
    for way in ways:
        complaint = _try(way)
        if not complaint:
            return SandboxProbe(bwrap=version, confinement=way, limits=_limits())
        problem = problem or complaint
    return SandboxProbe(bwrap=version, problem=f"bubblewrap {version} cannot confine here: {problem}", fix=_ALLOW)


def _limits() -> str:
    """What bounds a sandbox here, in words."""
    groups = cgroups.find()
    filtered = f"seccomp filter for {platform.machine()}" if seccomp.program() else "no seccomp filter for this machine"
    bounds = str(groups) if groups else "no cgroups that we may use: rlimits of each process"
    return f"{filtered}, {bounds}"


_CHECK = "test ! -w /proc/sys/kernel/hostname && test ! -w /usr && exit 42"
"""Runs inside; looks, never writes."""


def _try(way: Confinement) -> str:
    """Why this way does not work, or nothing."""
    mounts = Mounts(etc=Path("/usr/share"), writable={}, readonly={})
    words = command_line(way, next(uids()), mounts, {"PATH": "/usr/bin:/bin"}, ["/bin/bash", "-c", _CHECK], None)
    try:
        ended = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=PROBE_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {PROBE_TIMEOUT_S:.0f} s"
    if ended.returncode == 42:
        return ""
    return (ended.stderr.strip().splitlines() or ["kernel settings would be writable"])[-1]
