"""The requirements that `shell-basics` tasks are made of: a sentence, the commands that meet it, what is asserted.

Boundary: pure functions of a random stream; nothing here touches a disk. No two requirements of a task share a path, so
that none can undo another, and none asserts what already holds at the start.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from t1.tasks.vocabulary import DIRECTORIES, STEMS, WORDS


@dataclass(frozen=True, slots=True)
class Assertion:
    """One line of a verifier's report."""

    name: str
    test: str
    """A bash command that succeeds when the assertion holds; paths are absolute."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing to do."""

    primitive: str
    sentence: str
    lines: tuple[str, ...]
    """The reference solution's commands, relative to /app."""
    assertions: tuple[Assertion, ...]

    @property
    def reads(self) -> bool:
        """Whether a value that is needed has to be read in the sandbox first."""
        return self.primitive.startswith("read-")


@dataclass(slots=True)
class Draft:
    """A task in the making: its random stream, its files, and the paths that are spoken for."""

    rng: Random
    files: dict[str, str] = field(default_factory=dict)
    """Path under /app → content."""
    taken: set[str] = field(default_factory=set)

    def words(self, count: int) -> list[str]:
        """Distinct words."""
        return self.rng.sample(WORDS, count)

    def word(self) -> str:
        """One word."""
        return self.rng.choice(WORDS)

    def say(self, *wordings: str) -> str:
        """One of several wordings."""
        return self.rng.choice(wordings)

    def path(self, suffix: str = ".txt", *, nested: float = 0.3) -> str:
        """A path that nothing else uses; `nested`: how often it lies in a directory."""
        while True:
            path = self.rng.choice(STEMS) + suffix
            if self.rng.random() < nested:
                path = f"{self.rng.choice(DIRECTORIES)}/{path}"
            if self.claim(path):
                return path

    def new_path(self, suffix: str = ".txt") -> str:
        """A path at the top, for a file that the agent is to make."""
        return self.path(suffix, nested=0.0)

    def directory(self) -> str:
        """A directory name that nothing else uses."""
        while True:
            name = self.word()
            if self.claim(name):
                return name

    def claim(self, path: str) -> bool:
        """Reserve a path; False when it is taken."""
        if path in self.taken:
            return False
        self.taken.add(path)
        return True

    def file(self, lines: list[str], suffix: str = ".txt") -> str:
        """Put a file into the environment."""
        path = self.path(suffix)
        self.files[path] = "".join(f"{line}\n" for line in lines)
        return path


Primitive = Callable[[Draft], Requirement]


def _holds(path: str, lines: list[str]) -> Assertion:
    """The file's text is exactly these lines (trailing newlines aside)."""
    quoted = shlex.quote(f"/app/{path}")
    text = "\n".join(lines)
    return Assertion(f"{path} holds what it should", f'[ -f {quoted} ] && [ "$(<{quoted})" = {shlex.quote(text)} ]')


def _gone(path: str) -> Assertion:
    quoted = shlex.quote(f"/app/{path}")
    return Assertion(f"{path} is gone", f"[ ! -e {quoted} ] && [ ! -L {quoted} ]")


def _is(flag: str, path: str, what: str) -> Assertion:
    return Assertion(f"{path} is {what}", f"[ {flag} {shlex.quote(f'/app/{path}')} ]")


def write(d: Draft) -> Requirement:
    """Make a file with a word in it."""
    path, word = d.new_path(), d.word()
    sentence = d.say(f"Write the word {word} into {path}.", f"Create {path} with the word {word}.")
    return Requirement("write", sentence, (f"echo {word} > {path}",), (_holds(path, [word]),))


def append(d: Draft) -> Requirement:
    """Add a line at the end of a file."""
    held, word = d.words(2), d.word()
    path = d.file(held)
    sentence = d.say(f"Append the line {word} to {path}.", f"Add {word} as the last line of {path}.")
    return Requirement("append", sentence, (f"echo {word} >> {path}",), (_holds(path, [*held, word]),))


