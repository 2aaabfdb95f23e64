# ruff: noqa: E501  (sentences and command lines stay in one piece)
"""Steps on lines of text: sorting, counting, choosing, changing. Everything is in byte order, and says so."""

from __future__ import annotations

from collections import Counter

from t1.synthesis.programmatic.scene import Lines, Move, Scene
from t1.synthesis.programmatic.steps import Unfit, step


def _write(s: Scene, sentence: str, command: str, made: list[str], value: Lines) -> Move:
    """The result of a filter as a new file; what changes nothing, or leaves nothing, is no step."""
    if not made or made == list(value.lines):
        raise Unfit
    path = s.name(".txt")
    text = "".join(f"{line}\n" for line in made)
    return s.wrote(sentence.format(source=value.path, target=path), f"{command} {value.path} > {path}", path, text)


@step("text", "lines", "lines")
def sorted_lines(s: Scene, v: Lines) -> Move:
    """Sort."""
    wording = s.say(
        "Sort the lines of {source} by their bytes (LC_ALL=C) into {target}.",
        "Write the lines of {source}, sorted in the C locale, to {target}.",
    )
    return _write(s, wording, "LC_ALL=C sort", sorted(v.lines), v)


@step("text", "lines", "lines")
def reversed_sort(s: Scene, v: Lines) -> Move:
    """Sort from the end."""
    wording = s.say(
        "Put the lines of {source} into {target}, in descending order of their bytes (LC_ALL=C).",
        "Sort {source} backwards, from last to first in the C locale, into {target}.",
    )
    return _write(s, wording, "LC_ALL=C sort -r", sorted(v.lines, reverse=True), v)


@step("text", "lines", "lines")
def distinct(s: Scene, v: Lines) -> Move:
    """Drop repeats, keeping the order."""
    wording = s.say(
        "Some lines of {source} occur more than once. Keep the first of each, in their order, in {target}.",
        "Copy {source} to {target} without the lines that already came before; leave the order alone.",
    )
    return _write(s, wording, "awk '!seen[$0]++'", list(dict.fromkeys(v.lines)), v)


@step("text", "lines", "lines")
def turned(s: Scene, v: Lines) -> Move:
    """Last line first."""
    wording = s.say(
        "Turn {source} upside down into {target}: last line first.",
        "Write {source} backwards, line by line, to {target}.",
    )
    return _write(s, wording, "tac", list(v.lines[::-1]), v)


@step("text", "lines", "lines")
def first_lines(s: Scene, v: Lines) -> Move:
    """Head."""
    n = s.rng.randint(2, max(2, len(v.lines) - 2))
    said, shell = s.given("number of lines", str(n))
    wording = s.say(f"Copy the first lines of {{source}} to {{target}}. The number of lines is {said}.",
                    f"Write the beginning of {{source}} to {{target}} and stop after this many lines: {said}.")  # fmt: skip
    return _write(s, wording, f"head -n {shell}", list(v.lines[:n]), v)


@step("text", "lines", "lines")
def last_lines(s: Scene, v: Lines) -> Move:
    """Tail."""
    n = s.rng.randint(2, max(2, len(v.lines) - 2))
    said, shell = s.given("number of lines", str(n))
    wording = s.say(f"Copy the last lines of {{source}} to {{target}}. The number of lines is {said}.",
                    f"Write the end of {{source}} to {{target}}, keeping this many lines: {said}.")  # fmt: skip
    return _write(s, wording, f"tail -n {shell}", list(v.lines[-n:]), v)


def _word(s: Scene, v: Lines) -> str:
    """A word of some of the lines."""
    found = Counter(word for line in v.lines for word in set(line.split()) if word.isalpha())
    some = sorted(word for word, count in found.items() if count < len(v.lines))
    if not some:
        raise Unfit
    return s.rng.choice(some)


@step("text", "lines", "lines")
def lines_with(s: Scene, v: Lines) -> Move:
    """Lines that have a word."""
    word = _word(s, v)
    said, shell = s.given("word", word)
    wording = s.say(f"Which lines of {{source}} contain the word {said}? Put them into {{target}}, in their order.",
                    f"From {{source}}, copy the lines in which {said} stands as a whole word to {{target}}.")  # fmt: skip
    return _write(s, wording, f"grep -wF -- {shell}", [line for line in v.lines if word in line.split()], v)


@step("text", "lines", "lines")
def lines_without(s: Scene, v: Lines) -> Move:
    """Lines that lack a word."""
    word = _word(s, v)
    said, shell = s.given("word", word)
    wording = s.say(f"Leave out every line of {{source}} that has {said} as a whole word; the rest goes to {{target}}.",
                    f"{{target}} is {{source}} without the lines in which {said} stands as a whole word.")  # fmt: skip
    return _write(s, wording, f"grep -vwF -- {shell}", [line for line in v.lines if word not in line.split()], v)


@step("text", "lines", "lines", 2)
def replaced(s: Scene, v: Lines) -> Move:
    """One word for another, everywhere."""
    old = _word(s, v)
    new = s.rng.choice([w for w in s.words(30) if all(w not in line for line in v.lines)])
    said, shell = s.given("replacement", new)
    wording = s.say(f'Write {{source}} to {{target}} with {said} wherever the word "{old}" stands.',
                    f'Put {said} in place of every "{old}" (as a whole word) of {{source}}; the result is {{target}}.')  # fmt: skip
    made = [" ".join(new if word == old else word for word in line.split(" ")) for line in v.lines]
    code = f"'{{for (i = 1; i <= NF; i++) if ($i == \"{old}\") $i = new; print}}'"
    return _write(s, wording, f"awk -v new={shell} {code}", made, v)


