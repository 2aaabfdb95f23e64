# ruff: noqa: E501 (texts of tasks)
"""Tasks about text and tables, with the slips that their authors could make."""

from __future__ import annotations

from tests.labelled.drafts import HIDDEN, LEAK, SHORTCUT, WEAK, Base, fault, pytest_style, reward, shell, unittest_style

_LOG = """2024-05-01 08:00:01 INFO start of @unit@
2024-05-01 08:00:07 ERROR disk sda is nearly full
2024-05-01 08:01:12 WARN slow answer from 10.0.0.7
2024-05-01 08:02:44 ERROR lost the link to @unit@
2024-05-01 08:03:00 INFO link is back
2024-05-01 08:05:31 ERROR checksum of block 7741 differs
@more@
"""
_SALES = """region,product,amount
north,chair,@a@
south,chair,75
north,lamp,31
east,table,210
south,lamp,@b@
east,chair,64
"""
_PEOPLE = """[
  {"name": "Ines", "age": 34, "team": "@team@"},
  {"name": "Bo", "age": 17, "team": "@team@"},
  {"name": "Cleo", "age": 51, "team": "ops"},
  {"name": "Dai", "age": 22, "team": "@team@"},
  {"name": "Emre", "age": 45, "team": "@team@"}
]
"""
_ACCESS = """10.0.0.5 - - [12/Mar/2024:10:00:01] "GET / HTTP/1.1" 200 512
@top@ - - [12/Mar/2024:10:00:03] "GET /a HTTP/1.1" 200 98
@top@ - - [12/Mar/2024:10:00:04] "GET /b HTTP/1.1" 404 12
10.0.0.9 - - [12/Mar/2024:10:00:09] "POST /a HTTP/1.1" 500 77
@top@ - - [12/Mar/2024:10:01:00] "GET /c HTTP/1.1" 200 33
10.0.0.5 - - [12/Mar/2024:10:01:44] "GET /c HTTP/1.1" 200 33
"""
_ARTICLE = """# @title@

Some words before.

## Setting up

Text about it.

## First steps

### On a laptop

### On a server

## What went wrong
"""

