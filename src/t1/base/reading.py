"""Pairs of commands of which the first shows what the second needs: reading before acting.

A plain word that was read is only ever printed; what becomes a file or a directory has a name of `t1.base.words`.
"""

from __future__ import annotations

from collections.abc import Callable

from t1.base.shell import Exchange, Shell
from t1.base.words import word, words


def read_and_use(sh: Shell) -> list[Exchange]:
    """Draw one pair, true in the tree of `sh`."""
    return list(sh.rng.choice(_PAIRS)(sh))


def _held(sh: Shell, value: str) -> Exchange:
    """A new file that holds one line, and a command that shows it."""
    holder = sh.new_path()
    sh.given(holder, [value])
    return Exchange(f"{sh.rng.choice(('cat', 'cat', 'head -n 1', 'sort'))} {holder}", value)


def word_to_print(sh: Shell) -> tuple[Exchange, Exchange]:
    """A word or two that a file holds, written elsewhere."""
    value = " ".join(words(sh.rng, sh.rng.choice((1, 1, 1, 2))))
    read, target = _held(sh, value), sh.new_path()
    twice = sh.rng.random() < 0.25
    said = f"{value} {value}" if twice else value
    sh.write(target, [said])
    return read, Exchange(f"echo {said} {sh.rng.choice(('>', '>>'))} {target}")


def word_to_find(sh: Shell) -> tuple[Exchange, Exchange]:
    """A word that a file holds, looked for in another."""
    value = word(sh.rng)
    read, other = _held(sh, value), sh.new_path()
    lines = [*words(sh.rng, 2), f"{value} {word(sh.rng)}"]
    sh.given(other, lines)
    return read, Exchange(f"grep {value} {other}", "\n".join(line for line in lines if value in line))


def dir_to_make(sh: Shell) -> tuple[Exchange, Exchange]:
    """A name that a file holds, made a directory."""
    value = sh.new_dir()
    read = _held(sh, value)
    sh.dirs.append(value)
    return read, Exchange(f"{sh.rng.choice(('mkdir -p', 'mkdir'))} {value}")


def file_to_make(sh: Shell) -> tuple[Exchange, Exchange]:
    """A name that a file holds, made a file or the copy of one."""
    value, source = sh.new_path(top=True), sh.rng.choice([*sh.files])
    read = _held(sh, value)
    if sh.rng.random() < 0.3:
        sh.write(value, [])
        return read, Exchange(f"touch {value}")
    sh.write(value, sh.files[source])
    return read, Exchange(f"cp {source} {value}")


def file_to_see(sh: Shell) -> tuple[Exchange, Exchange]:
    """A name that a file holds, and what is in that file."""
    value = sh.rng.choice([*sh.files])
    return _held(sh, value), Exchange(f"cat {value}", "\n".join(sh.files[value]))


def number_to_print(sh: Shell) -> tuple[Exchange, Exchange]:
    """A count, written elsewhere."""
    source, target = sh.rng.choice([*sh.files]), sh.new_path()
    number = str(len(sh.files[source]))
    sh.write(target, [number])
    return Exchange(f"wc -l < {source}", number), Exchange(f"echo {number} > {target}")


def found_inside(sh: Shell) -> tuple[Exchange, Exchange]:
    """The one file of a directory that holds a word, then something done to it."""
    folder, value = sh.new_dir(), word(sh.rng)
    sh.dirs.append(folder)
    paths = [f"{folder}/{sh.new_path(top=True)}" for _ in range(2)]
    for path, line in zip(paths, (value, "0"), strict=True):
        sh.given(path, [line])
    search = (f"grep -l {value} {folder}/*", f"grep -rl {value} {folder}")
    return Exchange(sh.rng.choice(search), paths[0]), _act_on(sh, paths[0])


def found_by_name(sh: Shell) -> tuple[Exchange, Exchange]:
    """Where a file is, then something done to it."""
    folder = sh.new_dir()
    sh.dirs.append(folder)
    name = sh.new_path(top=True)
    path = f"{folder}/{name}"
    sh.given(path, words(sh.rng, 2))
    return Exchange(f"find . -name {name}", f"./{path}"), _act_on(sh, f"./{path}")


def listed(sh: Shell) -> tuple[Exchange, Exchange]:
    """What is in a directory, then something done to it."""
    folder = sh.new_dir()
    sh.dirs.append(folder)
    name = sh.new_path(top=True)
    sh.given(f"{folder}/{name}", words(sh.rng, 2))
    return Exchange(f"ls {folder}", name), _act_on(sh, f"{folder}/{name}")


def _act_on(sh: Shell, spelled: str) -> Exchange:
    """Show, copy, move or delete a file."""
    path = spelled.removeprefix("./")
    kind = sh.rng.randrange(4)
    if kind == 0:
        return Exchange(f"cat {spelled}", "\n".join(sh.files[path]))
    if kind == 1:
        sh.remove(path)
        return Exchange(f"rm {spelled}")
    target = sh.new_path(top=True)
    sh.write(target, sh.files[path])
    if kind == 2:
        return Exchange(f"cp {spelled} {target}")
    sh.remove(path)
    return Exchange(f"mv {spelled} {target}")


_PAIRS: tuple[Callable[[Shell], tuple[Exchange, Exchange]], ...] = (
    word_to_print, word_to_print, word_to_find, dir_to_make, dir_to_make, file_to_make, file_to_see, number_to_print,
    found_inside, found_by_name, listed,
)  # fmt: skip
