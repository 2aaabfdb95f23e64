"""A shell that is only simulated: command lines with their true outputs over a small tree of files, in microseconds.

`Shell.act` draws one command that makes sense in the present tree, applies it and returns what bash would print. A
test runs the same lines in a real bash and compares. Names come from `t1.base.words`, so no line is a task's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from random import Random
from typing import TypeAlias

from t1.base.words import file_name, made_up, word, words

Lines: TypeAlias = list[str]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A command line and what the terminal shows after it, without the closing newline."""

    command: str
    output: str = ""
    exit_code: int = 0


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


class Shell:
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

    def act(self, kinds: tuple[Action, ...] | None = None) -> Exchange:
        """Draw a command that the tree allows (of `kinds`, if given), apply it and return it with its output."""
        while True:
            exchange = self.rng.choice(kinds or ACTIONS)(self)
            if exchange is not None:
                return exchange

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


Action: TypeAlias = Callable[[Shell], "Exchange | None"]


def _shown(lines: Lines) -> str:
    return "\n".join(lines)


# what only shows --------------------------------------------------------------------------------------------------


def ls(sh: Shell) -> Exchange:
    """List the working directory."""
    return Exchange("ls", sh.listing())


def ls_dir(sh: Shell) -> Exchange | None:
    """List a directory."""
    if not sh.dirs:
        return None
    folder = sh.rng.choice(sh.dirs)
    return Exchange(f"ls {folder}", sh.listing(folder))


def cat(sh: Shell) -> Exchange | None:
    """Show a file."""
    path = sh.some_file()
    if path is None:
        return None
    sh.recent.append(path)
    return Exchange(f"cat {path}", _shown(sh.files[path]))


def cat_missing(sh: Shell) -> Exchange:
    """Ask for a file that is not there."""
    path = sh.new_path(top=True)
    return Exchange(f"cat {path}", f"cat: {path}: No such file or directory", 1)


def echo(sh: Shell) -> Exchange:
    """Print words."""
    text = " ".join(words(sh.rng, sh.rng.randint(1, 4)))
    quote = sh.rng.choice(("", "", '"', "'"))
    return Exchange(f"echo {quote}{text}{quote}", text)


def _filter(command: str, change: Callable[[Shell, Lines], tuple[str, Lines] | None], to_file: float = 0.5) -> Action:
    """A command that reads one file; its output goes to the terminal or, with that probability, to a new file."""

    def act(sh: Shell) -> Exchange | None:
        path = sh.some_file()
        if path is None or not sh.files[path] or (changed := change(sh, sh.files[path])) is None:
            return None
        options, lines = changed
        line = f"{command}{options} {path}"
        if sh.rng.random() < to_file:
            target = sh.new_path()
            sh.write(target, lines)
            return Exchange(f"{line} > {target}")
        return Exchange(line, _shown(lines))

    act.__name__ = command
    return act


def _head(sh: Shell, lines: Lines) -> tuple[str, Lines]:
    count = sh.rng.randint(1, max(1, len(lines) - 1))
    return f" -n {count}", lines[:count]


def _tail(sh: Shell, lines: Lines) -> tuple[str, Lines]:
    count = sh.rng.randint(1, max(1, len(lines) - 1))
    return f" -n {count}", lines[-count:]


def _sort(sh: Shell, lines: Lines) -> tuple[str, Lines]:
    reverse = sh.rng.random() < 0.2
    return (" -r" if reverse else ""), sorted(lines, reverse=reverse)


def _grep(sh: Shell, lines: Lines) -> tuple[str, Lines] | None:
    found = [w for line in lines for w in line.replace(",", " ").replace("=", " ").split() if w.isalpha()]
    if not found:
        return None
    wanted = sh.rng.choice(found)
    if sh.rng.random() < 0.2:
        kept = [line for line in lines if wanted not in line]
        return (f" -v {wanted}", kept) if kept else None
    return f" {wanted}", [line for line in lines if wanted in line]


def _cut(sh: Shell, lines: Lines) -> tuple[str, Lines] | None:
    width = min(line.count(",") for line in lines) + 1 if lines else 1
    if width < 2:
        return None
    column = sh.rng.randint(1, width)
    return f" -d, -f{column}", [line.split(",")[column - 1] for line in lines]


def _uniq(_: Shell, lines: Lines) -> tuple[str, Lines] | None:
    kept = [line for line, _ in groupby(lines)]
    return ("", kept) if len(kept) < len(lines) else None


def _tac(_: Shell, lines: Lines) -> tuple[str, Lines]:
    return "", lines[::-1]


def count_lines(sh: Shell) -> Exchange | None:
    """Count lines, with the name, without it, or into a file."""
    path = sh.some_file()
    if path is None:
        return None
    number = str(len(sh.files[path]))
    kind = sh.rng.random()
    if kind < 0.4:
        return Exchange(f"wc -l {path}", f"{number} {path}")
    if kind < 0.7:
        return Exchange(f"wc -l < {path}", number)
    target = sh.new_path()
    sh.write(target, [number])
    return Exchange(f"wc -l < {path} > {target}")


