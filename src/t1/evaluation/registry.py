"""Registry files in Harbor's format: a set of tasks by name and version, from git or from paths, as one directory.

    [{"name": "…", "version": "2.0", "tasks": [{"name": "…", "git_url": "…", "git_commit_id": "…", "path": "…"}]}]

A set is fetched once, at the commits that the file names, and kept under its own digest. Boundary: files and git; what
a task is, is `t1.tasks`' business.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, field_validator

from t1.errors import TaskError
from t1.tasks.harbor import task_digest

GIT_S = 600.0
"""Bound of one call of git."""
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


class _Entry(BaseModel):
    """Registries of later Harbors may say more; it changes nothing here."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class RegistryTask(_Entry):
    """Where one task lies: in a git repository at a commit, or, without `git_url`, at a path."""

    name: str
    path: str
    git_url: str | None = None
    git_commit_id: str | None = None

    @field_validator("git_url")
    @classmethod
    def _is_no_option(cls, url: str | None) -> str | None:
        if url is not None and (url.startswith("-") or "::" in url):
            raise ValueError("is no address that git may be given")
        return url

    @field_validator("git_commit_id")
    @classmethod
    def _is_a_commit(cls, commit: str | None) -> str | None:
        if commit is not None and commit != "HEAD" and not _COMMIT.fullmatch(commit):
            raise ValueError("expected a commit's hexadecimal id")
        return None if commit == "HEAD" else commit

    @property
    def folder(self) -> str:
        """Name of its directory in the set."""
        return re.sub(r"[^\w.-]", "-", self.name).lstrip(".-") or "task"


class Dataset(_Entry):
    """A named set of tasks."""

    name: str
    version: str = ""
    description: str = ""
    tasks: tuple[RegistryTask, ...]

    @property
    def title(self) -> str:
        """`name@version`."""
        return f"{self.name}@{self.version}" if self.version else self.name


def read_registry(file: Path) -> list[Dataset]:
    """The sets that a registry file names. Raises TaskError with the file, the key and the reason."""
    try:
        return TypeAdapter(list[Dataset]).validate_json(file.read_bytes())
    except OSError as error:
        raise TaskError(file, f"cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "top"
        raise TaskError(file, f"{where}: {first['msg']}; a registry is a list of name, version and tasks") from error


def choose(file: Path, wanted: str) -> Dataset:
    """The set `wanted` of a registry file: `NAME@VERSION`, or a name with one version; empty = the only one."""
    found = read_registry(file)
    fitting = [one for one in found if wanted in ("", one.name, one.title)]
    if len(fitting) != 1:
        offered = ", ".join(one.title for one in (fitting or found)) or "no set at all"
        reason = "has no such set" if not fitting else "names several sets"
        raise TaskError(file, f"{reason}: ask for FILE#NAME@VERSION, of {offered}")
    return fitting[0]


def materialize(dataset: Dataset, *, beside: Path, cache: Path) -> Path:
    """The set as a directory of task directories below `cache`; fetched where it is not there yet.

    Paths without a repository are those of the working directory, as in Harbor, else of `beside`, the registry's own.
    """
    folders = [task.folder for task in dataset.tasks]
    if doubled := {name for name in folders if folders.count(name) > 1}:
        raise TaskError(beside, f"{dataset.title}: several tasks are called {', '.join(sorted(doubled))}")
    if not dataset.tasks:
        raise TaskError(beside, f"{dataset.title} has no tasks")
    repositories: dict[tuple[str, str], list[RegistryTask]] = defaultdict(list)
    for task in dataset.tasks:
        if task.git_url is not None:
            repositories[task.git_url, task.git_commit_id or _head(task.git_url)].append(task)
    local = {task: _local(task, beside) for task in dataset.tasks if task.git_url is None}
    title = re.sub(r"[^\w.@-]", "-", dataset.title).lstrip(".")
    place = cache / "sets" / f"{title}-{_digest(repositories, local)}"
    if not place.is_dir():
        with whole_or_nothing(place) as scratch:
            for (url, commit), tasks in repositories.items():
                _fetch(url, commit, tasks, scratch)
            for task, path in local.items():
                shutil.copytree(path, scratch / task.folder, symlinks=True)
    return place


def _local(task: RegistryTask, beside: Path) -> Path:
    """The directory of a task without a repository."""
    for path in (Path(task.path).expanduser(), beside / task.path):
        if path.is_dir():
            return path.resolve()
    raise TaskError(beside / task.path, f"no such directory, neither here nor beside the registry ({task.name})")


def _digest(repositories: Mapping[tuple[str, str], Sequence[RegistryTask]], local: Mapping[RegistryTask, Path]) -> str:
    """What "the same set" means: repositories at commits and paths in them, and the contents of local tasks."""
    lines = [f"{url} {commit} {t.path} {t.folder}" for (url, commit), some in repositories.items() for t in some]
    lines += [f"{task_digest(path)} {task.folder}" for task, path in local.items()]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:12]


def _fetch(url: str, commit: str, tasks: Sequence[RegistryTask], into: Path) -> None:
    """Check a repository out at a commit, only where the tasks lie, and move them to their folders."""
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=".git-") as checkout:
        git = ("git", "-C", checkout)
        _run(url, "git", "init", "--quiet", checkout)
        _run(url, *git, "remote", "add", "origin", url)
        _run(url, *git, "sparse-checkout", "set", "--no-cone", *(f"/{task.path.strip('/')}/" for task in tasks))
        _run(url, *git, "fetch", "--quiet", "--depth", "1", "--filter=blob:none", "origin", commit)
        _run(url, *git, "checkout", "--quiet", "FETCH_HEAD")
        root = Path(checkout).resolve()
        for task in tasks:
            path = (root / task.path.strip("/")).resolve()
            if not path.is_relative_to(root) or not path.is_dir():
                raise TaskError(Path(task.path), f"{url} at {commit[:12]} has no such directory ({task.name})")
            shutil.copytree(path, into / task.folder, symlinks=True, ignore=shutil.ignore_patterns(".git"))


def _head(url: str) -> str:
    """The commit of a repository's head: an entry without a commit means whatever is newest."""
    found = _run(url, "git", "ls-remote", url, "HEAD").split()
    if not found:
        raise TaskError(Path(url), "the repository has no HEAD, and the registry names no commit")
    return found[0]


def _run(url: str, *command: str) -> str:
    """What git printed; it asks nobody for a password. Raises TaskError with the repository and git's last word."""
    environment = os.environ | {"GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_S, env=environment, check=False)
    except FileNotFoundError:
        raise TaskError(Path(url), "sets of tasks in repositories need git: install it, then try again") from None
    except subprocess.TimeoutExpired:
        raise TaskError(Path(url), f"git gave no answer within {GIT_S:g} s") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise TaskError(Path(url), f"git {command[3] if command[1] == '-C' else command[1]} failed: {said}")
    return done.stdout


@contextmanager
def whole_or_nothing(place: Path) -> Iterator[Path]:
    """A directory that takes `place` when everything is in it, and disappears otherwise."""
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix=".set-"))
    try:
        yield scratch
        scratch.chmod(0o755)
        shutil.rmtree(place, ignore_errors=True)
        scratch.rename(place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
