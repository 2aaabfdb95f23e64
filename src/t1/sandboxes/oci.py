"""An image's archive or layout, unpacked into a root file system: layer over layer, with whiteouts.

What `podman save` and `docker save` write is read (OCI layout and docker-archive, as a directory or a tar file). Layers
are hostile: every path is walked inside the target, links are resolved as if the target were the root, devices stay out
and set-uid bits are dropped. Boundary: files in, files out; nothing is executed, nothing is fetched.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from t1.errors import SandboxUnavailable

WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
MAX_LINKS = 40
MAX_DEPTH = 256


def is_image(path: Path) -> bool:
    """True for a tar file, or a directory with a layout's index."""
    return path.is_file() or (path / "index.json").is_file() or (path / "manifest.json").is_file()


def unpack_image(source: Path, target: Path) -> Path:
    """Make `target` the image's root file system. Raises SandboxUnavailable, and leaves nothing then."""
    try:
        with tempfile.TemporaryDirectory(prefix="t1-image-") as folder:
            layout = source if source.is_dir() else _untar(source, Path(folder))
            target.mkdir()
            for layer in _layers(layout):
                with layer.open("rb") as file:
                    apply_layer(file, target)
    except (OSError, ValueError, KeyError, IndexError, TypeError, tarfile.TarError) as error:
        shutil.rmtree(target, ignore_errors=True)
        raise SandboxUnavailable(f"{source}: not an image that can be unpacked: {error}") from error
    return target


def _untar(source: Path, folder: Path) -> Path:
    """The archive around the layers, into a directory of our own."""
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _layers(layout: Path) -> Iterator[Path]:
    """The layers' files, lowest first; those with a digest are checked against it."""
    if (layout / "index.json").is_file():
        manifest = _document(layout, json.loads((layout / "index.json").read_bytes()), 0)
        for layer in manifest["layers"]:
            if "zstd" in layer.get("mediaType", ""):
                raise ValueError("zstd layers: save the image with gzip or without compression")
            yield _blob(layout, layer["digest"])
        return
    for name in json.loads((layout / "manifest.json").read_bytes())[0]["Layers"]:
        path = (layout / name).resolve()
        if not path.is_relative_to(layout.resolve()):
            raise ValueError(f"layer {name!r} lies outside the image")
        yield path


def _document(layout: Path, index: dict[str, Any], depth: int) -> dict[str, Any]:
    """The first manifest that an index leads to."""
    if "layers" in index:
        return index
    if depth > 4:
        raise ValueError("an index of indexes without end")
    return _document(layout, json.loads(_blob(layout, index["manifests"][0]["digest"]).read_bytes()), depth + 1)


def _blob(layout: Path, digest: str) -> Path:
    """A file by its digest, checked."""
    kind, _, value = digest.partition(":")
    if kind != "sha256" or len(value) != 64 or not value.isalnum():
        raise ValueError(f"digest {digest!r}: expected sha256")
    path = layout / "blobs" / kind / value
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != value:
        raise ValueError(f"layer {value[:12]} does not have its digest")
    return path


def apply_layer(file: IO[bytes], target: Path) -> None:
    """Lay one layer over what is there."""
    with tarfile.open(fileobj=file, mode="r|*") as archive:
        for member in archive:
            parts = [part for part in member.name.split("/") if part not in ("", ".")]
            if ".." in parts:
                raise ValueError(f"{member.name!r} leads outside")
            if parts:
                _apply(archive, member, _inside(target, parts[:-1]), parts[-1], target)


def _apply(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, name: str, target: Path) -> None:
    """One entry, in a directory that certainly lies inside."""
    path = folder / name
    if name == OPAQUE:
        for entry in folder.iterdir():
            _remove(entry)
    elif name.startswith(WHITEOUT):
        if (hidden := name.removeprefix(WHITEOUT)) in ("", ".", ".."):
            raise ValueError(f"{member.name!r} hides no name")
        _remove(folder / hidden)
    elif member.isdir():
        if path.is_symlink() or not path.is_dir():
            _remove(path)
            path.mkdir()
        path.chmod(member.mode & 0o1777 | 0o700)
    elif member.issym():
        _remove(path)
        path.symlink_to(member.linkname)
    elif member.islnk():
        parts = [part for part in member.linkname.split("/") if part not in ("", ".")]
        if not parts or ".." in parts:
            raise ValueError(f"{member.name!r} is a link to {member.linkname!r}")
        _remove(path)
        os.link(_inside(target, parts[:-1]) / parts[-1], path, follow_symlinks=False)
    elif member.isreg():
        _remove(path)
        source = archive.extractfile(member)
        assert source is not None
        with path.open("xb") as file:
            shutil.copyfileobj(source, file)
        path.chmod(member.mode & 0o777 | 0o400)


def _inside(root: Path, parts: list[str]) -> Path:
    """The directory that `parts` name when `root` is /, made where it is missing."""
    todo, done, links = list(reversed(parts)), list[str](), 0
    while todo:
        part = todo.pop()
        if part == "..":
            done = done[:-1]
            continue
        path = root.joinpath(*done, part)
        if path.is_symlink():
            links += 1
            if links > MAX_LINKS:
                raise ValueError(f"{path}: too many links")
            link = os.fspath(path.readlink())
            done = [] if link.startswith("/") else done
            todo += [piece for piece in reversed(link.split("/")) if piece not in ("", ".")]
            continue
        if not path.exists():
            path.mkdir()
        done.append(part)
        if len(done) > MAX_DEPTH:
            raise ValueError(f"{path}: too deep")
    return root.joinpath(*done)


def _remove(path: Path) -> None:
    """Whatever stands there, without following it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
