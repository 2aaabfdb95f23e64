"""A task in the making: its files, the names that are taken, and what each step adds to it.

Boundary: contents and names only; what they are used for is the steps' affair. The same random stream gives the same
scene.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from t1.tasks.vocabulary import WORDS

_TWICE = re.compile(r"\b(?:the )?(octal )?(\w+) the \2 given in")
FORMATS = ("csv", "tsv", "json", "jsonl")
COLUMNS = ("city", "team", "shop", "crop", "ship", "tool")
NUMBERS = ("count", "price", "score", "stock", "weight")
STEMS = tuple(
    """
    ledger roster survey census tally journal invoice harvest voyage catalog register schedule inventory archive
    quarter depot garden harbor kitchen library market museum orchard studio workshop station bakery foundry
    """.split()
)
QUALIFIERS = tuple(
    "main daily weekly early late upper lower inner outer final first spare local remote public signed plain".split()
)


@dataclass(frozen=True, slots=True)
class Lines:
    """A text file."""

    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A file of rows with a header, in one of FORMATS. The first column names the row, the last two are integers."""

    path: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def format(self) -> str:
        """csv, tsv, json or jsonl."""
        return self.path.rpartition(".")[2]

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns of words, by which rows are chosen and grouped."""
        return tuple(name for name in self.header[1:] if name not in NUMBERS)

    @property
    def number_columns(self) -> tuple[str, ...]:
        """Columns of integers."""
        return tuple(name for name in self.header if name in NUMBERS)

    def column(self, name: str) -> list[str]:
        """The values of a column, top to bottom."""
        index = self.header.index(name)
        return [row[index] for row in self.rows]

    def text(self) -> str:
        """The file's content."""
        return table_text(self.format, self.header, self.rows)


@dataclass(frozen=True, slots=True)
class Tree:
    """A directory of files."""

    path: str
    files: tuple[tuple[str, str], ...]
    """(name below `path`, content), sorted by name."""


Value = Lines | Table | Tree


@dataclass(frozen=True, slots=True)
class Check:
    """One assertion: a name and a bash command that succeeds where it holds."""

    name: str
    test: str


@dataclass(frozen=True, slots=True)
class Move:
    """What one step adds to a task."""

    sentence: str
    lines: tuple[str, ...]
    """The reference solution's commands, relative to /app."""
    checks: tuple[Check, ...]
    value: Value | None = None
    """What a next step may work on; None ends the chain."""
    output: str = ""
    """The text file that it made, for a further requirement on it; empty where there is none."""


