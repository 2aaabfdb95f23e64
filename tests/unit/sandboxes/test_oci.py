"""Images as archives, hostile ones too, and a sandbox whose userland is one."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from t1.errors import SandboxUnavailable
from t1.sandboxes import Confinement, NamespaceProvider
from t1.sandboxes.namespaces.oci import is_image, unpack_image
from t1.sandboxes.untar import lay_out
from t1.types import Task

Entry = tuple[str, str, bytes | str]
"""Name, kind (f, d, l = symlink, h = hard link, c = device), content or target."""
KINDS = {"f": tarfile.REGTYPE, "d": tarfile.DIRTYPE, "l": tarfile.SYMTYPE, "h": tarfile.LNKTYPE, "c": tarfile.CHRTYPE}


def layer(*entries: Entry, mode: int = 0o755) -> bytes:
    """A layer's tar file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind, content in entries:
            member = tarfile.TarInfo(name)
            member.type, member.mode = KINDS[kind], mode
            if isinstance(content, str):
                member.linkname = content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def layout(folder: Path, *layers: bytes) -> Path:
    """An OCI layout of these layers."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(data: bytes) -> dict[str, str]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "mediaType": "application/vnd.oci.image.layer.v1.tar"}

    manifest = blob(json.dumps({"layers": [blob(data) for data in layers]}).encode())
    (folder / "index.json").write_text(json.dumps({"manifests": [manifest]}))
    return folder


def apply(target: Path, *entries: Entry, mode: int = 0o755) -> None:
    lay_out(io.BytesIO(layer(*entries, mode=mode)), target, whiteouts=True)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_layers_lie_over_one_another_and_whiteouts_hide_what_is_below(tmp_path: Path) -> None:
    lower = layer(("a", "d", b""), ("a/x", "f", b"1"), ("a/y", "f", b"2"), ("b", "d", b""), ("b/old", "f", b"3"))
    upper = layer(("a/.wh.x", "f", b""), ("b/.wh..wh..opq", "f", b""), ("b/new", "f", b"4"), ("a/y", "f", b"5"))
    target = unpack_image(layout(tmp_path / "image", lower, upper), tmp_path / "rootfs")
    assert names(target) == {"a", "a/y", "b", "b/new"}
    assert (target / "a" / "y").read_bytes() == b"5"


def test_an_archive_of_a_layout_and_of_docker_are_read(tmp_path: Path) -> None:
    data = layer(("hello", "f", b"x"))
    image = layout(tmp_path / "image", data)
    shutil.make_archive(str(tmp_path / "oci"), "tar", image)
    (tmp_path / "docker" / "one").mkdir(parents=True)
    (tmp_path / "docker" / "one" / "layer.tar").write_bytes(data)
    (tmp_path / "docker" / "manifest.json").write_text(json.dumps([{"Layers": ["one/layer.tar"]}]))
    shutil.make_archive(str(tmp_path / "docker"), "gztar", tmp_path / "docker")
    for name in ("oci.tar", "docker.tar.gz"):
        assert is_image(tmp_path / name)
        assert names(unpack_image(tmp_path / name, tmp_path / f"from-{name}")) == {"hello"}
    assert not is_image(tmp_path)


def test_links_are_resolved_inside_and_nothing_is_written_outside(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    target = tmp_path / "rootfs"
    target.mkdir()
    apply(target, ("absolute", "l", str(tmp_path / "outside")), ("up", "l", "../../../outside"))
    apply(target, ("absolute/x", "f", b"1"), ("up/y", "f", b"2"), ("absolute/.wh.z", "f", b""))
    assert names(tmp_path / "outside") == set()
    assert (target / str(tmp_path / "outside")[1:] / "x").read_bytes() == b"1"
    assert (target / "outside" / "y").read_bytes() == b"2"


def test_a_link_at_the_end_is_replaced_and_never_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    target = tmp_path / "rootfs"
    target.mkdir()
    apply(target, ("f", "l", str(tmp_path / "precious")), ("f", "f", b"new"))
    assert (tmp_path / "precious").read_text() == "kept"
    assert not (target / "f").is_symlink()


@pytest.mark.parametrize(
    "entry", [("../x", "f", b""), ("a/../../x", "f", b""), ("x", "h", "../y"), ("x", "h", "/"), (".wh...", "f", b"")]
)
def test_a_name_that_leads_outside_is_refused(tmp_path: Path, entry: Entry) -> None:
    with pytest.raises(ValueError):
        apply(tmp_path, entry)


def test_links_without_end_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too many links"):
        apply(tmp_path, ("a", "l", "b"), ("b", "l", "a"), ("a/x", "f", b""))


def test_devices_stay_out_and_set_uid_bits_are_dropped(tmp_path: Path) -> None:
    apply(tmp_path, ("sda", "c", b""), ("su", "f", b""), mode=0o6755)
    assert names(tmp_path) == {"su"}
    assert stat.S_IMODE((tmp_path / "su").stat().st_mode) == 0o755


@pytest.mark.parametrize("spoil", ["digest", "index", "zstd", "nothing"])
def test_a_broken_image_is_named_and_leaves_nothing(tmp_path: Path, spoil: str) -> None:
    image = layout(tmp_path / "image", layer(("a", "f", b"")))
    if spoil == "digest":
        for path in (image / "blobs" / "sha256").iterdir():
            path.write_bytes(path.read_bytes() + b" ")
    elif spoil == "index":
        (image / "index.json").write_text("[]")
    elif spoil == "zstd":
        text = json.dumps({"layers": [{"digest": "sha256:" + "0" * 64, "mediaType": "x+zstd"}]})
        (image / "index.json").write_text(text)
    else:
        shutil.rmtree(image)
        image.write_bytes(b"not a tar file")
    with pytest.raises(SandboxUnavailable, match=str(image)):
        unpack_image(image, tmp_path / "rootfs")
    assert not (tmp_path / "rootfs").exists()


def minimal_root(folder: Path) -> Path:
    """bash, cat and ls of this host with their libraries: the smallest userland that a sandbox lives on."""
    for name in ("bash", "cat", "ls"):
        program = Path(shutil.which(name) or "")
        listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True, timeout=20).stdout
        copies = {word: f"usr{word}" for line in listed.splitlines() for word in line.split() if word.startswith("/")}
        for source, target in {str(program): f"usr/bin/{name}", **copies}.items():
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(Path(source).resolve(), folder / target)
    for name in ("bin", "lib", "lib64"):
        (folder / name).symlink_to(f"usr/{name}")
    (folder / "etc").mkdir()
    (folder / "etc" / "made-by").write_text("a test\n")
    (folder / "root").mkdir()
    (folder / "root" / "notes").write_text("begin\n")
    return folder


@pytest.mark.skipif(not Path("/lib").is_symlink(), reason="a host whose libraries lie elsewhere")
async def test_a_sandbox_lives_on_a_root_file_system_of_its_own(
    confined: Confinement, make_task: Callable[..., Task], tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("image")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.add(minimal_root(base / "files"), ".")
    provider = NamespaceProvider(confinement=confined, rootfs=layout(base / "image", data.getvalue()))
    task = make_task()
    try:
        sandbox = await provider.open(task)
        told = await sandbox.run("cat /etc/made-by /root/notes; ls /usr/bin; echo more >> /root/notes", timeout_s=20)
        assert told.output == "a test\nbegin\nbash\ncat\nls\n"
        assert (await sandbox.run("echo x > /etc/made-by || echo x > /usr/bin/y", timeout_s=20)).exit_code != 0
        pristine = await provider.open_pristine(task, await sandbox.stop())
        assert (await pristine.run("cat /root/notes", timeout_s=20)).output == "begin\nmore\n"
    finally:
        await provider.close()


async def test_a_root_that_is_none_is_refused(confined: Confinement, make_task: Callable[..., Task]) -> None:
    provider = NamespaceProvider(confinement=confined, rootfs=Path("/proc"))
    with pytest.raises(SandboxUnavailable, match="no root file system"):
        await provider.open(make_task())
    assert os.path.isdir("/proc")  # noqa: ASYNC240, PTH112
