"""An image's archive or layout, unpacked into a root file system: layer over layer, with whiteouts.

What `podman save` and `docker save` write is read (OCI layout and docker-archive, as a directory or a tar file). Layers
are hostile: every path is walked inside the target, links are resolved as if the target were the root, devices stay out
and set-uid bits are dropped. Boundary: files in, files out; nothing is executed, nothing is fetched.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t1.errors import SandboxUnavailable
from t1.sandboxes.untar import lay_out


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
                    lay_out(file, target, whiteouts=True)
    except (OSError, ValueError, KeyError, IndexError, TypeError, tarfile.TarError) as error:
        shutil.rmtree(target, ignore_errors=True)
        raise SandboxUnavailable(f"{source}: not an image that can be unpacked: {error}") from error
    return target


def _untar(source: Path, folder: Path) -> Path:
    """The archive around the layers, into a directory of our own."""
    with source.open("rb") as file:
        lay_out(file, folder)
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