def copy(d: Draft) -> Requirement:
    """Copy a file."""
    held = d.words(2)
    source, target = d.file(held), d.new_path()
    sentence = d.say(f"Copy {source} to {target}.", f"Make a copy of {source} called {target}.")
    return Requirement("copy", sentence, (f"cp {source} {target}",), (_holds(target, held),))


def move(d: Draft) -> Requirement:
    """Rename a file."""
    held = d.words(2)
    source, target = d.file(held), d.new_path()
    sentence = d.say(f"Rename {source} to {target}.", f"Move {source} to {target}.")
    return Requirement("move", sentence, (f"mv {source} {target}",), (_holds(target, held), _gone(source)))


def delete(d: Draft) -> Requirement:
    """Remove a file."""
    path = d.file(d.words(1))
    sentence = d.say(f"Delete {path}.", f"Remove the file {path}.")
    return Requirement("delete", sentence, (f"rm {path}",), (_gone(path),))


def make_directory(d: Draft) -> Requirement:
    """Make a directory and its parent."""
    path = f"{d.directory()}/{d.word()}"
    sentence = d.say(f"Make the directory {path}.", f"Create a directory {path}.")
    return Requirement("mkdir", sentence, (f"mkdir -p {path}",), (_is("-d", path, "a directory"),))


def make_executable(d: Draft) -> Requirement:
    """Set the executable bit."""
    path = d.file(["echo hello"], ".sh")
    sentence = d.say(f"Make {path} executable.", f"Let {path} be run as a program.")
    return Requirement("chmod", sentence, (f"chmod +x {path}",), (_is("-x", path, "executable"),))


def protect(d: Draft) -> Requirement:
    """Set a mode."""
    path, mode = d.file(d.words(1)), d.rng.choice(("600", "640", "444"))
    quoted = shlex.quote(f"/app/{path}")
    test = Assertion(f"{path} has mode {mode}", f'[ "$(stat -c %a {quoted})" = {mode} ]')
    sentence = d.say(f"Set the mode of {path} to {mode}.", f"Give {path} the mode {mode}.")
    return Requirement("mode", sentence, (f"chmod {mode} {path}",), (test,))


def link(d: Draft) -> Requirement:
    """Make a symbolic link."""
    target, path = d.file(d.words(1)), d.new_path(".lnk")
    quoted = shlex.quote(f"/app/{path}")
    test = Assertion(
        f"{path} links to {target}", f"[ -L {quoted} ] && [ {quoted} -ef {shlex.quote(f'/app/{target}')} ]"
    )
    sentence = d.say(f"Make {path} a symbolic link to {target}.", f"Link {path} to {target}.")
    return Requirement("symlink", sentence, (f"ln -s {target} {path}",), (test,))


def sort(d: Draft) -> Requirement:
    """Sort lines."""
    held = d.words(4)
    while held == sorted(held):
        d.rng.shuffle(held)
    source, target = d.file(held), d.new_path()
    sentence = d.say(f"Sort the lines of {source} into {target}.", f"Put the sorted lines of {source} into {target}.")
    return Requirement("sort", sentence, (f"sort {source} > {target}",), (_holds(target, sorted(held)),))


def count(d: Draft) -> Requirement:
    """Count lines."""
    held = d.words(d.rng.randint(2, 9))
    source, target = d.file(held), d.new_path()
    sentence = d.say(f"Count the lines of {source} into {target}.", f"Write how many lines {source} has into {target}.")
    return Requirement("count", sentence, (f"wc -l < {source} > {target}",), (_holds(target, [str(len(held))]),))


def replace(d: Draft) -> Requirement:
    """Replace a word in place."""
    *held, new = d.words(4)
    path, old = d.file(held), held[1]
    after = [new if word == old else word for word in held]
    sentence = d.say(f"In {path} replace {old} with {new}.", f"Change {old} to {new} in {path}.")
    return Requirement("replace", sentence, (f"sed -i s/{old}/{new}/ {path}",), (_holds(path, after),))


