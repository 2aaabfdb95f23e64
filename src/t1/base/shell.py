"""A shell that is only simulated: command lines with their true outputs over a small tree, in microseconds.

`act` draws one command that makes sense in the present tree, applies it and returns what bash would print. A test
runs the same lines in a real bash and compares. Names come from `t1.base.words`, so no line is a task's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from t1.base.tree import Lines, Tree
from t1.base.words import made_up, word, words


@dataclass(frozen=True, slots=True)
class Exchange:
    """A command line and what the terminal shows after it, without the closing newline."""

    command: str
    output: str = ""
    exit_code: int = 0


Action: TypeAlias = Callable[[Tree], Exchange | None]


def _shown(lines: Lines) -> str:
    return "\n".join(lines)


# what only shows --------------------------------------------------------------------------------------------------


def ls(tree: Tree) -> Exchange:
    """List the working directory."""
    return Exchange("ls", tree.listing())


def ls_dir(tree: Tree) -> Exchange | None:
    """List a directory."""
    if not tree.dirs:
        return None
    folder = tree.rng.choice(tree.dirs)
    return Exchange(f"ls {folder}", tree.listing(folder))


def cat(tree: Tree) -> Exchange | None:
    """Show a file."""
    path = tree.some_file()
    if path is None:
        return None
    tree.recent.append(path)
    return Exchange(f"cat {path}", _shown(tree.files[path]))


def cat_missing(tree: Tree) -> Exchange:
    """Ask for a file that is not there."""
    path = tree.new_path(top=True)
    return Exchange(f"cat {path}", f"cat: {path}: No such file or directory", 1)


def echo(tree: Tree) -> Exchange:
    """Print words."""
    text = " ".join(words(tree.rng, tree.rng.randint(1, 4)))
    quote = tree.rng.choice(("", "", '"', "'"))
    return Exchange(f"echo {quote}{text}{quote}", text)


def _filter(command: str, change: Callable[[Tree, Lines], tuple[str, Lines] | None], to_file: float = 0.5) -> Action:
    """A command that reads one file; its output goes to the terminal or, with that probability, to a new file."""

    def act(tree: Tree) -> Exchange | None:
        path = tree.some_file()
        if path is None or not tree.files[path] or (changed := change(tree, tree.files[path])) is None:
            return None
        options, lines = changed
        line = f"{command}{options} {path}"
        if tree.rng.random() < to_file:
            target = tree.new_path()
            tree.write(target, lines)
            return Exchange(f"{line} > {target}")
        return Exchange(line, _shown(lines))

    act.__name__ = command
    return act


def _head(tree: Tree, lines: Lines) -> tuple[str, Lines]:
    count = tree.rng.randint(1, max(1, len(lines) - 1))
    return f" -n {count}", lines[:count]


def _tail(tree: Tree, lines: Lines) -> tuple[str, Lines]:
    count = tree.rng.randint(1, max(1, len(lines) - 1))
    return f" -n {count}", lines[-count:]


def _sort(tree: Tree, lines: Lines) -> tuple[str, Lines]:
    reverse = tree.rng.random() < 0.2
    return (" -r" if reverse else ""), sorted(lines, reverse=reverse)


def _grep(tree: Tree, lines: Lines) -> tuple[str, Lines] | None:
    found = [w for line in lines for w in line.replace(",", " ").replace("=", " ").split() if w.isalpha()]
    if not found:
        return None
    wanted = tree.rng.choice(found)
    if tree.rng.random() < 0.2:
        kept = [line for line in lines if wanted not in line]
        return (f" -v {wanted}", kept) if kept else None
    return f" {wanted}", [line for line in lines if wanted in line]


def _cut(tree: Tree, lines: Lines) -> tuple[str, Lines] | None:
    width = min(line.count(",") for line in lines) + 1 if lines else 1
    if width < 2:
        return None
    column = tree.rng.randint(1, width)
    return f" -d, -f{column}", [line.split(",")[column - 1] for line in lines]


def _uniq(_: Tree, lines: Lines) -> tuple[str, Lines] | None:
    kept = [line for line, _ in groupby(lines)]
    return ("", kept) if len(kept) < len(lines) else None


def _tac(_: Tree, lines: Lines) -> tuple[str, Lines]:
    return "", lines[::-1]


def count_lines(tree: Tree) -> Exchange | None:
    """Count lines, with the name, without it, or into a file."""
    path = tree.some_file()
    if path is None:
        return None
    number = str(len(tree.files[path]))
    kind = tree.rng.random()
    if kind < 0.4:
        return Exchange(f"wc -l {path}", f"{number} {path}")
    if kind < 0.7:
        return Exchange(f"wc -l < {path}", number)
    target = tree.new_path()
    tree.write(target, [number])
    return Exchange(f"wc -l < {path} > {target}")


def count_words(tree: Tree) -> Exchange | None:
    """Count words."""
    path = tree.some_file()
    return None if path is None else Exchange(f"wc -w < {path}", str(len(" ".join(tree.files[path]).split())))


def sort_unique(tree: Tree) -> Exchange | None:
    """Sort and drop what occurs twice."""
    path = tree.some_file()
    return None if path is None else Exchange(f"sort -u {path}", _shown(sorted(set(tree.files[path]))))


def find_name(tree: Tree) -> Exchange | None:
    """Find a file by its name."""
    path = tree.some_file()
    if path is None:
        return None
    name = path.split("/")[-1]
    hits = sorted(f"./{p}" for p in (*tree.files, *tree.links) if p.split("/")[-1] == name)
    return Exchange(f"find . -name {name}", _shown(hits)) if len(hits) == 1 else None


def find_in(tree: Tree) -> Exchange | None:
    """Every file below a directory, sorted."""
    if not tree.dirs:
        return None
    folder = tree.rng.choice(tree.dirs)
    return Exchange(
        f"find {folder} -type f | sort", _shown(sorted(p for p in tree.files if p.startswith(f"{folder}/")))
    )


def grep_list(tree: Tree) -> Exchange | None:
    """Which files of a directory hold a word."""
    inside = [path for path in tree.files if "/" in path and tree.files[path]]
    if not inside:
        return None
    folder = tree.rng.choice(inside).split("/")[0]
    wanted = word(tree.rng)
    for path in inside:
        if path.startswith(f"{folder}/") and (found := [w for w in " ".join(tree.files[path]).split() if w.isalpha()]):
            wanted = tree.rng.choice(found)
    hits = sorted(p for p in inside if p.startswith(f"{folder}/") and any(wanted in line for line in tree.files[p]))
    return Exchange(f"grep -rl {wanted} {folder} | sort", "\n".join(hits)) if hits else None


def exists(tree: Tree) -> Exchange | None:
    """Ask whether a file is there."""
    there = tree.rng.random() < 0.6
    path = tree.some_file() if there else tree.new_path(top=True)
    if path is None:
        return None
    return Exchange(f"test -f {path} && echo yes || echo no", "yes" if there else "no")


# what changes the tree ----------------------------------------------------------------------------------------------


def echo_to(tree: Tree) -> Exchange:
    """Write words to a new file, or add them to one."""
    text = " ".join(words(tree.rng, tree.rng.choice((1, 1, 1, 2, 3))))
    quote = "" if " " not in text and tree.rng.random() < 0.8 else tree.rng.choice(('"', "'", ""))
    path = tree.some_file() if tree.rng.random() < 0.4 else None
    if path is not None:
        tree.write(path, [*tree.files[path], text])
        return Exchange(f"echo {quote}{text}{quote} >> {path}")
    path = tree.new_path()
    tree.write(path, [text])
    return Exchange(f"echo {quote}{text}{quote} > {path}")


def printf_to(tree: Tree) -> Exchange:
    """Write several lines."""
    lines = words(tree.rng, tree.rng.randint(2, 3))
    path = tree.new_path()
    tree.write(path, lines)
    return Exchange(f"printf '{''.join(line + chr(92) + 'n' for line in lines)}' > {path}")


def copy(tree: Tree) -> Exchange | None:
    """Copy a file to another name or into a directory."""
    path = tree.some_file()
    if path is None:
        return None
    target, shown = _target(tree, path)
    if target is None or tree.taken(target):
        return None
    tree.write(target, tree.files[path])
    tree.modes[target] = tree.modes.get(path, "644")
    return Exchange(f"cp {path} {shown}")


def move(tree: Tree) -> Exchange | None:
    """Move a file."""
    path = tree.some_file()
    if path is None or path in tree.links.values():
        return None
    target, shown = _target(tree, path)
    if target is None or tree.taken(target):
        return None
    mode = tree.modes.get(path, "644")
    tree.write(target, tree.files[path])
    tree.remove(path)
    tree.modes[target] = mode
    return Exchange(f"mv {path} {shown}")


def _target(tree: Tree, path: str) -> tuple[str | None, str]:
    """Where a copy goes: (its path, how the command spells it)."""
    if tree.dirs and tree.rng.random() < 0.4:
        folder = tree.rng.choice(tree.dirs)
        return f"{folder}/{path.split('/')[-1]}", f"{folder}/"
    target = tree.new_path()
    return target, target


def remove(tree: Tree) -> Exchange | None:
    """Delete a file."""
    path = tree.some_file()
    if path is None or len(tree.files) < 3 or path in tree.links.values():
        return None
    tree.remove(path)
    return Exchange(f"rm {path}")


def remove_missing(tree: Tree) -> Exchange:
    """Delete what is not there."""
    path = tree.new_path(top=True)
    return Exchange(f"rm {path}", f"rm: cannot remove '{path}': No such file or directory", 1)


def make_dir(tree: Tree) -> Exchange:
    """Make a directory, or one in another."""
    path = tree.new_dir()
    tree.dirs.append(path)
    if tree.rng.random() < 0.4:
        return Exchange(f"mkdir {path}")
    return Exchange(f"mkdir -p {path}")


def make_dirs(tree: Tree) -> Exchange:
    """Make nested directories; the inner one holds nothing, so that the tree stays two levels deep."""
    outer = tree.new_dir()
    inner = made_up(tree.rng)
    tree.dirs.append(outer)
    tree.links[f"{outer}/{inner}"] = ""
    return Exchange(f"mkdir -p {outer}/{inner}")


def touch(tree: Tree) -> Exchange:
    """Make an empty file."""
    path = tree.new_path()
    tree.write(path, [])
    return Exchange(f"touch {path}")


def change_mode(tree: Tree) -> Exchange | None:
    """Change a file's mode."""
    path = tree.some_file()
    if path is None:
        return None
    spelled, mode = tree.rng.choice((("+x", "755"), ("600", "600"), ("644", "644"), ("755", "755"), ("700", "700")))
    if spelled == "+x":
        mode = "".join(str(int(digit) | 1) for digit in tree.modes.get(path, "644"))
    tree.modes[path] = mode
    tree.recent.append(path)
    return Exchange(f"chmod {spelled} {path}")


