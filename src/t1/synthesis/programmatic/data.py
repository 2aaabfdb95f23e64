# ruff: noqa: E501  (sentences and command lines stay in one piece)
"""Steps on tables in CSV, TSV, JSON and JSON lines: choosing, ordering, totals, joins, conversions."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from t1.synthesis.programmatic.scene import FORMATS, Lines, Move, Scene, Table, table_text
from t1.synthesis.programmatic.steps import Unfit, step

_PYTHON = "from json import *; import sys; a=sys.argv[1:]"


def _is_json(table: Table) -> bool:
    return table.format.startswith("json")


def _load(table: Table, variable: str = "r") -> str:
    """Python that reads a JSON table's rows."""
    if table.format == "jsonl":
        return f'{variable}=[loads(l) for l in open("{table.path}")]'
    return f'{variable}=load(open("{table.path}"))'


def _save(table: Table) -> str:
    """Python that writes the rows `r` as a JSON table."""
    if table.format == "jsonl":
        return f'open("{table.path}", "w").writelines(dumps(x) + "\\n" for x in r)'
    return f'dump(r, open("{table.path}", "w"), indent=1)'


def _python(s: Scene, *statements: str, arguments: str = "") -> str:
    """A one-line Python program."""
    s.needs.add("python3")
    return f"python3 -c {shlex.quote('; '.join([_PYTHON, *statements]))} {arguments}".rstrip()


def _awk(table: Table, program: str, variables: str = "") -> str:
    """An awk program over a CSV or TSV table."""
    mark = "," if table.format == "csv" else "\\t"
    between = f"-F'{mark}' -v OFS='{mark}'"
    return f"awk {between} {variables}{' ' if variables else ''}'{program}' {table.path}"


def _place(table: Table, column: str) -> int:
    return table.header.index(column) + 1


def _table(s: Scene, value: Table, rows: Sequence[tuple[str, ...]], header: Sequence[str] | None = None) -> Table:
    """A result in the same format, under a new name. One without rows, or the same again, is no result."""
    made = Table(s.name(f".{value.format}"), tuple(header or value.header), tuple(rows))
    if not made.rows or (made.header, made.rows) == (value.header, value.rows):
        raise Unfit
    return made


def _kept(s: Scene, v: Table, sentence: str, rows: list[tuple[str, ...]], awk: str, python: str, shell: str) -> Move:
    """The move of a step that keeps some rows: `awk` and `python` are conditions on a row."""
    if len(rows) == len(v.rows):
        raise Unfit
    made = _table(s, v, rows)
    if _is_json(v):
        line = _python(s, _load(v), f"r=[x for x in r if {python}]", _save(made), arguments=shell)
    else:
        line = f"{_awk(v, f'NR == 1 || {awk}', f'-v v={shell}')} > {made.path}"
    return s.made_table(sentence.format(source=v.path, target=made.path), (line,), made)


@step("data", "table", "table")
def rows_where(s: Scene, v: Table) -> Move:
    """Rows with a value."""
    if not v.text_columns:
        raise Unfit
    column = s.rng.choice(v.text_columns)
    wanted = s.rng.choice(sorted(set(v.column(column))))
    said, shell = s.given(column, wanted)
    index = v.header.index(column)
    sentence = s.say(
        f"Keep the rows of {{source}} whose {column} is {said}; the result is {{target}}, with the same columns.",
        f"Into {{target}} go only those rows of {{source}} that have {said} as their {column} (same format, same order).",
    )
    rows = [row for row in v.rows if row[index] == wanted]
    return _kept(s, v, sentence, rows, f'${index + 1} == v ""', f'x["{column}"] == a[0]', shell)