def column(d: Draft) -> Requirement:
    """Take a column out of a CSV file."""
    rows = [d.words(3) for _ in range(3)]
    number = d.rng.randint(1, 3)
    source, target = d.file([",".join(row) for row in rows], ".csv"), d.new_path()
    sentence = d.say(
        f"Extract column {number} of {source} into {target}.", f"Put column {number} of {source} in {target}."
    )
    lines = (f"cut -d, -f{number} {source} > {target}",)
    return Requirement("column", sentence, lines, (_holds(target, [row[number - 1] for row in rows]),))


def concatenate(d: Draft) -> Requirement:
    """Join two files."""
    first, second = d.words(2), d.words(1)
    one, two, target = d.file(first), d.file(second), d.new_path()
    sentence = d.say(f"Join {one} and {two} into {target}.", f"Put {one} and then {two} into {target}.")
    return Requirement("concatenate", sentence, (f"cat {one} {two} > {target}",), (_holds(target, first + second),))


def head(d: Draft) -> Requirement:
    """Take the first lines."""
    held, number = d.words(5), d.rng.randint(2, 4)
    source, target = d.file(held), d.new_path()
    sentence = d.say(
        f"Put the first {number} lines of {source} into {target}.",
        f"Keep the top {number} lines of {source} in {target}.",
    )
    return Requirement("head", sentence, (f"head -n {number} {source} > {target}",), (_holds(target, held[:number]),))


def tail(d: Draft) -> Requirement:
    """Take the last lines."""
    held, number = d.words(5), d.rng.randint(2, 4)
    source, target = d.file(held), d.new_path()
    sentence = d.say(
        f"Put the last {number} lines of {source} into {target}.",
        f"Keep the bottom {number} lines of {source} in {target}.",
    )
    return Requirement("tail", sentence, (f"tail -n {number} {source} > {target}",), (_holds(target, held[-number:]),))


def unique(d: Draft) -> Requirement:
    """Drop repeated lines."""
    one, two, three = d.words(3)
    source, target = d.file([one, one, two, three, three]), d.new_path()
    sentence = d.say(f"Drop repeated lines of {source} into {target}.", f"Write {source} without repeats to {target}.")
    return Requirement("unique", sentence, (f"uniq {source} > {target}",), (_holds(target, [one, two, three]),))


def reverse(d: Draft) -> Requirement:
    """Reverse the lines."""
    held = d.words(3)
    source, target = d.file(held), d.new_path()
    sentence = d.say(f"Write {source} in reverse order to {target}.", f"Reverse the lines of {source} into {target}.")
    return Requirement("reverse", sentence, (f"tac {source} > {target}",), (_holds(target, held[::-1]),))


def filter_lines(d: Draft) -> Requirement:
    """Keep the lines with a word."""
    word, *others = d.words(6)
    held = [f"{word} {others[0]}", *others[1:4], f"{others[4]} {word}"]
    source, target = d.file(held), d.new_path()
    sentence = d.say(
        f"Put the lines of {source} with {word} into {target}.", f"Keep the lines with {word} of {source} in {target}."
    )
    return Requirement(
        "filter", sentence, (f"grep {word} {source} > {target}",), (_holds(target, [held[0], held[-1]]),)
    )


def find(d: Draft) -> Requirement:
    """Find a file by its name."""
    top, middle = d.directory(), d.word()
    name = f"{d.rng.choice(STEMS)}.log"
    d.files[f"{top}/{middle}/{name}"] = f"{d.word()}\n"
    target = d.new_path()
    sentence = d.say(
        f"Find {name} under {top} and write its path to {target}.", f"Write to {target} where {name} is in {top}."
    )
    lines = (f"find {top} -name {name} > {target}",)
    return Requirement("find", sentence, lines, (_holds(target, [f"{top}/{middle}/{name}"]),))


