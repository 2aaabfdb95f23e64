# ruff: noqa: E501 (texts of tasks)
"""Tasks about records and reports that no probe was tuned on: written after the others, from the definitions alone."""

from __future__ import annotations

import hashlib

from tests.labelled.drafts import (
    HIDDEN,
    LEAK,
    SHORTCUT,
    WEAK,
    Base,
    fault,
    pytest_style,
    script_style,
    shell,
    unittest_style,
)


def _home(folder: str) -> str:
    """A Dockerfile whose files lie below another directory than /app."""
    return f"FROM debian:bookworm-slim\nWORKDIR {folder}\nCOPY files/ {folder}/\n"


_ORDERS = """order,region,qty,unit_price
9001,north,@q@,2.50
9002,south,1,19.00
9003,north,4,@p@
9004,west,10,0.75
9005,south,2,8.25
"""
_ORDERS_SOLVE = """python3 - <<'PY'
import csv, json
from collections import defaultdict
totals = defaultdict(lambda: {"orders": 0, "revenue": 0.0})
with open("/srv/shop/orders.csv", newline="") as handle:
    for row in csv.DictReader(handle):
        entry = totals[row["region"]]
        entry["orders"] += 1
        entry["revenue"] += int(row["qty"]) * float(row["unit_price"])
json.dump(totals, open("/srv/shop/report.json", "w"))
PY
"""
_ORDERS_TEST = """
import json
import math


def load():
    with open("/srv/shop/report.json") as handle:
        return json.load(handle)


def test_every_region_is_there():
    assert set(load()) == {"north", "south", "west"}


def test_orders():
    report = load()
    assert [report[name]["orders"] for name in ("north", "south", "west")] == [2, 2, 1]


def test_revenue():
    report = load()
    wanted = {"north": @q@ * 2.5 + 4 * @p@, "south": 35.5, "west": 7.5}
    for name, value in wanted.items():
        assert math.isclose(report[name]["revenue"], value, abs_tol=0.001), name
"""

_SHEET_A = "mon ada 01:30\nmon ben 00:45\ntue ada @t@\n"
_SHEET_B = "wed ben 02:20\nwed cho 00:05\nthu cho @u@\n"
_SHEETS_SOLVE = """cat /data/timesheets/*.txt | awk '
  { split($3, t, ":"); minutes[$2] += t[1] * 60 + t[2] }
  END { for (name in minutes) printf "%s,%02d:%02d\\n", name, int(minutes[name] / 60), minutes[name] % 60 }
' | LC_ALL=C sort > /data/totals.csv
"""


def _clock(*parts: str) -> str:
    """The sum of some HH:MM."""
    minutes = sum(int(part[:2]) * 60 + int(part[3:]) for part in parts)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


_COMMITS = """a1f0|feat|@f@
b77c|fix|crash when the list is empty
c003|docs|spelling
d9e1|feat|export as yaml
e210|fix|@x@
"""
_CHANGES_SOLVE = """cd /repo-notes
{
  echo '## Features'
  grep '|feat|' commits.txt | cut -d'|' -f3 | sed 's/^/- /'
  echo '## Fixes'
  grep '|fix|' commits.txt | cut -d'|' -f3 | sed 's/^/- /'
} > CHANGES.md
"""
_CHANGES_TEST = """
from pathlib import Path

lines = [line.rstrip() for line in Path("/repo-notes/CHANGES.md").read_text().splitlines() if line.strip()]
assert lines == [
    "## Features",
    "- @f@",
    "- export as yaml",
    "## Fixes",
    "- crash when the list is empty",
    "- @x@",
], lines
"""

_INVENTORY = "sku;name;quantity\nA-17;bolt;@n@\nB-02;washer;1200\nC-55;hinge;36\n"
_INVENTORY_SOLVE = """python3 - <<'PY'
import csv, sqlite3
db = sqlite3.connect("/app/inventory.db")
db.execute("CREATE TABLE items (sku TEXT PRIMARY KEY, name TEXT, quantity INTEGER)")
with open("/app/inventory.csv", newline="") as handle:
    rows = [(r["sku"], r["name"], int(r["quantity"])) for r in csv.DictReader(handle, delimiter=";")]
db.executemany("INSERT INTO items VALUES (?, ?, ?)", rows)
db.commit()
PY
"""
_INVENTORY_TEST = """
import sqlite3
import unittest


class TestInventory(unittest.TestCase):
    def setUp(self):
        self.db = sqlite3.connect("file:/app/inventory.db?mode=ro", uri=True)

    def tearDown(self):
        self.db.close()

    def test_rows(self):
        rows = self.db.execute("SELECT sku, name, quantity FROM items ORDER BY sku").fetchall()
        self.assertEqual(rows, [("A-17", "bolt", @n@), ("B-02", "washer", 1200), ("C-55", "hinge", 36)])

    def test_sku_is_the_key(self):
        columns = {row[1]: row for row in self.db.execute("PRAGMA table_info(items)")}
        self.assertEqual(columns["sku"][5], 1)
"""