@step("data", "table", "table")
def rows_above(s: Scene, v: Table) -> Move:
    """Rows above a number."""
    if not v.number_columns:
        raise Unfit
    column = s.rng.choice(v.number_columns)
    values = sorted({int(x) for x in v.column(column)})
    if len(values) < 3:
        raise Unfit
    limit = s.rng.choice(values[:-1])
    said, shell = s.given("limit", str(limit))
    index = v.header.index(column)
    sentence = s.say(
        f"{{target}} gets the rows of {{source}} with a {column} above {said} (same format, same order).",
        f"Drop every row of {{source}} whose {column} is not greater than {said}; write what is left to {{target}}.",
    )
    rows = [row for row in v.rows if int(row[index]) > limit]
    return _kept(s, v, sentence, rows, f"${index + 1} + 0 > v + 0", f'x["{column}"] > int(a[0])', shell)


@step("data", "table", "table", 2)
def ordered(s: Scene, v: Table) -> Move:
    """Order by a number, equal ones as they were."""
    if not v.number_columns:
        raise Unfit
    column, down = s.rng.choice(v.number_columns), s.rng.random() < 0.5
    index = v.header.index(column)
    rows = sorted(v.rows, key=lambda row: int(row[index]) * (-1 if down else 1))
    made = _table(s, v, rows)
    way = "largest first" if down else "smallest first"
    sentence = s.say(
        f"Order the rows of {v.path} by {column}, {way}, into {made.path}; rows that tie stay in their order.",
        f"{made.path} has the rows of {v.path} sorted by {column} as a number ({way}; ties keep their order).",
    )
    if _is_json(v):
        line = _python(s, _load(v), f'r.sort(key=lambda x: {"-" if down else ""}x["{column}"])', _save(made))
        return s.made_table(sentence, (line,), made)
    mark, flags = ("," if v.format == "csv" else r"$'\t'"), "nr" if down else "n"
    sort = f"tail -n +2 {v.path} | LC_ALL=C sort -s -t {mark} -k{index + 1},{index + 1}{flags} >> {made.path}"
    return s.made_table(sentence, (f"head -n 1 {v.path} > {made.path}", sort), made)


@step("data", "table", "table")
def columns(s: Scene, v: Table) -> Move:
    """Some columns, in another order."""
    if len(v.header) < 3:
        raise Unfit
    some = s.rng.sample(v.header, s.rng.randint(2, len(v.header) - 1))
    if some[0] not in ("item", *v.text_columns):
        raise Unfit
    made = _table(s, v, list(zip(*(v.column(name) for name in some), strict=True)), some)
    listed = ", ".join(some)
    sentence = s.say(
        f"Of {v.path}, keep the columns {listed}, in this order, in {made.path}.",
        f"Make {made.path} (same format) from {v.path} with only these columns, in this order: {listed}.",
    )
    if _is_json(v):
        line = _python(s, _load(v), f"r=[{{k: x[k] for k in {json_list(some)}}} for x in r]", _save(made))
        return s.made_table(sentence, (line,), made)
    program = "{print " + ", ".join(f"${_place(v, name)}" for name in some) + "}"
    return s.made_table(sentence, (f"{_awk(v, program)} > {made.path}",), made)


def json_list(names: Sequence[str]) -> str:
    """A list of names as Python and JSON both read it."""
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


@step("data", "table", "table", 2)
def converted(s: Scene, v: Table) -> Move:
    """The same rows in another format."""
    target = s.rng.choice([f for f in FORMATS if f != v.format])
    made = replace(v, path=s.name(f".{target}"))
    named = {"csv": "CSV", "tsv": "tab-separated text with a header", "json": "a JSON list of objects",
             "jsonl": "JSON lines (one object a line)"}[target]  # fmt: skip
    numbers = ", ".join(v.number_columns)
    whole = f" Whole numbers ({numbers}) must be JSON numbers." if target.startswith("json") and numbers else ""
    sentence = s.say(f"Convert {v.path} to {named} as {made.path}.", f"Write {v.path} again as {named}: {made.path}.")
    if _is_json(v):
        load = _load(v)
    else:
        mark = "," if v.format == "csv" else "\\t"
        cast = f"{{k: int(y) if k in {json_list(v.number_columns)} else y for k, y in zip(h, x)}}"
        load = f'h, *q=[l.rstrip("\\n").split("{mark}") for l in open("{v.path}")]; r=[{cast} for x in q]'
    if target.startswith("json"):
        save = _save(made)
    else:
        mark = "," if target == "csv" else "\\t"
        save = f'print(*["{mark}".join(map(str, x)) for x in [r[0], *[x.values() for x in r]]], sep="\\n")'
    line = _python(s, load, save) + ("" if target.startswith("json") else f" > {made.path}")
    return s.made_table(sentence + whole, (line,), made)


