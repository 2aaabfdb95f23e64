"""The host is unharmed: what a sandbox can reach, in every way that this host offers."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from t1.errors import SandboxUnavailable
from t1.sandboxes import Confinement, NamespaceProvider, NamespaceSandbox, SandboxProbe, cgroups, probe
from t1.sandboxes.namespaces import seccomp
from t1.sandboxes.namespaces.confinement import SHM_BYTES, Mounts, command_line
from t1.types import Task

WAYS = [Confinement.SHIFTED, Confinement.DROPPED] if os.geteuid() == 0 else [Confinement.USER]


@pytest.fixture(params=WAYS, ids=str)
async def sandbox(
    request: pytest.FixtureRequest, confined: Confinement, make_task: Callable[..., Task]
) -> AsyncIterator[NamespaceSandbox]:
    provider = NamespaceProvider(confinement=request.param)
    yield await provider.open(make_task())
    await provider.close()


async def output(sandbox: NamespaceSandbox, command: str) -> str:
    return (await sandbox.run(command, timeout_s=20)).output


async def test_nothing_outside_the_places_can_be_written(sandbox: NamespaceSandbox) -> None:
    tried = "for d in / /usr /usr/bin /bin /lib /etc /dev /proc /var /home; do touch $d/t1 2>/dev/null && echo $d; done"
    assert await output(sandbox, tried) == ""
    assert await output(sandbox, "for d in /app /root /tmp /logs; do touch $d/t1 && echo $d; done") == (
        "/app\n/root\n/tmp\n/logs\n"
    )
    assert not os.path.exists("/root/t1")  # noqa: ASYNC240, PTH110


async def test_kernel_settings_are_read_only(sandbox: NamespaceSandbox) -> None:
    found = await output(sandbox, 'for f in $(find /proc/sys -type f 2>/dev/null); do test -w "$f" && echo "$f"; done')
    assert found == ""
    assert "ro" in (await output(sandbox, "grep ' /proc/sys ' /proc/mounts | cut -d ' ' -f 4")).split(",")


async def test_there_are_no_privileges_and_none_to_gain(sandbox: NamespaceSandbox) -> None:
    status = dict(line.split(":\t") for line in (await output(sandbox, "cat /proc/self/status")).splitlines())
    assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert (await sandbox.run("chroot / true || mount -t tmpfs none /tmp", timeout_s=20)).exit_code != 0


PYTHON = shutil.which("python3", path="/usr/bin")
TRY = """
import ctypes, errno, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *words):
    ctypes.set_errno(0)
    got = getattr(libc, name)(*words)
    return got if got >= 0 else errno.errorcode[ctypes.get_errno()]
print(call("unshare", 0x10000000), call("setns", 0, 0), call("mount", None, b"/tmp", None, 0, None))
print(call("chroot", b"/"), call("sethostname", b"x", 1), call("swapoff", b"x"))
for family in (38, 40, 17):
    try: socket.socket(family, socket.SOCK_DGRAM); print("made", family)
    except OSError as error: print(errno.errorcode[error.errno])
try: time.clock_settime(time.CLOCK_REALTIME, 0)
except OSError as error: print(errno.errorcode[error.errno])
threading.Thread(target=print, args=["threads work"]).start()
"""


@pytest.mark.skipif(PYTHON is None or not seccomp.program(), reason="needs the system's Python and a known machine")
async def test_system_calls_that_leave_the_sandbox_or_change_the_machine_are_refused(sandbox: NamespaceSandbox) -> None:
    """The escape attempts, the clock and the host's name; AF_VSOCK would reach the host of a virtual machine."""
    told = await output(sandbox, f"/usr/bin/python3 - <<'EOF'\n{TRY}\nEOF")
    expected = "EPERM EPERM EPERM\nEPERM EPERM EPERM\n" + "EAFNOSUPPORT\n" * 3 + "EPERM\nthreads work\n"
    assert told == expected


async def test_every_process_is_under_the_filter_and_can_gain_no_privileges(sandbox: NamespaceSandbox) -> None:
    await sandbox.run("sleep 60 & (setsid sleep 60 &)", timeout_s=20)
    told = await output(sandbox, "grep -h -E '^(Seccomp|NoNewPrivs):' /proc/[0-9]*/status | sort | uniq -c")
    counts = [line.split() for line in told.splitlines()]
    assert {(name, value) for _, name, value in counts} == {("NoNewPrivs:", "1"), ("Seccomp:", "2")}
    assert all(int(count) >= 3 for count, _, _ in counts)


