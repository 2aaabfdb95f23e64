"""The writable directories of one sandbox, as they lie on the host.

Boundary: whatever an agent left in them is hostile. From the host nothing here follows a symlink: reads walk the path
one component at a time and resolve links themselves, inside the sandbox's own tree. Nothing is executed.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from t1.errors import SandboxError
from t1.sandboxes.dockerfile import Copy, Image

MAX_LINKS = 40


def make_places(root: Path, image: Image, uid: int | None, rootfs: Path | None = None) -> dict[str, Path]:
    """Create the image's places under `root`: absolute path in the sandbox → host directory, owned by `uid`.

    A place that `rootfs` has begins with what it has there.
    """
    root.mkdir()
    root.chmod(0o711)  # the sandbox's uid passes through it, whatever the umask
    places = {place: root / place[1:] for place in image.places}
    try:
        _fill(root, places, image, uid)
        if rootfs is not None:
            _begin(places, rootfs, uid)
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)
        raise
    return places


def _fill(root: Path, places: Mapping[str, Path], image: Image, uid: int | None) -> None:
    """Directories first, then the image's files."""
    made = [*places.values(), places["/logs"] / "agent", places["/logs"] / "verifier"]
    for path in made:
        os.mkdir(path)  # noqa: PTH102 (hot)
    for directory in image.directories:
        made += _make_parents(host_path(places, directory), root)
    if uid is not None:
        for path in made:
            os.chown(path, uid, uid)
    for copy in image.copies:
        _copy(copy, places, root, uid)


def _begin(places: Mapping[str, Path], rootfs: Path, uid: int | None) -> None:
    """Copy what a root file system has in the places; /tmp begins empty."""
    for place, path in places.items():
        source = rootfs / place[1:]
        if place not in ("/tmp", "/logs") and source.is_dir() and not source.is_symlink():
            shutil.copytree(source, path, symlinks=True, dirs_exist_ok=True)
            if uid is not None:
                own_tree(path, uid)


def host_path(places: Mapping[str, Path], path: str) -> Path:
    """Where a path of a *fresh* sandbox lies on the host."""
    top, _, rest = path[1:].partition("/")
    return places["/" + top] / rest


def _make_parents(path: Path, root: Path) -> list[Path]:
    """Make a directory and its parents; returns those that were missing."""
    missing = [p for p in (path, *path.parents) if p.is_relative_to(root) and not p.exists()]
    for directory in reversed(missing):
        directory.mkdir()
    return missing


def _copy(copy: Copy, places: Mapping[str, Path], root: Path, uid: int | None) -> None:
    """Dockerfile's COPY: a directory's content, or files."""
    dest = host_path(places, copy.dest)
    made = _make_parents(dest if copy.into else dest.parent, root)
    for source in copy.sources:
        if source.is_dir():
            shutil.copytree(source, dest, symlinks=True, dirs_exist_ok=True)
            made.append(dest)
        else:
            target = dest / source.name if copy.into or dest.is_dir() else dest
            shutil.copy2(source, target, follow_symlinks=False)
            made.append(target)
    if uid is not None:
        for path in made:
            own_tree(path, uid)


def own_tree(path: Path, uid: int) -> None:
    """Give a tree to the sandbox's uid; links themselves, never their targets."""
    os.chown(path, uid, uid, follow_symlinks=False)
    if path.is_symlink() or not path.is_dir():
        return
    for folder, directories, files in os.walk(path):
        for name in (*directories, *files):
            os.chown(os.path.join(folder, name), uid, uid, follow_symlinks=False)  # noqa: PTH118 (no Path per file)


def read_file(places: Mapping[str, Path], path: str, max_bytes: int) -> bytes | None:
    """The bytes of a regular file in the places, or None where there is none.

    Raises SandboxError when the file is larger than `max_bytes` or cannot be read.
    """
    try:
        descriptor = _open_inside(places, path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SandboxError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise SandboxError(f"{path}: larger than {max_bytes} bytes")
    return data


def _open_inside(places: Mapping[str, Path], path: str) -> int:
    """Open a path as a process in the sandbox would find it, with links resolved inside the places only."""
    todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    done: list[str] = []
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            done = done[:-1]
            continue
        target = _link(places, [*done, part]) if done else None
        if target is None:
            done.append(part)
            continue
        links += 1
        if links > MAX_LINKS:
            raise FileNotFoundError(path)
        todo += [piece for piece in reversed(target.split("/")) if piece not in ("", ".")]
        done = [] if target.startswith("/") else done
    return _walk(places, done, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)


def _walk(places: Mapping[str, Path], parts: list[str], flags: int) -> int:
    """Open `parts` below a place, refusing a symlink at every component (a racing agent can only make it fail)."""
    if not parts or "/" + parts[0] not in places:
        raise FileNotFoundError("/" + "/".join(parts))
    directory = os.open(places["/" + parts[0]], os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for part in parts[1:-1]:
            deeper = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            os.close(directory)
            directory = deeper
        name = parts[-1] if len(parts) > 1 else "."
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=directory)
    finally:
        os.close(directory)


def _link(places: Mapping[str, Path], parts: list[str]) -> str | None:
    """The target when `parts` is a symlink, else None."""
    descriptor = _walk(places, parts, os.O_PATH)
    try:
        if not stat.S_ISLNK(os.fstat(descriptor).st_mode):
            return None
        return os.readlink("", dir_fd=descriptor)
    finally:
        os.close(descriptor)


def used_bytes(places: Iterable[Path], max_entries: int) -> tuple[int, bool]:
    """Bytes on disk below the places (an empty file counts as one block), and whether all was counted: False after
    `max_entries` entries, the number is a lower bound then.
    """
    total, left, todo = 0, max_entries, [os.fspath(place) for place in places]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    if left == 0:
                        return total, False
                    left -= 1
                    total += 512 * max(1, entry.stat(follow_symlinks=False).st_blocks)
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        except OSError:
            continue  # the agent removed it meanwhile, or shut it
    return total, True
