"""Reading what a hostile agent left, from the host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from t1.errors import SandboxError
from t1.sandboxes.places import read_file, used_bytes


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    for name in ("app", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret").write_text("host")
    (tmp_path / "app" / "file").write_text("inside")
    return {"/app": tmp_path / "app", "/tmp": tmp_path / "tmp"}


@pytest.mark.parametrize(
    "path", ["/app/file", "app/file", "/app/./file", "/app/../app/file", "//app//file", "/tmp/../app/file"]
)
def test_a_path_is_found_as_a_process_inside_would_find_it(places: dict[str, Path], path: str) -> None:
    assert read_file(places, path, 100) == b"inside"


@pytest.mark.parametrize("path", ["/", "/app", "/etc/passwd", "/app/file/deeper", "/app/../../secret", "/app/none", ""])
def test_what_is_no_regular_file_in_a_place_is_none(places: dict[str, Path], path: str) -> None:
    assert read_file(places, path, 100) is None


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("file", b"inside"),
        ("/app/file", b"inside"),
        ("../app/./file", b"inside"),
        ("../secret", None),
        ("../../../../../../etc/hostname", None),
        ("/etc/hostname", None),
        ("/secret", None),
        ("link", None),
    ],
)
def test_links_are_resolved_inside_the_sandbox_only(places: dict[str, Path], target: str, found: bytes | None) -> None:
    (places["/app"] / "link").symlink_to(target)
    assert read_file(places, "/app/link", 100) == found


def test_a_linked_directory_never_leads_to_the_host(places: dict[str, Path], tmp_path: Path) -> None:
    (places["/app"] / "up").symlink_to(tmp_path)
    (places["/app"] / "here").symlink_to("/app")
    assert read_file(places, "/app/up/secret", 100) is None
    assert read_file(places, "/app/here/here/file", 100) == b"inside"


def test_a_pipe_or_device_does_not_block_the_reader(places: dict[str, Path]) -> None:
    os.mkfifo(places["/app"] / "pipe")
    assert read_file(places, "/app/pipe", 100) is None


def test_a_file_beyond_the_bound_is_refused(places: dict[str, Path]) -> None:
    with pytest.raises(SandboxError, match="/app/file: larger than 5 bytes"):
        read_file(places, "/app/file", 5)


def test_used_bytes_counts_files_and_never_follows_links(places: dict[str, Path], tmp_path: Path) -> None:
    before = used_bytes(places.values(), 1000)[0]
    (places["/app"] / "folder").mkdir()
    (places["/app"] / "folder" / "big").write_bytes(b"x" * 100_000)
    (tmp_path / "elsewhere").write_bytes(b"x" * 5_000_000)
    (places["/app"] / "link").symlink_to(tmp_path / "elsewhere")
    (places["/app"] / "up").symlink_to(tmp_path)
    assert 100_000 <= used_bytes(places.values(), 1000)[0] - before < 200_000
