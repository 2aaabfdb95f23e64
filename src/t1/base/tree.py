"""A small tree of files that exists only in memory, and the names that fit into it.

One directory deep, which is as deep as the tasks' shells go. This module knows no commands but the ones that would
make such a tree for real.
"""

from __future__ import annotations

from random import Random
from typing import TypeAlias

from t1.base.words import file_name, made_up, word, words

Lines: TypeAlias = list[str]


def _content(rng: Random, name: str) -> Lines:
    """Lines that suit a file of that name."""
    if name.endswith(".csv"):
        width = rng.randint(2, 4)
        return [",".join(_cell(rng) for _ in range(width)) for _ in range(rng.randint(2, 4))]
    kind = rng.random()
    if kind < 0.35:
        return [word(rng)]
    if kind < 0.45:
        return [file_name(rng) if rng.random() < 0.5 else made_up(rng)]
    if kind < 0.55:
        return [f"{word(rng)}={_cell(rng)}" for _ in range(rng.randint(1, 3))]
    if kind < 0.7:
        pool = words(rng, 2)
        return [rng.choice(pool) for _ in range(rng.randint(3, 5))]
    return [" ".join(words(rng, rng.choice((1, 1, 2, 3)))) for _ in range(rng.randint(2, 5))]


def _cell(rng: Random) -> str:
    return str(rng.randint(1, 99)) if rng.random() < 0.4 else word(rng)


class Tree:
    """Files, directories, modes and links below one working directory, and a generator that names come from."""

    def __init__(self, rng: Random, num_files: int, num_dirs: int = 1) -> None:
        self.rng = rng
        self.dirs: list[str] = []
        self.files: dict[str, Lines] = {}
        self.modes: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.recent: list[str] = []
        self.givens: list[str] = []
        for _ in range(num_dirs):
            self.dirs.append(self.new_dir())
        for _ in range(num_files):
            path = self.new_path()
            self.files[path] = _content(rng, path)

    def setup_lines(self) -> Lines:
        """Real commands that make the present tree in an empty directory (for the test against bash)."""
        return [f"mkdir -p {path}" for path in self.dirs] + [_made(path, lines) for path, lines in self.files.items()]

    # names ----------------------------------------------------------------------------------------------------------

    def taken(self, path: str) -> bool:
        """True when something has that path."""
        return path in self.files or path in self.links or path in self.dirs

    def new_path(self, extension: str = "", top: bool = False) -> str:
        """A free path, sometimes below a directory."""
        while True:
            folder = f"{self.rng.choice(self.dirs)}/" if self.dirs and not top and self.rng.random() < 0.25 else ""
            path = folder + file_name(self.rng, extension)
            if not self.taken(path):
                return path

    def new_dir(self) -> str:
        """A free name for a directory."""
        while self.taken(path := made_up(self.rng)):
            pass
        return path

    def some_file(self, extension: str = "") -> str | None:
        """A file of the tree; the one touched last more often, as people do."""
        if not extension and self.recent and self.recent[-1] in self.files and self.rng.random() < 0.3:
            return self.recent[-1]
        matching = [path for path in self.files if path.endswith(extension)]
        return self.rng.choice(matching) if matching else None

    def given(self, path: str, lines: Lines) -> None:
        """Let a file be there without a command that made it."""
        self.write(path, lines)
        self.givens.append(_made(path, lines))

    def write(self, path: str, lines: Lines) -> None:
        """Set a file's lines."""
        self.files[path] = list(lines)
        self.modes.setdefault(path, "644")
        self.recent.append(path)

    def remove(self, path: str) -> None:
        """Forget a file."""
        self.files.pop(path)
        self.modes.pop(path, None)

    def listing(self, folder: str = "") -> str:
        """What `ls` prints when it is not a terminal."""
        paths = [*self.files, *self.links, *self.dirs]
        if folder:
            return "\n".join(sorted(p.split("/")[1] for p in paths if p.startswith(f"{folder}/")))
        return "\n".join(sorted(p for p in paths if "/" not in p))


def _made(path: str, lines: Lines) -> str:
    """A real command that makes a file."""
    folder = path.rpartition("/")[0] or "."
    return f"mkdir -p {folder} && printf '{''.join(f'{line}{chr(92)}n' for line in lines)}' > {path}"