@step("data", "table", "lines")
def total(s: Scene, v: Table) -> Move:
    """The sum of a column."""
    if not v.number_columns or len(v.rows) < 2:
        raise Unfit
    column = s.rng.choice(v.number_columns)
    path = s.name(".txt")
    sentence = s.say(
        f"Add up the column {column} of {v.path}; the sum alone goes to {path}.",
        f"Write the total of {column} over all rows of {v.path} to {path}.",
    )
    text = f"{sum(map(int, v.column(column)))}\n"
    if _is_json(v):
        return s.wrote(
            sentence, _python(s, _load(v), f'print(sum(x["{column}"] for x in r))') + f" > {path}", path, text
        )
    program = f"NR > 1 {{t += ${_place(v, column)}}} END {{print t}}"
    return s.wrote(sentence, f"{_awk(v, program)} > {path}", path, text)


@step("data", "table", "table", 3)
def totals(s: Scene, v: Table) -> Move:
    """The sum of a column for each group."""
    if not v.number_columns or not v.text_columns:
        raise Unfit
    by, column = s.rng.choice(v.text_columns), s.rng.choice(v.number_columns)
    sums: dict[str, int] = defaultdict(int)
    for group, number in zip(v.column(by), v.column(column), strict=True):
        sums[group] += int(number)
    if len(sums) < 2:
        raise Unfit
    made = _table(s, v, [(group, str(number)) for group, number in sorted(sums.items())], (by, column))
    sentence = s.say(
        f"For every {by} in {v.path}, add up {column}. Write the columns {by} and {column} to {made.path}, by {by} in byte order.",
        f"{made.path} (same format, columns {by} and {column}) has one row for each {by} of {v.path} with the sum of its {column}, sorted by {by}.",
    )
    if _is_json(v):
        code = f'r=[{{"{by}": g, "{column}": sum(x["{column}"] for x in r if x["{by}"] == g)}} for g in sorted({{x["{by}"] for x in r}})]'
        return s.made_table(sentence, (_python(s, _load(v), code, _save(made)),), made)
    start = f"{_awk(v, f'NR == 1 {{print ${_place(v, by)}, ${_place(v, column)}}}')} > {made.path}"
    program = f"NR > 1 {{t[${_place(v, by)}] += ${_place(v, column)}}} END {{for (g in t) print g, t[g]}}"
    return s.made_table(sentence, (start, f"{_awk(v, program)} | LC_ALL=C sort >> {made.path}"), made)


@step("data", "table", "lines", 2)
def extreme(s: Scene, v: Table) -> Move:
    """The row with the largest or the smallest number."""
    if not v.number_columns or len(v.rows) < 3:
        raise Unfit
    column, most = s.rng.choice(v.number_columns), s.rng.random() < 0.5
    numbers = [int(x) for x in v.column(column)]
    best = max(numbers) if most else min(numbers)
    if numbers.count(best) > 1:
        raise Unfit
    label, path = v.header[0], s.name(".txt")
    word = "largest" if most else "smallest"
    sentence = s.say(
        f"Which {label} of {v.path} has the {word} {column}? Write it to {path}.",
        f"Find the row of {v.path} with the {word} {column} and write its {label} to {path}.",
    )
    text = v.rows[numbers.index(best)][0] + "\n"
    if _is_json(v):
        code = f'print({"max" if most else "min"}(r, key=lambda x: x["{column}"])["{label}"])'
        return s.wrote(sentence, f"{_python(s, _load(v), code)} > {path}", path, text)
    n = _place(v, column)
    program = (
        f"NR == 2 || NR > 1 && ${n} + 0 {'>' if most else '<'} best {{best = ${n} + 0; name = $1}} END {{print name}}"
    )
    return s.wrote(sentence, f"{_awk(v, program)} > {path}", path, text)