BASES = (
    Base(
        "error-count",
        "The file /app/server.log is a log. Count its lines of level ERROR and write the number to /app/@out@.",
        shell("""
check 'the number is there' '[ -f /app/@out@ ]'
check 'the number is right' '[ "$(tr -d "[:space:]" < /app/@out@)" = @n@ ]'
"""),
        "set -e\ngrep -c ' ERROR ' /app/server.log > /app/@out@\n",
        {"server.log": _LOG},
        {
            "out": ("errors.txt", "count.txt", "num_errors.txt"),
            "unit": ("relay", "pump", "gate"),
            "more": (
                "2024-05-01 08:09:00 INFO bye",
                "2024-05-01 08:09:02 ERROR again",
                "2024-05-01 08:08:08 ERROR fan\n2024-05-01 08:09:02 ERROR fan",
            ),
            "n": ("3", "4", "5"),
        },
        faults=(
            fault(SHORTCUT, ("solve", "grep -c ' ERROR ' /app/server.log > /app/@out@", "echo @n@ > /app/@out@")),
            fault(WEAK, ("tests/test.sh", """ = @n@ ]'""", """ != "" ]'""")),
            fault(
                LEAK, ("files/.expected_count", "", "@n@\n"), ("files/NOTES", "", "The right answer is @n@ errors.\n")
            ),
            fault(
                HIDDEN,
                ("instruction", "/app/@out@", "a text file"),
            ),
        ),
    ),
    Base(
        "sorted-names",
        "Write the distinct names of /app/@src@, sorted alphabetically and one per line, to /app/sorted.txt.",
        reward(
            "diff -q /app/sorted.txt /tests/expected.txt && ok=1",
            **{"expected.txt": "Ana\nBela\nCarl\n@x@\nMio\nZoe\n"},
        ),
        "cd /app\nsort -u @src@ > sorted.txt\n",
        {"@src@": "Mio\nCarl\nAna\n@x@\nBela\nZoe\nAna\nMio\n"},
        {"src": ("names.txt", "people.list", "guests.txt"), "x": ("Dora", "Emil", "Fay")},
        faults=(
            fault(LEAK, ("files/.cache/sorted.txt", "", "Ana\nBela\nCarl\n@x@\nMio\nZoe\n")),
            fault(
                SHORTCUT,
                ("solve", "sort -u @src@ > sorted.txt", "printf 'Ana\\nBela\\nCarl\\n@x@\\nMio\\nZoe\\n' > sorted.txt"),
            ),
            fault(
                WEAK,
                (
                    "tests/test.sh",
                    "diff -q /app/sorted.txt /tests/expected.txt && ok=1",
                    "[ -s /app/sorted.txt ] && ok=1",
                ),
            ),
            fault(SHORTCUT, ("solve", "sort -u @src@ > sorted.txt", "cp /tests/expected.txt sorted.txt")),
        ),
    ),
    Base(
        "letter",
        "In /app/letter.tpl replace the placeholder NAME by the name that stands in /app/recipient and write the "
        "result to /app/letter.txt. Leave the template alone.",
        pytest_style("""
from pathlib import Path

LETTER = Path("/app/letter.txt")


def test_letter_greets_the_recipient():
    assert LETTER.read_text().splitlines()[0] == "Dear @who@,"


def test_no_placeholder_is_left():
    text = LETTER.read_text()
    assert "NAME" not in text and text.count("@who@") == 2


def test_template_is_untouched():
    assert "NAME" in Path("/app/letter.tpl").read_text() and LETTER.exists()
"""),
        'who=$(cat /app/recipient)\nsed "s/NAME/$who/g" /app/letter.tpl > /app/letter.txt\n',
        {"letter.tpl": "Dear NAME,\n\nthe @thing@ is ready. It is yours, NAME.\n\nBye\n", "recipient": "@who@\n"},
        {"who": ("Oda", "Petra", "Quentin"), "thing": ("boat", "bread", "bike")},
        faults=(
            fault(
                HIDDEN,
                (
                    "tests/test_outputs.py",
                    "def test_template",
                    'def test_signed():\n    assert LETTER.read_text().rstrip().endswith("Yours, Mailbot 3000")\n\n\ndef test_template',
                ),
                ("solve", "> /app/letter.txt\n", "> /app/letter.txt\necho 'Yours, Mailbot 3000' >> /app/letter.txt\n"),
            ),
            fault(
                WEAK,
                ("tests/test_outputs.py", '.splitlines()[0] == "Dear @who@,"', " is not None"),
                (
                    "tests/test_outputs.py",
                    'assert "NAME" not in text and text.count("@who@") == 2',
                    "assert isinstance(text, str)",
                ),
            ),
            fault(
                LEAK,
                ("files/drafts/final.txt", "", "Dear @who@,\n\nthe @thing@ is ready. It is yours, @who@.\n\nBye\n"),
            ),
        ),
    ),
    Base(
        "sales",
        "/app/sales.csv lists sales. Add up the column amount for each region and write a JSON object that maps each "
        "region to its total to /app/@out@.",
        pytest_style("""
import json
from pathlib import Path


def load():
    return json.loads(Path("/app/@out@").read_text())


def test_every_region_is_there():
    assert sorted(load()) == ["east", "north", "south"]


def test_totals():
    totals = load()
    assert totals["north"] == @north@
    assert totals["south"] == @south@
    assert totals["east"] == 274
"""),
        """cd /app
python3 - <<'PY'
import csv, json
from collections import Counter
totals = Counter()
for row in csv.DictReader(open("sales.csv")):
    totals[row["region"]] += int(row["amount"])
json.dump(totals, open("@out@", "w"))
PY
""",
        {"sales.csv": _SALES},
        {
            "out": ("totals.json", "by_region.json", "sums.json"),
            "a": ("120", "333", "48"),
            "b": ("19", "58", "401"),
            "north": lambda v: str(int(v["a"]) + 31),
            "south": lambda v: str(int(v["b"]) + 75),
        },
        faults=(
            fault(
                HIDDEN,
                (
                    "tests/test_outputs.py",
                    'return json.loads(Path("/app/@out@").read_text())',
                    'return json.loads(Path("/app/@out@").read_text())["totals_by_area"]',
                ),
                ("solve", "json.dump(totals,", 'json.dump({"totals_by_area": totals},'),
            ),
            fault(
                SHORTCUT,
                (
                    "solve",
                    """python3 - <<'PY'
import csv, json
from collections import Counter
totals = Counter()
for row in csv.DictReader(open("sales.csv")):
    totals[row["region"]] += int(row["amount"])
json.dump(totals, open("@out@", "w"))
PY""",
                    """cat > @out@ <<'JSON'
{"north": @north@, "south": @south@, "east": 274}
JSON""",
                ),
            ),
            fault(
                WEAK,
                ("tests/test_outputs.py", 'assert totals["north"] == @north@', 'assert totals["north"]'),
                ("tests/test_outputs.py", 'assert totals["south"] == @south@', 'assert totals["south"] > 0'),
                ("tests/test_outputs.py", 'assert totals["east"] == 274', 'assert totals["east"] > 0'),
            ),
            fault(
                LEAK,
                ("dockerfile", "COPY files/ /app/\n", "COPY files/ /app/\nCOPY files/checks/ /opt/checks/\n"),
                (
                    "files/checks/test_outputs.py",
                    "",
                    'import json\n\n\ndef test_totals():\n    totals = json.load(open("/app/@out@"))\n    assert totals["north"] == @north@\n    assert totals["south"] == @south@\n    assert totals["east"] == 274\n',
                ),
            ),
        ),
    ),
    Base(
        "adults",
        "Take the people of /app/people.json who are at least @age@ years old and belong to team @team@. Write their "
        "names as a sorted JSON list to /app/adults.json.",
        unittest_style("""
import json
import unittest


class TestAdults(unittest.TestCase):
    def setUp(self):
        with open("/app/adults.json") as file:
            self.names = json.load(file)

    def test_is_a_list(self):
        self.assertIsInstance(self.names, list)

    def test_names(self):
        self.assertEqual(self.names, [@names@])
"""),
        "jq '[.[] | select(.age >= @age@ and .team == \"@team@\") | .name] | sort' /app/people.json > /app/adults.json\n",
        {"people.json": _PEOPLE},
        {
            "age": ("18", "30", "40"),
            "team": ("web", "data", "infra"),
            "names": ('"Dai", "Emre", "Ines"', '"Emre", "Ines"', '"Emre"'),
        },
        faults=(
            fault(
                WEAK,
                ("tests/test_outputs.py", "    def test_names", '    @unittest.skip("flaky")\n    def test_names'),
                (
                    "tests/test_outputs.py",
                    "    def test_is_a_list",
                    '    @unittest.skip("later")\n    def test_is_a_list',
                ),
                (
                    "tests/test_outputs.py",
                    '        with open("/app/adults.json") as file:\n            self.names = json.load(file)',
                    "        self.names = []",
                ),
            ),
            fault(SHORTCUT, ("solve", "", "echo '[@names@]' > /app/adults.json\n")),
            fault(
                LEAK,
                (
                    "files/solution/solve.sh",
                    "",
                    "#!/bin/bash\njq '[.[] | select(.age >= @age@ and .team == \"@team@\") | .name] | sort' /app/people.json > /app/adults.json\n",
                ),
            ),
            fault(
                HIDDEN,
                ("instruction", " to /app/adults.json", ""),
            ),
        ),
    ),
    Base(
        "busiest-client",
        "Find the address that made the most requests in /app/access.log. Write it, and the number of its requests "
        "after a space, to /app/busiest.txt.",
        reward("""
read -r address number < /app/busiest.txt
[ "$address" = @top@ ] && [ "$number" = 3 ] && ok=1
"""),
        "cut -d' ' -f1 /app/access.log | sort | uniq -c | sort -rn | head -1 | awk '{print $2, $1}' > /app/busiest.txt\n",
        {"access.log": _ACCESS},
        {"top": ("10.1.2.3", "192.168.4.77", "172.16.0.31")},
        faults=(
            fault(SHORTCUT, ("solve", "", "echo '@top@ 3' > /app/busiest.txt\n")),
            fault(
                WEAK,
                (
                    "tests/test.sh",
                    '[ "$address" = @top@ ] && [ "$number" = 3 ] && ok=1',
                    "[ -e /app/busiest.txt ] && ok=1",
                ),
            ),
            fault(
                HIDDEN,
                (
                    "tests/test.sh",
                    "read -r address number < /app/busiest.txt",
                    "read -r address number < /app/results/top-talker.out",
                ),
                (
                    "solve",
                    "> /app/busiest.txt",
                    "> /tmp/x; mkdir -p /app/results; mv /tmp/x /app/results/top-talker.out",
                ),
                ("instruction", "to /app/busiest.txt", "to a file"),
            ),
        ),
    ),
    Base(
        "headings",
        "Make a table of contents of /app/article.md in /app/toc.txt: the text of every heading of level two, one per "
        "line, in the order of the article and without the marks.",
        pytest_style("""
def lines():
    with open("/app/toc.txt") as file:
        return [line.strip() for line in file if line.strip()]


def test_number_of_headings():
    assert len(lines()) == 3


def test_headings_in_order():
    assert lines() == ["Setting up", "First steps", "What went wrong"]
"""),
        "sed -n 's/^## //p' /app/article.md > /app/toc.txt\n",
        {"article.md": _ARTICLE},
        {"title": ("A guide", "The manual", "Notes")},
        faults=(
            fault(
                WEAK,
                (
                    "tests/test_outputs.py",
                    '    assert lines() == ["Setting up", "First steps", "What went wrong"]',
                    "    lines()",
                ),
                ("tests/test_outputs.py", "assert len(lines()) == 3", "assert True"),
            ),
            fault(
                SHORTCUT, ("solve", "", "cat > /app/toc.txt <<'END'\nSetting up\nFirst steps\nWhat went wrong\nEND\n")
            ),
            fault(
                HIDDEN,
                (
                    "tests/test_outputs.py",
                    "assert len(lines()) == 3",
                    'assert len(lines()) == 3\n    assert open("/app/toc.txt").readline().startswith("~~~ TOC")',
                ),
                ("tests/test_outputs.py", "if line.strip()]", 'if line.strip() and not line.startswith("~~~")]'),
                ("solve", "sed -n", "echo '~~~ TOC' > /app/toc.txt\nsed -n"),
                ("solve", "/app/article.md > /app/toc.txt", "/app/article.md >> /app/toc.txt"),
            ),
        ),
    ),
    Base(
        "dates",
        "Every line of /app/dates.txt is a date such as 31.12.2023 (day, month, year). Write the same dates as "
        "YYYY-MM-DD to /app/iso.txt, in the same order.",
        pytest_style(
            """
import re
from pathlib import Path

EXPECTED = Path("/tests/iso_expected.txt").read_text().split()


def read():
    return Path("/app/iso.txt").read_text().split()


def test_format():
    assert read() and all(re.fullmatch(r"\\d{4}-\\d{2}-\\d{2}", line) for line in read())


def test_dates():
    assert read() == EXPECTED
""",
            **{"iso_expected.txt": "2023-02-@d@\n2021-11-30\n1999-06-05\n"},
        ),
        'awk -F. \'{print $3 "-" $2 "-" $1}\' /app/dates.txt > /app/iso.txt\n',
        {"dates.txt": "@d@.02.2023\n30.11.2021\n05.06.1999\n"},
        {"d": ("14", "27", "09")},
        faults=(
            fault(
                HIDDEN,
                ("instruction", "as YYYY-MM-DD to", "in another notation to"),
                ("tests/test_outputs.py", r"\d{4}-\d{2}-\d{2}", r"\d{4}/\d{2}/\d{2}"),
                ("tests/iso_expected.txt", "-", "/"),
                ("solve", '"-"', '"/"'),
            ),
            fault(
                LEAK,
                (
                    "dockerfile",
                    "COPY files/ /app/\n",
                    "COPY files/ /app/\nRUN mkdir -p /app/.ci && echo 'MjAyMy0wMi1A' > /app/.ci/x\n",
                ),
                ("files/.ci/iso_expected.txt", "", "2023-02-@d@\n2021-11-30\n1999-06-05\n"),
            ),
            fault(WEAK, ("tests/test_outputs.py", "    assert read() == EXPECTED", "    assert EXPECTED")),
            fault(SHORTCUT, ("solve", "", "printf '%s\\n' 2023-02-@d@ 2021-11-30 1999-06-05 > /app/iso.txt\n")),
        ),
    ),
    Base(
        "two-settings",
        "Merge /app/defaults.json and /app/local.json into /app/merged.json; where both have a key, local.json wins.",
        reward(
            "jq -S . /app/merged.json > /tmp/got.json && jq -S . /tests/want.json | cmp -s - /tmp/got.json && ok=1",
            **{"want.json": '{"color": "@c@", "size": 12, "speed": @s@, "depth": 5}\n'},
        ),
        "jq -s '.[0] * .[1]' /app/defaults.json /app/local.json > /app/merged.json\n",
        {
            "defaults.json": '{"color": "gray", "size": 12, "speed": 1}\n',
            "local.json": '{"color": "@c@", "speed": @s@, "depth": 5}\n',
        },
        {"c": ("teal", "plum", "rust"), "s": ("40", "55", "62")},
        faults=(
            fault(WEAK, ("tests/test.sh", "jq -S . /tests/want.json | cmp -s - /tmp/got.json && ok=1", "ok=1")),
            fault(LEAK, ("files/build/want.json", "", '{"color": "@c@", "size": 12, "speed": @s@, "depth": 5}\n')),
            fault(
                SHORTCUT,
                ("solve", "", 'echo \'{"color": "@c@", "size": 12, "speed": @s@, "depth": 5}\' > /app/merged.json\n'),
            ),
        ),
    ),
)