def table_text(format_: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows in one of FORMATS; integers are numbers in JSON."""
    if format_ in ("csv", "tsv"):
        mark = "," if format_ == "csv" else "\t"
        return "".join(mark.join(row) + "\n" for row in (header, *rows))
    objects = [{n: int(v) if n in NUMBERS else v for n, v in zip(header, row, strict=True)} for row in rows]
    if format_ == "jsonl":
        return "".join(json.dumps(each) + "\n" for each in objects)
    return json.dumps(objects, indent=1) + "\n"


@dataclass(slots=True)
class Scene:
    """The environment of a task, and the assertions' expected files."""

    rng: Random
    files: dict[str, str | bytes] = field(default_factory=dict)
    """Path under /app → content."""
    runs: list[str] = field(default_factory=list)
    """Dockerfile RUN lines."""
    expected: dict[str, str] = field(default_factory=dict)
    """Path under /tests → content."""
    taken: set[str] = field(default_factory=set)
    format: str = "csv"
    size: int = 8
    """Rows, lines or files of a source."""
    observe: bool = False
    """Whether the step at hand hides its value in a file."""
    needs: set[str] = field(default_factory=set)
    """Programs beyond coreutils, awk and sed."""

    def claim(self, path: str) -> bool:
        """Reserve a path; False where it is taken."""
        if path in self.taken:
            return False
        self.taken.add(path)
        return True

    def name(self, suffix: str = "") -> str:
        """A name that nothing else has."""
        while True:
            stem = self.rng.choice(STEMS)
            name = stem if self.rng.random() < 0.4 else f"{self.rng.choice(QUALIFIERS)}-{stem}"
            if self.claim(name):
                self.taken.add(name + suffix)
                return name + suffix

    def words(self, count: int) -> list[str]:
        """Distinct words."""
        return self.rng.sample(WORDS, count)

    def say(self, *wordings: str) -> str:
        """One of several wordings; what `given` names is not named twice ("the suffix the suffix given in …")."""
        return _TWICE.sub(lambda found: f"the {found[1] or ''}{found[2]} given in", self.rng.choice(wordings))

    def given(self, what: str, value: str) -> tuple[str, str]:
        """(how the instruction refers to a value, how the shell gets it): stated, or in a file to be read."""
        if not self.observe:
            return f'"{value}"' if not value.isdigit() else value, shlex.quote(value)
        path = f"settings/{self.name('.cfg')}"
        self.files[path] = f"{value}\n"
        return f"the {what} given in {path}", f'"$(cat {path})"'

    def lines(self, count: int | None = None) -> Lines:
        """A source of text: lines of two words and a number, some of them twice."""
        path, count = self.name(".txt"), count or self.size
        first = self.rng.sample(WORDS, min(count, 6))
        made = [f"{self.rng.choice(first)} {self.rng.choice(WORDS)} {self.rng.randint(2, 99)}" for _ in range(count)]
        made += self.rng.sample(made, max(1, count // 5))
        self.rng.shuffle(made)
        return self.put(Lines(path, tuple(made)))

    def table(self) -> Table:
        """A source of rows."""
        path = self.name(f".{self.format}")
        kinds, numbers = self.rng.sample(COLUMNS, 2), self.rng.sample(NUMBERS, 2)
        groups = [self.words(3) for _ in kinds]
        keys = self.words(self.size)
        rows = [
            (key, *(self.rng.choice(group) for group in groups), *(str(self.rng.randint(2, 400)) for _ in numbers))
            for key in keys
        ]
        table = Table(path, ("item", *kinds, *numbers), tuple(rows))
        self.files[path] = table.text()
        return table

    def tree(self) -> Tree:
        """A source of files, in two levels, of three kinds, of different sizes."""
        top = self.name()
        inner = self.words(2)
        files: dict[str, str] = {}
        for number in range(max(5, self.size)):
            folder = self.rng.choice(("", f"{inner[0]}/", f"{inner[1]}/"))
            kind = ("log", "txt", "md")[number % 3]
            name = f"{folder}{self.rng.choice(WORDS)}{number}.{kind}"
            files[name] = "".join(f"{self.rng.choice(WORDS)} {self.rng.choice(WORDS)}\n" for _ in range(number % 4 + 1))
        self.files |= {f"{top}/{name}": content for name, content in files.items()}
        return Tree(top, tuple(sorted(files.items())))

    def source(self, kind: str) -> Value:
        """A source of the kind that a step takes: lines, table or tree."""
        return self.table() if kind == "table" else self.tree() if kind == "tree" else self.lines()

    def put(self, value: Lines) -> Lines:
        """Let a text be in the environment."""
        self.files[value.path] = "".join(f"{line}\n" for line in value.lines)
        return value

    def holds(self, path: str, text: str) -> tuple[Check, ...]:
        """Assertions that the file says `text` (trailing newlines aside): the same lines, and in the same order.

        The number of lines alone is no assertion: whoever writes anything of that length would be paid for it.
        """
        number = f"expected/{len(self.expected):02d}"
        self.expected[number] = text
        file, want = shlex.quote(f"/app/{path}"), f"/tests/{number}"
        same = f'[ -f {file} ] && [ "$(cat {file})" = "$(cat {want})" ]'
        lines = f'[ -f {file} ] && [ "$(LC_ALL=C sort {file})" = "$(LC_ALL=C sort {want})" ]'
        if text.count("\n") < 2:
            return (Check(f"{path} holds what it should", same),)
        return (Check(f"{path} has the right lines, in any order", lines), Check(f"{path} holds what it should", same))

    def holds_json(self, path: str, text: str) -> tuple[Check, ...]:
        """Assertions that a JSON file says the same as `text`, however it is spaced."""
        number = f"expected/{len(self.expected):02d}"
        self.expected[number] = text
        self.needs.add("python3")
        self.expected["same.py"] = _SAME
        file = shlex.quote(f"/app/{path}")
        rows = f"[ -f {file} ] && python3 /tests/same.py {file} /tests/{number} rows"
        same = f"[ -f {file} ] && python3 /tests/same.py {file} /tests/{number} content"
        return Check(f"{path} has the right rows, in any order", rows), Check(f"{path} holds what it should", same)

    def wrote(
        self, sentence: str, line: str | tuple[str, ...], path: str, text: str, value: Value | None = None
    ) -> Move:
        """The move of a step that makes one text file."""
        lines = (line,) if isinstance(line, str) else line
        made = value if value is not None else Lines(path, tuple(text.splitlines()))
        return Move(sentence, lines, self.holds(path, text), made, path)

    def made_table(self, sentence: str, lines: tuple[str, ...], table: Table) -> Move:
        """The move of a step that makes a table."""
        check = self.holds_json if table.format.startswith("json") else self.holds
        return Move(sentence, lines, check(table.path, table.text()), table, table.path)


_SAME = '''"""same.py FILE EXPECTED rows|content: whether two JSON files, or files of JSON lines, say the same."""
import json, sys

def read(path, lines):
    with open(path) as file:
        return [json.loads(line) for line in file if line.strip()] if lines else json.load(file)

found, wanted = (read(path, sys.argv[1].endswith(".jsonl")) for path in sys.argv[1:3])
if sys.argv[3] == "rows":
    found, wanted = (sorted(json.dumps(row, sort_keys=True) for row in rows) for rows in (found, wanted))
same = found == wanted
sys.exit(not same)
'''


def is_empty(value: Value) -> bool:
    """Whether nothing is left to work on."""
    match value:
        case Lines(lines=lines):
            return not lines
        case Table(rows=rows):
            return not rows
        case Tree(files=files):
            return not files


def renamed(table: Table, path: str) -> Table:
    """The same table in another file."""
    return replace(table, path=path)