@step("data", "table", "lines")
def values_of(s: Scene, v: Table) -> Move:
    """The distinct values of a column."""
    if not v.text_columns:
        raise Unfit
    column, path = s.rng.choice(v.text_columns), s.name(".txt")
    found = sorted(set(v.column(column)))
    sentence = s.say(
        f"List every different {column} of {v.path} in {path}, one a line, sorted (LC_ALL=C).",
        f"{path} has the distinct values of the column {column} of {v.path}, in byte order, one a line.",
    )
    text = "".join(f"{x}\n" for x in found)
    if _is_json(v):
        code = f'print(*sorted({{x["{column}"] for x in r}}), sep="\\n")'
        return s.wrote(sentence, f"{_python(s, _load(v), code)} > {path}", path, text)
    command = f"{_awk(v, f'NR > 1 {{print ${_place(v, column)}}}')} | LC_ALL=C sort -u > {path}"
    return s.wrote(sentence, command, path, text)


@step("data", "table", "table", 3)
def joined(s: Scene, v: Table) -> Move:
    """A second table, looked up by the first column."""
    if v.header[0] != "item" or "shelf" in v.header or len(v.rows) < 3:
        raise Unfit
    keys = v.column("item")
    known = s.rng.sample(keys, max(2, len(keys) * 2 // 3))
    shelves = {key: s.rng.choice(s.words(4)) for key in [*known, *(w for w in s.words(3) if w not in keys)]}
    order = sorted(shelves, key=lambda key: s.rng.random())
    other = Table(s.name(f".{v.format}"), ("item", "shelf"), tuple((key, shelves[key]) for key in order))
    s.files[other.path] = other.text()
    rows = [(*row, shelves[row[0]]) for row in v.rows if row[0] in shelves]
    made = _table(s, v, rows, (*v.header, "shelf"))
    sentence = s.say(
        f"{other.path} tells the shelf of some items. Add it as a last column shelf to the rows of {v.path} and write them to "
        f"{made.path}; rows whose item it lacks are left out.",
        f"Join {v.path} with {other.path} on item into {made.path}: the rows of {v.path} that are in both, in their order, "
        f"with shelf as the last column.",
    )
    if _is_json(v):
        code = 'd={x["item"]: x["shelf"] for x in q}; r=[{**x, "shelf": d[x["item"]]} for x in r if x["item"] in d]'
        return s.made_table(sentence, (_python(s, _load(v), _load(other, "q"), code, _save(made)),), made)
    mark = "," if v.format == "csv" else "\\t"
    program = "FNR == NR {d[$1] = $2; next} $1 in d {print $0, d[$1]}"
    line = f"awk -F'{mark}' -v OFS='{mark}' '{program}' {other.path} {v.path} > {made.path}"
    return s.made_table(sentence, (line,), made)


@step("data", "lines", "table", 2)
def tabulated(s: Scene, v: Lines) -> Move:
    """Lines of three words as a table."""
    rows = [tuple(line.split()) for line in v.lines]
    if any(len(row) != 3 or not row[2].isdigit() for row in rows):
        raise Unfit
    format_ = s.rng.choice(("csv", "tsv"))
    header = ("item", s.rng.choice(("city", "team", "crop")), s.rng.choice(("count", "score")))
    made = Table(s.name(f".{format_}"), header, tuple((a, b, c) for a, b, c in rows))
    named = "CSV" if format_ == "csv" else "tab-separated"
    sentence = s.say(
        f"Turn {v.path} into the {named} file {made.path}: its three words a line become the columns {', '.join(header)}.",
        f"Make a {named} table {made.path} with the header {', '.join(header)} from the lines of {v.path} (three words each).",
    )
    mark = "," if format_ == "csv" else "\\t"
    line = f"awk -v OFS='{mark}' 'BEGIN {{print {', '.join(json_list(header)[1:-1].split(', '))}}} {{print $1, $2, $3}}' {v.path} > {made.path}"
    assert made.text() == table_text(format_, header, made.rows)
    return s.made_table(sentence, (line,), made)