async def test_the_machines_own_settings_and_devices_are_not_there(sandbox: NamespaceSandbox) -> None:
    assert await output(sandbox, "ls /sys /boot /home /var /run /mnt /srv 2>/dev/null") == ""
    assert set((await output(sandbox, "ls /dev")).split()) <= {
        "console", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
        "urandom", "zero",
    }  # fmt: skip
    tried = "for f in /proc/sysrq-trigger /proc/kcore /proc/1/oom_adj /proc/sys/kernel/core_pattern; do "
    assert await output(sandbox, tried + "test -w $f && test $f != /proc/1/oom_adj && echo $f; done") == ""


async def test_memory_that_is_shared_between_processes_is_bounded(sandbox: NamespaceSandbox) -> None:
    """/dev/shm is small; SysV segments are counted by the control group, or refused where there is none."""
    ended = await sandbox.run("head -c 100000000 /dev/zero > /dev/shm/x; stat -c %s /dev/shm/x", timeout_s=20)
    assert int(ended.output.split()[-1]) <= SHM_BYTES
    ended = await sandbox.run("ipcmk -M 4096", timeout_s=20)
    assert (ended.exit_code == 0) == (cgroups.find() is not None) or ended.exit_code == 127


async def test_processes_of_the_host_are_invisible(sandbox: NamespaceSandbox) -> None:
    pids = (await output(sandbox, "cd /proc; echo [0-9]*; cd /app")).split()
    assert pids == ["1"]
    assert (await sandbox.run(f"kill -0 {os.getpid()}", timeout_s=20)).exit_code == 1


async def test_there_is_no_network(sandbox: NamespaceSandbox) -> None:
    devices = await output(sandbox, "tail -n +3 /proc/net/dev | cut -d : -f 1 | tr -d ' '")
    assert devices == "lo\n"
    assert (await sandbox.run("echo > /dev/tcp/192.0.2.1/80", timeout_s=20)).exit_code != 0


async def test_the_hosts_secrets_and_environment_are_not_there(
    sandbox: NamespaceSandbox,
) -> None:
    assert (await sandbox.run("cat /etc/shadow", timeout_s=20)).exit_code == 1
    names = {line.partition("=")[0] for line in (await output(sandbox, "env")).splitlines()}
    assert names <= {"PATH", "HOME", "USER", "LC_CTYPE", "TERM", "SHELL", "PWD", "OLDPWD", "SHLVL", "_"}


async def test_no_descriptor_of_ours_is_inherited(sandbox: NamespaceSandbox) -> None:
    found = await output(sandbox, "bash -c 'for n in {0..300}; do test -e /proc/self/fd/$n && echo -n $n,; done'")
    assert found == "0,1,2,"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a sandbox a uid of its own")
async def test_every_sandbox_has_a_uid_of_its_own(provider: NamespaceProvider, make_task: Callable[..., Task]) -> None:
    task = make_task()
    roots = [(await (await provider.open(task)).stop()).root for _ in range(3)]
    owners = {(root / "app").stat().st_uid for root in roots}
    assert len(owners) == 3
    assert min(owners) > 1000


async def test_an_unreachable_root_is_refused_with_the_fix(tmp_path: Path, make_task: Callable[..., Task]) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    provider = NamespaceProvider(closed, confinement=Confinement.SHIFTED)
    with pytest.raises(SandboxUnavailable, match="chmod o\\+x"):
        await provider.open(make_task())
    assert list(closed.iterdir()) == []


def test_a_probe_that_failed_is_false_and_says_what_to_do() -> None:
    lack = SandboxProbe(problem="bubblewrap is not installed", fix="install it")
    assert not lack
    assert str(lack) == "bubblewrap is not installed; install it"


def test_the_probe_tells_how_sandboxes_are_confined(confined: Confinement) -> None:
    found = probe()
    assert found
    assert found.confinement in WAYS
    assert "filter" in found.limits
    assert ("cgroups v" in found.limits) != ("rlimits" in found.limits)


def test_a_tasks_variables_never_reach_bubblewrap_itself() -> None:
    words = command_line(
        Confinement.USER, 0, Mounts(Path("/e"), {}, {}), {"LD_PRELOAD": "/app/x.so"}, ["/bin/true"], None
    )
    cut = words.index("--setenv")
    assert words[cut : cut + 3] == ["--setenv", "LD_PRELOAD", "/app/x.so"]
    assert not any(word.startswith("LD_PRELOAD=") for word in words)


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_signals_that_we_ignore_reach_a_sandbox_s_programs(
    way: Confinement, confined: Confinement, make_task: Callable[..., Task]
) -> None:
    """Under nohup, and in the background of a script, a program is started with them ignored."""
    ours = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)}
    provider = NamespaceProvider(confinement=way)
    try:
        sandbox = await provider.open(make_task())
        ignored = int(await output(sandbox, "bash -c 'grep SigIgn /proc/self/status' | cut -f 2"), 16)
        assert not any(ignored & 1 << number - 1 for number in ours)
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
        await provider.close()