_SAMPLES = "3\n17\n@s@\n12\n4\n29\n21\n8\n"
_BINS_SOLVE = """awk '{ b = int($1 / 10); n[b]++; if (b > top) top = b }
END { for (i = 0; i <= top; i++) printf "%d-%d %d\\n", i * 10, i * 10 + 9, n[i] }' /app/samples.txt > /app/bins.txt
"""


def _bins(sample: int) -> str:
    """What the solution of the histogram prints, with _ for the space."""
    samples = [3, 17, sample, 12, 4, 29, 21, 8]
    return " ".join(f"{low}-{low + 9}_{sum(low <= s < low + 10 for s in samples)}" for low in (0, 10, 20))


_BINS_TEST = """
import os
import unittest


class TestBins(unittest.TestCase):
    def test_bins(self):
        values = [3, 17, @s@, 12, 4, 29, 21, 8]
        wanted = [f"{low}-{low + 9} {sum(low <= v < low + 10 for v in values)}" for low in range(0, 30, 10)]
        with open("/app/bins.txt") as handle:
            self.assertEqual(handle.read().split("\\n")[:-1], wanted)
"""

_PARTS = {
    "blob/one.bin": "alpha @w@\n",
    "blob/two.bin": "beta\n",
    "blob/three.bin": "gamma\n",
    "blob/four.bin": "delta\n",
}


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


_MANIFEST = f"@d@  one.bin\n{_sum('beta')}  two.bin\n{_sum('gamma' + chr(10))}  three.bin\n{_sum('DELTA')}  four.bin\n"
_CORRUPT_SOLVE = "cd /app/blob && sha256sum -c ../manifest.sha256 2>/dev/null | sed -n 's/: FAILED$//p' | LC_ALL=C sort > /app/corrupt.txt\n"