def archive(d: Draft) -> Requirement:
    """Pack a directory."""
    top, target = d.directory(), d.new_path(".tar")
    name = f"{d.rng.choice(STEMS)}.txt"
    d.files[f"{top}/{name}"] = f"{d.word()}\n"
    quoted = shlex.quote(f"/app/{target}")
    test = Assertion(f"{target} packs {top}", f"tar -tf {quoted} {top}/{name}")
    sentence = d.say(f"Pack the directory {top} into {target}.", f"Archive {top} as {target}.")
    return Requirement("archive", sentence, (f"tar -cf {target} {top}",), (test,))


def read_directory(d: Draft) -> Requirement:
    """A file names the directory to make."""
    name = d.directory()
    path = d.file([name], ".cfg")
    sentence = d.say(f"The file {path} names a directory. Make it.", f"Make the directory that {path} names.")
    lines = (f"cat {path}", f'mkdir "$(cat {path})"')
    return Requirement("read-mkdir", sentence, lines, (_is("-d", name, "a directory"),))


def read_delete(d: Draft) -> Requirement:
    """A file names the file to delete."""
    victim = d.file(d.words(1))
    path = d.file([victim], ".cfg")
    sentence = d.say(f"Delete the file that {path} names.", f"The file {path} names a file. Remove it.")
    return Requirement("read-delete", sentence, (f"cat {path}", f'rm "$(cat {path})"'), (_gone(victim),))


def read_copy(d: Draft) -> Requirement:
    """A file names the file to copy."""
    held = d.words(2)
    source, target = d.file(held), d.new_path()
    path = d.file([source], ".cfg")
    sentence = d.say(
        f"Copy the file that {path} names to {target}.", f"The file {path} names a file. Copy it to {target}."
    )
    return Requirement("read-copy", sentence, (f"cat {path}", f'cp "$(cat {path})" {target}'), (_holds(target, held),))


def read_write(d: Draft) -> Requirement:
    """A word to be read, then written with another."""
    word, other = d.words(2)
    path, target = d.file([word], ".cfg"), d.new_path()
    sentence = d.say(
        f"Write {other} and the word in {path} on one line of {target}.",
        f"Put {other} and the word of {path} into {target}.",
    )
    lines = (f"cat {path}", f'echo {other} "$(cat {path})" > {target}')
    return Requirement("read-write", sentence, lines, (_holds(target, [f"{other} {word}"]),))


def read_listing(d: Draft) -> Requirement:
    """The only file of a directory, whose name has to be looked up."""
    top, name = d.directory(), f"{d.rng.choice(STEMS)}.dat"
    held = d.words(1)
    d.files[f"{top}/{name}"] = f"{held[0]}\n"
    target = d.new_path()
    sentence = d.say(f"Rename the only file in {top} to {target}.", f"Move the one file of {top} to {target}.")
    lines = (f"ls {top}", f'mv {top}/"$(ls {top})" {target}')
    return Requirement("read-listing", sentence, lines, (_holds(target, held), _gone(f"{top}/{name}")))


def read_name(d: Draft) -> Requirement:
    """A file whose name has to be read."""
    word = d.word()
    target = d.new_path("")
    path = d.file([target], ".cfg")
    sentence = d.say(
        f"Write {word} into a file with the name in {path}.",
        f"The file {path} holds a name. Write {word} to a file of that name.",
    )
    lines = (f"cat {path}", f'echo {word} > "$(cat {path})"')
    return Requirement("read-name", sentence, lines, (_holds(target, [word]),))


PLAIN: tuple[Primitive, ...] = (
    write, append, copy, move, delete, make_directory, make_executable, protect, link, sort, count,
    replace, column, concatenate, head, tail, unique, reverse, filter_lines, find, archive,
)  # fmt: skip
"""All that is needed stands in the instruction."""
READS: tuple[Primitive, ...] = (read_directory, read_delete, read_copy, read_write, read_listing, read_name)
"""A needed value stands only in the sandbox."""
