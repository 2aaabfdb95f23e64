"""Tar streams from strangers, laid out on the host.

Every path is walked inside the target, links are resolved as if the target were the root, devices and pipes stay out.
(Python's own extraction filters came with 3.11.4, and know no whiteouts.) Boundary: bytes in, files out.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path
from typing import IO

WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
MAX_LINKS = 40
MAX_DEPTH = 256


def lay_out(file: IO[bytes], target: Path, *, whiteouts: bool = False, owners: bool = False) -> None:
    """Lay a tar stream over what is in `target`. Raises ValueError for a name that leads outside.

    `whiteouts`: an image's layer, whose `.wh.` names hide what lies below. `owners`: files get the owner and the whole
    mode that the stream says (root can; the target must be shut to others). Else they are ours, without set-uid bits.
    """
    with tarfile.open(fileobj=file, mode="r|*") as archive:
        for member in archive:
            parts = [part for part in member.name.split("/") if part not in ("", ".")]
            if ".." in parts:
                raise ValueError(f"{member.name!r} leads outside")
            if not parts:
                continue
            folder, name = _inside(target, parts[:-1]), parts[-1]
            if whiteouts and name.startswith(WHITEOUT):
                _hide(folder, name)
            elif _make(archive, member, folder / name, target) and owners:
                _give(folder / name, member)


def _give(path: Path, member: tarfile.TarInfo) -> None:
    """Owner and mode as they were; the mode last, since a change of owner clears set-uid bits."""
    os.chown(path, member.uid, member.gid, follow_symlinks=False)
    if not member.issym():
        path.chmod(member.mode & 0o7777)


def _hide(folder: Path, name: str) -> None:
    """What a whiteout says: one name, or everything that lies below."""
    if name == OPAQUE:
        for entry in folder.iterdir():
            _remove(entry)
        return
    hidden = name.removeprefix(WHITEOUT)
    if hidden in ("", ".", ".."):
        raise ValueError(f"{name!r} hides no name")
    _remove(folder / hidden)


def _make(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, target: Path) -> bool:
    """One entry, in a directory that certainly lies inside; False for devices and pipes, which stay out."""
    if member.isdir():
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
    else:
        return False
    return True


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