def count_words(sh: Shell) -> Exchange | None:
    """Count words."""
    path = sh.some_file()
    return None if path is None else Exchange(f"wc -w < {path}", str(len(" ".join(sh.files[path]).split())))


def sort_unique(sh: Shell) -> Exchange | None:
    """Sort and drop what occurs twice."""
    path = sh.some_file()
    return None if path is None else Exchange(f"sort -u {path}", _shown(sorted(set(sh.files[path]))))


def find_name(sh: Shell) -> Exchange | None:
    """Find a file by its name."""
    path = sh.some_file()
    if path is None:
        return None
    name = path.split("/")[-1]
    hits = sorted(f"./{p}" for p in (*sh.files, *sh.links) if p.split("/")[-1] == name)
    return Exchange(f"find . -name {name}", _shown(hits)) if len(hits) == 1 else None


def find_in(sh: Shell) -> Exchange | None:
    """Every file below a directory, sorted."""
    if not sh.dirs:
        return None
    folder = sh.rng.choice(sh.dirs)
    return Exchange(f"find {folder} -type f | sort", _shown(sorted(p for p in sh.files if p.startswith(f"{folder}/"))))


def grep_list(sh: Shell) -> Exchange | None:
    """Which files of a directory hold a word."""
    inside = [path for path in sh.files if "/" in path and sh.files[path]]
    if not inside:
        return None
    folder = sh.rng.choice(inside).split("/")[0]
    wanted = word(sh.rng)
    for path in inside:
        if path.startswith(f"{folder}/") and (found := [w for w in " ".join(sh.files[path]).split() if w.isalpha()]):
            wanted = sh.rng.choice(found)
    hits = sorted(p for p in inside if p.startswith(f"{folder}/") and any(wanted in line for line in sh.files[p]))
    return Exchange(f"grep -rl {wanted} {folder} | sort", "\n".join(hits)) if hits else None


def exists(sh: Shell) -> Exchange | None:
    """Ask whether a file is there."""
    there = sh.rng.random() < 0.6
    path = sh.some_file() if there else sh.new_path(top=True)
    if path is None:
        return None
    return Exchange(f"test -f {path} && echo yes || echo no", "yes" if there else "no")


# what changes the tree ----------------------------------------------------------------------------------------------


def echo_to(sh: Shell) -> Exchange:
    """Write words to a new file, or add them to one."""
    text = " ".join(words(sh.rng, sh.rng.choice((1, 1, 1, 2, 3))))
    quote = "" if " " not in text and sh.rng.random() < 0.8 else sh.rng.choice(('"', "'", ""))
    path = sh.some_file() if sh.rng.random() < 0.4 else None
    if path is not None:
        sh.write(path, [*sh.files[path], text])
        return Exchange(f"echo {quote}{text}{quote} >> {path}")
    path = sh.new_path()
    sh.write(path, [text])
    return Exchange(f"echo {quote}{text}{quote} > {path}")


def printf_to(sh: Shell) -> Exchange:
    """Write several lines."""
    lines = words(sh.rng, sh.rng.randint(2, 3))
    path = sh.new_path()
    sh.write(path, lines)
    return Exchange(f"printf '{''.join(line + chr(92) + 'n' for line in lines)}' > {path}")


def copy(sh: Shell) -> Exchange | None:
    """Copy a file to another name or into a directory."""
    path = sh.some_file()
    if path is None:
        return None
    target, shown = _target(sh, path)
    if target is None or sh.taken(target):
        return None
    sh.write(target, sh.files[path])
    sh.modes[target] = sh.modes.get(path, "644")
    return Exchange(f"cp {path} {shown}")


def move(sh: Shell) -> Exchange | None:
    """Move a file."""
    path = sh.some_file()
    if path is None or path in sh.links.values():
        return None
    target, shown = _target(sh, path)
    if target is None or sh.taken(target):
        return None
    mode = sh.modes.get(path, "644")
    sh.write(target, sh.files[path])
    sh.remove(path)
    sh.modes[target] = mode
    return Exchange(f"mv {path} {shown}")


def _target(sh: Shell, path: str) -> tuple[str | None, str]:
    """Where a copy goes: (its path, how the command spells it)."""
    if sh.dirs and sh.rng.random() < 0.4:
        folder = sh.rng.choice(sh.dirs)
        return f"{folder}/{path.split('/')[-1]}", f"{folder}/"
    target = sh.new_path()
    return target, target


def remove(sh: Shell) -> Exchange | None:
    """Delete a file."""
    path = sh.some_file()
    if path is None or len(sh.files) < 3 or path in sh.links.values():
        return None
    sh.remove(path)
    return Exchange(f"rm {path}")


def remove_missing(sh: Shell) -> Exchange:
    """Delete what is not there."""
    path = sh.new_path(top=True)
    return Exchange(f"rm {path}", f"rm: cannot remove '{path}': No such file or directory", 1)