BASES = (
    Base(
        "u-orders-by-region",
        "The shop exports its orders to /srv/shop/orders.csv (columns: order, region, qty, unit_price).\n\n"
        "Produce /srv/shop/report.json. It is a JSON object with one key per region; each value is an object with\n\n"
        "* `orders`: how many orders the region has\n* `revenue`: the sum of qty times unit_price, as a number",
        pytest_style(_ORDERS_TEST),
        _ORDERS_SOLVE,
        {"orders.csv": _ORDERS},
        {
            "q": ("3", "7", "12"),
            "p": ("5.25", "1.80", "30.00"),
            "r": lambda v: f"{int(v['q']) * 2.5 + 4 * float(v['p']):.1f}",
        },
        _home("/srv/shop"),
        faults=(
            fault(
                HIDDEN,
                (
                    "tests/test_outputs.py",
                    "    report = load()\n    wanted",
                    '    report = load()\n    assert all(entry["currency"] == "EUR" for entry in report.values())\n    wanted',
                ),
                ("solve", '{"orders": 0, "revenue": 0.0}', '{"orders": 0, "revenue": 0.0, "currency": "EUR"}'),
            ),
            fault(
                LEAK,
                (
                    "files/.cache/last-report.json",
                    "",
                    '{"north": {"orders": 2, "revenue": @r@}, "south": {"orders": 2, "revenue": 35.5}, "west": {"orders": 1, "revenue": 7.5}}',
                ),
            ),
            fault(
                WEAK,
                (
                    "tests/test_outputs.py",
                    'assert [report[name]["orders"] for name in ("north", "south", "west")] == [2, 2, 1]',
                    'assert all("orders" in entry for entry in report.values())',
                ),
                (
                    "tests/test_outputs.py",
                    'math.isclose(report[name]["revenue"], value, abs_tol=0.001), name',
                    'isinstance(report[name]["revenue"], (int, float)), value',
                ),
            ),
            fault(
                SHORTCUT,
                (
                    "solve",
                    "",
                    "cat > /srv/shop/report.json <<'JSON'\n"
                    '{"north": {"orders": 2, "revenue": @r@}, "south": {"orders": 2, "revenue": 35.5}, "west": {"orders": 1, "revenue": 7.5}}\nJSON\n',
                ),
            ),
        ),
    ),
    Base(
        "u-timesheets",
        "People write their hours into the files of /data/timesheets, a line for each piece of work: day, person, duration (HH:MM).\n"
        "Add up what each person worked over all the files and write /data/totals.csv: lines `person,HH:MM` (two digits each, no "
        "header), sorted by person.",
        shell("""
check 'ada' 'grep -qx "ada,@a@" /data/totals.csv'
check 'ben' 'grep -qx "ben,03:05" /data/totals.csv'
check 'cho' 'grep -qx "cho,@c@" /data/totals.csv'
check 'three lines in order' '[ "$(cut -d, -f1 /data/totals.csv | tr "\\n" " ")" = "ada ben cho " ]'
"""),
        _SHEETS_SOLVE,
        {"timesheets/week-a.txt": _SHEET_A, "timesheets/week-b.txt": _SHEET_B},
        {
            "t": ("01:45", "02:05", "00:35"),
            "u": ("00:58", "03:00", "01:11"),
            "a": lambda v: _clock("01:30", v["t"]),
            "c": lambda v: _clock("00:05", v["u"]),
        },
        _home("/data"),
        faults=(
            fault(
                HIDDEN,
                (
                    "instruction",
                    "write /data/totals.csv: lines `person,HH:MM` (two digits each, no header), sorted by person.",
                    "write the result, one line a person and sorted by person, into /data/totals.csv.",
                ),
            ),
            fault(
                LEAK,
                (
                    "dockerfile",
                    "COPY files/ /data/\n",
                    "COPY files/ /data/\nRUN printf 'ada,@a@\\nben,03:05\\ncho,@c@\\n' > /data/.answer\n",
                ),
            ),
            fault(
                SHORTCUT,
                ("solve", _SHEETS_SOLVE, "printf 'ada,%s\\nben,%s\\ncho,%s\\n' @a@ 03:05 @c@ > /data/totals.csv\n"),
            ),
            fault(
                WEAK,
                ("tests/test.sh", 'grep -qx "ada,@a@" /data/totals.csv', "grep -q ada /data/totals.csv"),
                ("tests/test.sh", 'grep -qx "ben,03:05" /data/totals.csv', "grep -q ben /data/totals.csv"),
                ("tests/test.sh", 'grep -qx "cho,@c@" /data/totals.csv', "test -s /data/totals.csv"),
            ),
        ),
    ),
    Base(
        "u-release-notes",
        "/repo-notes/commits.txt has a line per commit: hash|type|subject. Turn it into /repo-notes/CHANGES.md:\n"
        "first the heading `## Features`, then a list item `- subject` for each commit of the type feat, in the order of the file;\n"
        "then the heading `## Fixes` and the commits of the type fix in the same way. Other types are left out.",
        script_style(_CHANGES_TEST),
        _CHANGES_SOLVE,
        {"commits.txt": _COMMITS},
        {"f": ("dark colours", "faster start", "a search box"), "x": ("wrong total", "lost focus", "leak of handles")},
        _home("/repo-notes"),
        faults=(
            fault(
                HIDDEN,
                ("instruction", "first the heading `## Features`, then", "first a heading for what is new, then"),
                ("instruction", "the heading `## Fixes` and", "a heading for what was mended and"),
                ("tests/verify.py", "## Fixes", "## Bug fixes"),
                ("solve", "## Fixes", "## Bug fixes"),
            ),
            fault(
                WEAK,
                (
                    "tests/verify.py",
                    'assert lines == [\n    "## Features",\n    "- @f@",\n    "- export as yaml",\n    "## Fixes",\n    "- crash when the list is empty",\n    "- @x@",\n], lines',
                    'assert "## Features" in lines and "## Fixes" in lines\nassert len(lines) == 6',
                ),
            ),
            fault(
                LEAK,
                ("files/.git-hooks/prepare", "", "#!/bin/bash\n# how the notes are made\n" + _CHANGES_SOLVE),
            ),
            fault(
                SHORTCUT,
                (
                    "solve",
                    _CHANGES_SOLVE,
                    "python3 -c \"open('/repo-notes/CHANGES.md', 'w').write('## Features\\n- @f@\\n- export as yaml\\n## Fixes\\n- crash when the list is empty\\n- @x@\\n')\"\n",
                ),
            ),
        ),
    ),
    Base(
        "u-inventory-db",
        "Load /app/inventory.csv (separated by semicolons, with a header) into the SQLite database /app/inventory.db: a table "
        "items with the columns sku (text, primary key), name (text) and quantity (integer). Python's sqlite3 is there.",
        unittest_style(_INVENTORY_TEST),
        _INVENTORY_SOLVE,
        {"inventory.csv": _INVENTORY},
        {"n": ("250", "64", "911")},
        faults=(
            fault(
                HIDDEN,
                (
                    "tests/test_outputs.py",
                    "    def test_sku_is_the_key",
                    '    def test_index(self):\n        names = [row[1] for row in self.db.execute("PRAGMA index_list(items)")]\n        self.assertIn("ix_items_name", names)\n\n    def test_sku_is_the_key',
                ),
                ("solve", "db.commit()", 'db.execute("CREATE INDEX ix_items_name ON items (name)")\ndb.commit()'),
            ),
            fault(
                WEAK,
                (
                    "tests/test_outputs.py",
                    'self.assertEqual(rows, [("A-17", "bolt", @n@), ("B-02", "washer", 1200), ("C-55", "hinge", 36)])',
                    "self.assertTrue(rows is not None)",
                ),
            ),
            fault(
                SHORTCUT,
                (
                    "solve",
                    _INVENTORY_SOLVE,
                    "python3 - <<'PY'\nimport sqlite3\ndb = sqlite3.connect('/app/inventory.db')\n"
                    "db.execute('CREATE TABLE items (sku TEXT PRIMARY KEY, name TEXT, quantity INTEGER)')\n"
                    "db.executemany('INSERT INTO items VALUES (?, ?, ?)', [('A-17', 'bolt', @n@), ('B-02', 'washer', 1200), ('C-55', 'hinge', 36)])\ndb.commit()\nPY\n",
                ),
            ),
        ),
    ),
    Base(
        "u-histogram",
        "Count the numbers of /app/samples.txt (one a line, all of them 0 or more) in bins of ten and write /app/bins.txt: a line "
        "`LOW-HIGH COUNT` for each bin from 0-9 up to the bin of the largest number, such as `0-9 4`.",
        unittest_style(_BINS_TEST),
        _BINS_SOLVE,
        {"samples.txt": _SAMPLES},
        {"s": ("5", "11", "20"), "bins": lambda v: _bins(int(v["s"]))},
        faults=(
            fault(
                WEAK,
                (
                    "tests/test_outputs.py",
                    "    def test_bins",
                    '    @unittest.skipUnless(os.environ.get("FULL_CHECK"), "slow")\n    def test_bins',
                ),
            ),
            fault(
                WEAK,
                (
                    "tests/test_outputs.py",
                    'self.assertEqual(handle.read().split("\\n")[:-1], wanted)',
                    "self.assertTrue((len(handle.readlines()) == len(wanted), wanted))",
                ),
            ),
            fault(
                HIDDEN,
                (
                    "instruction",
                    "a line `LOW-HIGH COUNT` for each bin from 0-9 up to the bin of the largest number, such as `0-9 4`.",
                    "a line for each bin, from the lowest up to the bin of the largest number.",
                ),
            ),
            fault(
                SHORTCUT,
                ("solve", _BINS_SOLVE, 'cd /app\nfor line in @bins@; do echo "${line/_/ }"; done > bins.txt\n'),
            ),
        ),
    ),
    Base(
        "u-corrupt-files",
        "The directory /app/blob was copied over a bad line. /app/manifest.sha256 has the SHA-256 of every file as it was at the "
        "source. List the names of the files whose content is not what it was, one a line in alphabetical order, in /app/corrupt.txt.",
        pytest_style("""
def test_corrupt():
    with open("/app/corrupt.txt") as handle:
        names = handle.read().split()
    assert names == @bad@
"""),
        _CORRUPT_SOLVE,
        {**_PARTS, "manifest.sha256": _MANIFEST},
        {
            "w": ("lost", "kept", "half"),
            "d": lambda v: _sum(f"alpha {v['w']}\n") if v["w"] == "kept" else _sum("alpha"),
            "bad": lambda v: '["four.bin", "two.bin"]' if v["w"] == "kept" else '["four.bin", "one.bin", "two.bin"]',
        },
        faults=(
            fault(
                HIDDEN,
                (
                    "tests/test_outputs.py",
                    "    assert names == @bad@",
                    '    assert names[:-2] == @bad@\n    assert names[-2] == "mismatches:" and int(names[-1]) == len(names) - 2',
                ),
                (
                    "solve",
                    "LC_ALL=C sort > /app/corrupt.txt\n",
                    'LC_ALL=C sort > /app/corrupt.txt\necho "mismatches: $(wc -l < /app/corrupt.txt)" >> /app/corrupt.txt\n',
                ),
            ),
            fault(
                WEAK,
                (
                    "tests/test_outputs.py",
                    "    assert names == @bad@",
                    '    assert set(names) <= {"one.bin", "two.bin", "three.bin", "four.bin"}',
                ),
            ),
            fault(LEAK, ("files/blob/.known-bad", "", "four.bin\none.bin\ntwo.bin\n")),
            fault(SHORTCUT, ("solve", _CORRUPT_SOLVE, "printf '%s\\n' four.bin one.bin two.bin > /app/corrupt.txt\n")),
        ),
    ),
)
