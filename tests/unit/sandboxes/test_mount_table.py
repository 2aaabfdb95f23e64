"""The shorter mount table of the thread that starts sandboxes."""

import os
import threading
from pathlib import Path

import pytest

from t1.sandboxes.namespaces import mount_table

TABLE = r"""22 27 0:20 / /sys rw - sysfs sysfs rw
24 22 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw
25 24 0:23 / /sys/fs/cgroup/memory rw shared:3 - cgroup cgroup rw,memory
26 27 0:24 / /proc rw - proc proc rw
28 26 0:25 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw
27 1 254:0 / / rw - ext4 /dev/vda rw
29 27 0:26 / {open}/with\040space rw - ext4 /dev/vdb rw
30 27 0:27 / {shut}/deep/merged rw - overlay overlay rw,lowerdir=/a:/b
31 30 0:28 / {shut}/deep/merged/proc rw - tmpfs tmpfs rw
32 27 0:29 / /dev rw - devtmpfs devtmpfs rw
33 32 0:30 / /dev/pts rw - devpts devpts rw
"""


@pytest.fixture
def table(tmp_path: Path) -> str:
    shut, ajar = tmp_path / "shut", tmp_path / "open"
    (shut / "deep").mkdir(parents=True)
    shut.chmod(0o700)
    ajar.mkdir(mode=0o755)
    for parent in (ajar, *tmp_path.parents, tmp_path):
        if parent.owner() == tmp_path.owner() and parent.is_relative_to(tmp_path.parents[2]):
            parent.chmod(0o755)
    return TABLE.format(open=ajar, shut=shut)


def test_what_no_sandbox_could_be_given_is_needless(table: str, tmp_path: Path) -> None:
    assert list(mount_table._needless(table, [])) == ["/sys", f"{tmp_path}/shut/deep/merged", "/dev/pts"]


def test_what_the_thread_itself_reaches_stays_with_all_that_leads_to_it(table: str, tmp_path: Path) -> None:
    needless = list(mount_table._needless(table, ["/sys/fs/cgroup/memory/ours"]))
    assert needless == [f"{tmp_path}/shut/deep/merged", "/dev/pts"]


def test_a_space_in_a_mount_point_is_a_space(table: str, tmp_path: Path) -> None:
    (tmp_path / "open").chmod(0o700)
    assert f"{tmp_path}/open/with space" in list(mount_table._needless(table, []))


def test_only_the_thread_sees_the_shorter_table() -> None:
    """Also where there is nothing to take away or no right to it: nobody else's table changes."""
    seen: list[tuple[bool, set[str]]] = []

    def look() -> None:
        shortened = mount_table.shorten([Path("/sys/fs/cgroup/memory")])
        seen.append((shortened, mount_points("thread-self")))

    before = mount_points("self")
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert mount_points("self") == before
    shortened, points = seen[0]
    assert points <= before
    if os.geteuid() != 0:
        assert not shortened
    if not shortened:
        pytest.skip("this process may not have a mount namespace")
    assert "/" in points and "/proc" in points
    assert not any(point.startswith("/sys/fs/cgroup/cpuset") for point in points)


def mount_points(who: str) -> set[str]:
    return {line.split(" ")[4] for line in Path(f"/proc/{who}/mountinfo").read_text().splitlines()}