@step("text", "lines", "lines", 2)
def numbered(s: Scene, v: Lines) -> Move:
    """A number before each line."""
    mark = s.rng.choice((":", ")", " -", "."))
    wording = s.say(f'Number the lines of {{source}} from 1 on into {{target}}: the number, "{mark}", one space, the line.',
                    f'{{target}} has the lines of {{source}} behind their line number, "{mark}" and one space.')  # fmt: skip
    made = [f"{n}{mark} {line}" for n, line in enumerate(v.lines, 1)]
    return _write(s, wording, f"awk '{{print NR \"{mark} \" $0}}'", made, v)


@step("text", "lines", "lines")
def capitals(s: Scene, v: Lines) -> Move:
    """Upper case."""
    wording = s.say(
        "Write {source} in capital letters (A to Z) to {target}.",
        "{target} is {source} with a to z turned into A to Z.",
    )
    made = [line.upper() for line in v.lines]
    if made == list(v.lines):
        raise Unfit
    path = s.name(".txt")
    command = f"LC_ALL=C tr a-z A-Z < {v.path} > {path}"
    text = "".join(f"{line}\n" for line in made)
    return s.wrote(wording.format(source=v.path, target=path), command, path, text)


@step("text", "lines", "lines")
def word_of_each(s: Scene, v: Lines) -> Move:
    """One word of every line."""
    width = min(len(line.split()) for line in v.lines)
    if width < 2:
        raise Unfit
    n = s.rng.randint(1, width)
    said, shell = s.given("position", str(n))
    wording = s.say(f"Of every line of {{source}}, write the word at position {said} (the first is 1) to {{target}}.",
                    f"{{target}} lists one word a line of {{source}}: the one at position {said}, counted from 1.")  # fmt: skip
    return _write(s, wording, f"awk -v n={shell} '{{print $n}}'", [line.split()[n - 1] for line in v.lines], v)


@step("text", "lines", "lines", 2)
def frequencies(s: Scene, v: Lines) -> Move:
    """How often each first word occurs."""
    counted = Counter(line.split()[0] for line in v.lines if line.strip())
    if max(counted.values(), default=1) < 2:
        raise Unfit
    path = s.name(".txt")
    wording = s.say(
        f'How often does each first word of a line occur in {v.path}? Write "word count" lines to {path}, by word in byte order.',
        f"Count the first words of the lines of {v.path}: one line each in {path}, the word, a space, how often, sorted (LC_ALL=C).",
    )
    text = "".join(f"{word} {count}\n" for word, count in sorted(counted.items()))
    command = f"awk 'NF {{n[$1]++}} END {{for (w in n) print w, n[w]}}' {v.path} | LC_ALL=C sort > {path}"
    return s.wrote(wording, command, path, text)


@step("text", "lines", "lines", 2)
def longest(s: Scene, v: Lines) -> Move:
    """The longest line."""
    length = max(map(len, v.lines))
    some = [line for line in v.lines if len(line) == length]
    if len(v.lines) < 3 or len(set(some)) > 1:
        raise Unfit
    path = s.name(".txt")
    wording = s.say(
        f"Find the longest line of {v.path} and write it, once, to {path}.",
        f"{path} must hold the line of {v.path} with the most characters (once).",
    )
    command = f"awk 'length($0) > length(best) {{best = $0}} END {{print best}}' {v.path} > {path}"
    return s.wrote(wording, command, path, some[0] + "\n")


@step("text", "lines", "lines")
def how_many(s: Scene, v: Lines) -> Move:
    """Count lines."""
    path = s.name(".txt")
    wording = s.say(
        f"Write the number of lines of {v.path} to {path}.",
        f"How many lines has {v.path}? The number alone goes to {path}.",
    )
    return s.wrote(wording, f"wc -l < {v.path} > {path}", path, f"{len(v.lines)}\n")


@step("text", "lines", "tree", 2)
def split_up(s: Scene, v: Lines) -> Move:
    """A file for each first word."""
    groups: dict[str, list[str]] = {}
    for line in v.lines:
        first = line.split()[0]
        if not first.isalpha() or not first.isascii() or first != first.lower():
            raise Unfit
        groups.setdefault(first, []).append(line)
    if len(groups) < 2:
        raise Unfit
    from t1.synthesis.programmatic.scene import Tree

    top = s.name()
    files = tuple(sorted((f"{word}.txt", "".join(f"{line}\n" for line in lines)) for word, lines in groups.items()))
    checks = tuple(check for name, content in files for check in s.holds(f"{top}/{name}", content)[-1:])
    wording = s.say(
        f"Split {v.path} by the first word of its lines: {top}/WORD.txt gets the lines that begin with WORD, in their order.",
        f"Make the directory {top} with one file WORD.txt for every first word in {v.path}, holding that word's lines in order.",
    )
    lines = (f"mkdir -p {top}", f'awk \'{{print > ("{top}/" $1 ".txt")}}\' {v.path}')
    return Move(wording, lines, checks, Tree(top, files))