def show_mode(tree: Tree) -> Exchange | None:
    """Show a file's mode."""
    path = tree.some_file()
    return None if path is None else Exchange(f"stat -c %a {path}", tree.modes.get(path, "644"))


def link(tree: Tree) -> Exchange | None:
    """Make a symbolic link beside its target."""
    path = tree.some_file()
    if path is None or "/" in path:
        return None
    name = tree.new_path(top=True)
    tree.links[name] = path
    return Exchange(f"ln -s {path} {name}")


def read_link(tree: Tree) -> Exchange | None:
    """Show where a link points."""
    named = [name for name, path in tree.links.items() if path]
    if not named:
        return None
    name = tree.rng.choice(named)
    return Exchange(f"readlink {name}", tree.links[name])


def replace(tree: Tree) -> Exchange | None:
    """Replace a word in place, or only show the result."""
    path = tree.some_file()
    found = [w for line in tree.files[path] for w in line.split() if w.isalpha()] if path else []
    if path is None or not found:
        return None
    old, new = tree.rng.choice(found), word(tree.rng)
    every = "g" if tree.rng.random() < 0.5 else ""
    lines = [line.replace(old, new, -1 if every else 1) for line in tree.files[path]]
    if tree.rng.random() < 0.3:
        return Exchange(f"sed s/{old}/{new}/{every} {path}", _shown(lines))
    tree.write(path, lines)
    return Exchange(f"sed -i s/{old}/{new}/{every} {path}")