def make_dir(sh: Shell) -> Exchange:
    """Make a directory, or one in another."""
    path = sh.new_dir()
    sh.dirs.append(path)
    if sh.rng.random() < 0.4:
        return Exchange(f"mkdir {path}")
    return Exchange(f"mkdir -p {path}")


def make_dirs(sh: Shell) -> Exchange:
    """Make nested directories; the inner one holds nothing, so that the tree stays two levels deep."""
    outer = sh.new_dir()
    inner = made_up(sh.rng)
    sh.dirs.append(outer)
    sh.links[f"{outer}/{inner}"] = ""
    return Exchange(f"mkdir -p {outer}/{inner}")


def touch(sh: Shell) -> Exchange:
    """Make an empty file."""
    path = sh.new_path()
    sh.write(path, [])
    return Exchange(f"touch {path}")


def change_mode(sh: Shell) -> Exchange | None:
    """Change a file's mode."""
    path = sh.some_file()
    if path is None:
        return None
    spelled, mode = sh.rng.choice((("+x", "755"), ("600", "600"), ("644", "644"), ("755", "755"), ("700", "700")))
    if spelled == "+x":
        mode = "".join(str(int(digit) | 1) for digit in sh.modes.get(path, "644"))
    sh.modes[path] = mode
    sh.recent.append(path)
    return Exchange(f"chmod {spelled} {path}")


def show_mode(sh: Shell) -> Exchange | None:
    """Show a file's mode."""
    path = sh.some_file()
    return None if path is None else Exchange(f"stat -c %a {path}", sh.modes.get(path, "644"))


def link(sh: Shell) -> Exchange | None:
    """Make a symbolic link beside its target."""
    path = sh.some_file()
    if path is None or "/" in path:
        return None
    name = sh.new_path(top=True)
    sh.links[name] = path
    return Exchange(f"ln -s {path} {name}")


def read_link(sh: Shell) -> Exchange | None:
    """Show where a link points."""
    named = [name for name, path in sh.links.items() if path]
    if not named:
        return None
    name = sh.rng.choice(named)
    return Exchange(f"readlink {name}", sh.links[name])


def replace(sh: Shell) -> Exchange | None:
    """Replace a word in place, or only show the result."""
    path = sh.some_file()
    found = [w for line in sh.files[path] for w in line.split() if w.isalpha()] if path else []
    if path is None or not found:
        return None
    old, new = sh.rng.choice(found), word(sh.rng)
    every = "g" if sh.rng.random() < 0.5 else ""
    lines = [line.replace(old, new, -1 if every else 1) for line in sh.files[path]]
    if sh.rng.random() < 0.3:
        return Exchange(f"sed s/{old}/{new}/{every} {path}", _shown(lines))
    sh.write(path, lines)
    return Exchange(f"sed -i s/{old}/{new}/{every} {path}")


def delete_lines(sh: Shell) -> Exchange | None:
    """Delete a line by its number."""
    path = sh.some_file()
    if path is None or len(sh.files[path]) < 2:
        return None
    number = sh.rng.randint(1, len(sh.files[path]))
    sh.write(path, sh.files[path][: number - 1] + sh.files[path][number:])
    return Exchange(f"sed -i {number}d {path}")


def join_files(sh: Shell) -> Exchange | None:
    """Concatenate two files, to the terminal or into a third."""
    if len(sh.files) < 2:
        return None
    first, second = sh.rng.sample(sorted(sh.files), 2)
    lines = sh.files[first] + sh.files[second]
    if sh.rng.random() < 0.3:
        return Exchange(f"cat {first} {second}", _shown(lines))
    target = sh.new_path()
    sh.write(target, lines)
    return Exchange(f"cat {first} {second} > {target}")


def archive(sh: Shell) -> Exchange | None:
    """Archive a directory or a file."""
    subject = sh.rng.choice([*sh.dirs, *sh.files]) if sh.dirs or sh.files else None
    if subject is None:
        return None
    name = sh.new_path("tgz" if sh.rng.random() < 0.3 else "tar", top=True)
    sh.links[name] = ""  # opaque: nothing else reads it
    return Exchange(f"tar -{'czf' if name.endswith('tgz') else 'cf'} {name} {subject}")


ACTIONS: tuple[Action, ...] = (
    ls, ls, ls_dir, cat, cat, cat, cat, cat_missing, echo, _filter("head", _head), _filter("tail", _tail),
    _filter("sort", _sort), _filter("sort", _sort), _filter("grep", _grep), _filter("grep", _grep),
    _filter("cut", _cut), _filter("cut", _cut), _filter("uniq", _uniq), _filter("tac", _tac), count_lines,
    count_lines, count_words, sort_unique, find_name, find_in, grep_list, exists, echo_to, echo_to, printf_to, copy,
    copy, move, move, remove, remove_missing, make_dir, make_dirs, touch, change_mode, change_mode, show_mode, link,
    read_link, replace, replace, delete_lines, join_files, archive,
)  # fmt: skip
"""Repetition is weight: what people type often stands here more than once."""
