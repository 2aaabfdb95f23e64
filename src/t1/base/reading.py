"""Pairs of commands of which the first shows what the second needs: reading before acting.

A plain word that was read is only ever printed; what becomes a file or a directory has a name of `t1.base.words`.
"""

from __future__ import annotations

from collections.abc import Callable

from t1.base.shell import Exchange
from t1.base.tree import Tree
from t1.base.words import word, words


def read_and_use(tree: Tree) -> list[Exchange]:
    """Draw one pair, true in the tree of `tree`."""
    return list(tree.rng.choice(_PAIRS)(tree))


def _held(tree: Tree, value: str) -> Exchange:
    """A new file that holds one line, and a command that shows it."""
    holder = tree.new_path()
    tree.given(holder, [value])
    return Exchange(f"{tree.rng.choice(('cat', 'cat', 'head -n 1', 'sort'))} {holder}", value)


def word_to_print(tree: Tree) -> tuple[Exchange, Exchange]:
    """A word or two that a file holds, written elsewhere."""
    value = " ".join(words(tree.rng, tree.rng.choice((1, 1, 1, 2))))
    read, target = _held(tree, value), tree.new_path()
    twice = tree.rng.random() < 0.25
    said = f"{value} {value}" if twice else value
    tree.write(target, [said])
    return read, Exchange(f"echo {said} {tree.rng.choice(('>', '>>'))} {target}")


def word_to_find(tree: Tree) -> tuple[Exchange, Exchange]:
    """A word that a file holds, looked for in another."""
    value = word(tree.rng)
    read, other = _held(tree, value), tree.new_path()
    lines = [*words(tree.rng, 2), f"{value} {word(tree.rng)}"]
    tree.given(other, lines)
    return read, Exchange(f"grep {value} {other}", "\n".join(line for line in lines if value in line))


def dir_to_make(tree: Tree) -> tuple[Exchange, Exchange]:
    """A name that a file holds, made a directory."""
    value = tree.new_dir()
    read = _held(tree, value)
    tree.dirs.append(value)
    return read, Exchange(f"{tree.rng.choice(('mkdir -p', 'mkdir'))} {value}")


def file_to_make(tree: Tree) -> tuple[Exchange, Exchange]:
    """A name that a file holds, made a file or the copy of one."""
    value, source = tree.new_path(top=True), tree.rng.choice([*tree.files])
    read = _held(tree, value)
    if tree.rng.random() < 0.3:
        tree.write(value, [])
        return read, Exchange(f"touch {value}")
    tree.write(value, tree.files[source])
    return read, Exchange(f"cp {source} {value}")


def file_to_see(tree: Tree) -> tuple[Exchange, Exchange]:
    """A name that a file holds, and what is in that file."""
    value = tree.rng.choice([*tree.files])
    return _held(tree, value), Exchange(f"cat {value}", "\n".join(tree.files[value]))


def number_to_print(tree: Tree) -> tuple[Exchange, Exchange]:
    """A count, written elsewhere."""
    source, target = tree.rng.choice([*tree.files]), tree.new_path()
    number = str(len(tree.files[source]))
    tree.write(target, [number])
    return Exchange(f"wc -l < {source}", number), Exchange(f"echo {number} > {target}")


def found_inside(tree: Tree) -> tuple[Exchange, Exchange]:
    """The one file of a directory that holds a word, then something done to it."""
    folder, value = tree.new_dir(), word(tree.rng)
    tree.dirs.append(folder)
    paths = [f"{folder}/{tree.new_path(top=True)}" for _ in range(2)]
    for path, line in zip(paths, (value, "0"), strict=True):
        tree.given(path, [line])
    search = (f"grep -l {value} {folder}/*", f"grep -rl {value} {folder}")
    return Exchange(tree.rng.choice(search), paths[0]), _act_on(tree, paths[0])


def found_by_name(tree: Tree) -> tuple[Exchange, Exchange]:
    """Where a file is, then something done to it."""
    folder = tree.new_dir()
    tree.dirs.append(folder)
    name = tree.new_path(top=True)
    path = f"{folder}/{name}"
    tree.given(path, words(tree.rng, 2))
    return Exchange(f"find . -name {name}", f"./{path}"), _act_on(tree, f"./{path}")


def listed(tree: Tree) -> tuple[Exchange, Exchange]:
    """What is in a directory, then something done to it."""
    folder = tree.new_dir()
    tree.dirs.append(folder)
    name = tree.new_path(top=True)
    tree.given(f"{folder}/{name}", words(tree.rng, 2))
    return Exchange(f"ls {folder}", name), _act_on(tree, f"{folder}/{name}")


def _act_on(tree: Tree, spelled: str) -> Exchange:
    """Show, copy, move or delete a file."""
    path = spelled.removeprefix("./")
    kind = tree.rng.randrange(4)
    if kind == 0:
        return Exchange(f"cat {spelled}", "\n".join(tree.files[path]))
    if kind == 1:
        tree.remove(path)
        return Exchange(f"rm {spelled}")
    target = tree.new_path(top=True)
    tree.write(target, tree.files[path])
    if kind == 2:
        return Exchange(f"cp {spelled} {target}")
    tree.remove(path)
    return Exchange(f"mv {spelled} {target}")


_PAIRS: tuple[Callable[[Tree], tuple[Exchange, Exchange]], ...] = (
    word_to_print, word_to_print, word_to_find, dir_to_make, dir_to_make, file_to_make, file_to_see, number_to_print,
    found_inside, found_by_name, listed,
)  # fmt: skip