def delete_lines(tree: Tree) -> Exchange | None:
    """Delete a line by its number."""
    path = tree.some_file()
    if path is None or len(tree.files[path]) < 2:
        return None
    number = tree.rng.randint(1, len(tree.files[path]))
    tree.write(path, tree.files[path][: number - 1] + tree.files[path][number:])
    return Exchange(f"sed -i {number}d {path}")


def join_files(tree: Tree) -> Exchange | None:
    """Concatenate two files, to the terminal or into a third."""
    if len(tree.files) < 2:
        return None
    first, second = tree.rng.sample(sorted(tree.files), 2)
    lines = tree.files[first] + tree.files[second]
    if tree.rng.random() < 0.3:
        return Exchange(f"cat {first} {second}", _shown(lines))
    target = tree.new_path()
    tree.write(target, lines)
    return Exchange(f"cat {first} {second} > {target}")


def archive(tree: Tree) -> Exchange | None:
    """Archive a directory or a file."""
    subject = tree.rng.choice([*tree.dirs, *tree.files]) if tree.dirs or tree.files else None
    if subject is None:
        return None
    name = tree.new_path("tgz" if tree.rng.random() < 0.3 else "tar", top=True)
    tree.links[name] = ""  # opaque: nothing else reads it
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


def act(tree: Tree, kinds: tuple[Action, ...] = ACTIONS) -> Exchange:
    """Draw a command of `kinds` that the tree allows, apply it, and return it with its output."""
    while True:
        exchange = tree.rng.choice(kinds)(tree)
        if exchange is not None:
            return exchange
