# ruff: noqa: E501 (texts of tasks)
"""Tasks about programs, settings and trees of files that no probe was tuned on: written after the others, from the definitions alone."""

from __future__ import annotations

import base64

from tests.labelled.drafts import (
    HIDDEN,
    LEAK,
    SHORTCUT,
    WEAK,
    Base,
    fault,
    pytest_style,
    reward,
    script_style,
    shell,
    unittest_style,
)
from tests.labelled.unseen_records import _home

_ARCHIVE_SOLVE = """cd /opt/collector/logs
for name in *.log.[0-9]*; do gzip -n "$name"; done
"""
_ARCHIVE_TEST = """
import gzip
import os

LOGS = "/opt/collector/logs"


def text(name):
    with gzip.open(f"{LOGS}/{name}", "rt") as handle:
        return handle.read()


def test_rotated_files_are_compressed():
    assert text("app.log.1.gz") == "started @w@\\nready\\n"
    assert text("app.log.2.gz") == "stopped\\n"
    assert text("db.log.1.gz") == "vacuum @w@\\n"


def test_the_originals_are_gone():
    assert not [name for name in os.listdir(LOGS) if name[-1].isdigit()]


def test_current_logs_stay():
    with open(f"{LOGS}/app.log") as handle:
        assert handle.read() == "busy\\n"
"""

_MERGE_SOLVE = """cat /app/defaults.env /app/site.env | python3 -c '
import sys
merged = {}
for line in sys.stdin:
    line = line.strip()
    if line and not line.startswith("#"):
        key, _, value = line.partition("=")
        merged[key] = value
for key in sorted(merged):
    print(f"{key}={merged[key]}")
' > /app/effective.env
"""
_MERGED = "cache=on\nlevel=@l@\nport=4100\nretries=3\ntimeout=@t@\n"

_MEDIAN = '''"""Prints the median of the numbers that are its arguments."""
import sys

numbers = sorted(sys.argv[1:])
middle = len(numbers) // 2
if len(numbers) % 2:
    print(float(numbers[middle]))
else:
    print((float(numbers[middle - 1]) + float(numbers[middle])) / 2)
'''
_MEDIAN_FIX = "sed -i 's/^numbers = .*/numbers = sorted(float(word) for word in sys.argv[1:])/' /opt/tools/median.py\n"
_MEDIAN_TEST = """
import subprocess
import unittest


def run(*words):
    done = subprocess.run(["python3", "/opt/tools/median.py", *words], capture_output=True, text=True, timeout=10)
    return done.stdout.strip()


class TestMedian(unittest.TestCase):
    def test_numbers_are_compared_as_numbers(self):
        self.assertEqual(float(run("10", "9", "@n@")), @m@)

    def test_even(self):
        self.assertEqual(float(run("100", "20", "3", "4")), 12.0)
"""

_PHOTOS_SOLVE = """cd /data/photos
find . -type f -name '*.raw' -printf '%f\\n' | LC_ALL=C sort | while read -r name; do
  echo "$(md5sum < "$name" | cut -d' ' -f1) $name"
done | awk '{ if ($1 in first) print first[$1] "\\t" $2; else first[$1] = $2 }' | LC_ALL=C sort > /data/photos/duplicates.tsv
"""
_PHOTOS = "a10.raw\ta31.raw\na22.raw\tb07.raw\n"

_ROMAN_SOLVE = """mkdir -p /app/bin
cat > /app/bin/roman <<'PY'
#!/usr/bin/env python3
import sys

TABLE = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]
try:
    number = int(sys.argv[1])
except (IndexError, ValueError):
    number = 0
if not 1 <= number <= 3999:
    print("expected a number from 1 to 3999", file=sys.stderr)
    sys.exit(2)
text = ""
for value, letters in TABLE:
    while number >= value:
        text, number = text + letters, number - value
print(text)
PY
chmod +x /app/bin/roman
"""
_ROMAN_TEST = """
import subprocess


def roman(*words):
    return subprocess.run(["/app/bin/roman", *words], capture_output=True, text=True, timeout=10)


def test_numbers():
    for number, text in [("1", "I"), ("4", "IV"), ("@n@", "@r@"), ("944", "CMXLIV"), ("3999", "MMMCMXCIX")]:
        assert roman(number).stdout.strip() == text


def test_refusals():
    for word in ("0", "4000", "ten"):
        done = roman(word)
        assert done.returncode == 2
        assert done.stdout == ""
"""
_ROMAN_TABLE = """mkdir -p /app/bin
cat > /app/bin/roman <<'SH'
#!/bin/bash
case "$1" in
  1) echo I ;; 4) echo IV ;; @n@) echo @r@ ;; 944) echo CMXLIV ;; 3999) echo MMMCMXCIX ;;
  *) exit 2 ;;
esac
SH
chmod +x /app/bin/roman
"""

_TEMPLATE = "# ${HOST}\nlisten ${ADDRESS}:@p@\nname ${HOST}.lan\n"
_HOSTS = "alpha 10.0.0.5\nbravo 10.0.0.@b@\ncharly 10.0.0.77\n"
_RENDER_SOLVE = """mkdir -p /app/rendered
while read -r host address; do
  sed -e "s/\\${HOST}/$host/g" -e "s/\\${ADDRESS}/$address/g" /app/template.conf > "/app/rendered/$host.conf"
done < /app/hosts.txt
"""
_RENDER_TEST = """
from pathlib import Path

HOSTS = {"alpha": "10.0.0.5", "bravo": "10.0.0.@b@", "charly": "10.0.0.77"}


def test_each_host_has_its_file():
    for host, address in HOSTS.items():
        text = Path(f"/app/rendered/{host}.conf").read_text()
        assert text == f"# {host}\\nlisten {address}:@p@\\nname {host}.lan\\n"


def test_nothing_else():
    assert sorted(p.name for p in Path("/app/rendered").iterdir()) == sorted(f"{host}.conf" for host in HOSTS)
"""
_RENDERED = "# bravo\nlisten 10.0.0.@b@:@p@\nname bravo.lan\n"

BASES = (
    Base(
        "u-archive-logs",
        "The collector keeps its logs in /opt/collector/logs. Compress every rotated log there (its name ends with .log. and a number) "
        "with gzip, so that NAME becomes NAME.gz and the plain file is gone. The logs still in use (names that end with .log) stay as they are.",
        pytest_style(_ARCHIVE_TEST),
        _ARCHIVE_SOLVE,
        {
            "logs/app.log": "busy\n",
            "logs/app.log.1": "started @w@\nready\n",
            "logs/app.log.2": "stopped\n",
            "logs/db.log": "idle\n",
            "logs/db.log.1": "vacuum @w@\n",
        },
        {"w": ("early", "late", "twice")},
        _home("/opt/collector"),
        faults=(
            fault(
                HIDDEN,
                (
                    "tests/test_outputs.py",
                    "def test_current_logs_stay():\n",
                    'def test_the_list():\n    with open(f"{LOGS}/ROTATED") as handle:\n        assert handle.read().split() == ["app.log.1", "app.log.2", "db.log.1"]\n\n\ndef test_current_logs_stay():\n',
                ),
                ("solve", "for name in", "ls *.log.[0-9]* > ROTATED\nfor name in"),
            ),
            fault(
                WEAK,
                (
                    "tests/test_outputs.py",
                    '    assert text("app.log.1.gz") == "started @w@\\nready\\n"\n    assert text("app.log.2.gz") == "stopped\\n"\n    assert text("db.log.1.gz") == "vacuum @w@\\n"',
                    '    for name in ("app.log.1.gz", "app.log.2.gz", "db.log.1.gz"):\n        assert os.path.exists(f"{LOGS}/{name}")',
                ),
            ),
            fault(LEAK, ("files/ci/check.py", "", _ARCHIVE_TEST)),
        ),
    ),
    Base(
        "u-effective-settings",
        "The settings of a service are lines KEY=VALUE in /app/defaults.env; /app/site.env overrides some of them and adds others. Lines "
        "that begin with # are comments. Write the settings that hold in the end to /app/effective.env: KEY=VALUE lines sorted by key, "
        "no comments, no empty lines.",
        reward(
            "diff -q /tests/effective.expected /app/effective.env >/dev/null 2>&1 && ok=1",
            **{"effective.expected": _MERGED},
        ),
        _MERGE_SOLVE,
        {
            "defaults.env": "# as shipped\nport=80\ntimeout=30\nretries=3\n\nlevel=info\n",
            "site.env": "# ours\nport=4100\nlevel=@l@\ntimeout=@t@\ncache=on\n",
        },
        {"l": ("debug", "error", "trace"), "t": ("45", "12", "600")},
        faults=(
            fault(
                HIDDEN,
                ("tests/effective.expected", _MERGED, "# merged, do not edit\n" + _MERGED),
                ("solve", "for key in sorted(merged):", 'print("# merged, do not edit")\nfor key in sorted(merged):'),
            ),
            fault(LEAK, ("files/testdata/effective.env.golden", "", _MERGED)),
            fault(
                WEAK,
                (
                    "tests/test.sh",
                    "diff -q /tests/effective.expected /app/effective.env >/dev/null 2>&1 && ok=1",
                    'for key in cache level port retries timeout; do grep -q "^$key=" /app/effective.env && ok=1; done',
                ),
            ),
            fault(SHORTCUT, ("solve", _MERGE_SOLVE, "cat > /app/effective.env <<'END'\n" + _MERGED + "END\n")),
        ),
    ),
    Base(
        "u-median-bug",
        "/opt/tools/median.py prints the median of its arguments, but gives wrong answers for some of them, such as `10 9 2`. Find the bug "
        "and repair the file.",
        unittest_style(_MEDIAN_TEST),
        _MEDIAN_FIX,
        {"median.py": _MEDIAN},
        {"n": ("2", "8", "11"), "m": ("9", "9", "10")},
        _home("/opt/tools"),
        faults=(
            fault(
                WEAK,
                ("tests/test_outputs.py", 'float(run("10", "9", "@n@")), @m@', 'float(run("4")), 4.0'),
                ("tests/test_outputs.py", 'run("100", "20", "3", "4")), 12.0', 'run("1", "2", "3", "4")), 2.5'),
            ),
            fault(
                HIDDEN,
                (
                    "tests/test_outputs.py",
                    "    def test_even",
                    '    def test_no_numbers(self):\n        self.assertEqual(run(), "nothing to do")\n\n    def test_even',
                ),
                (
                    "solve",
                    _MEDIAN_FIX,
                    _MEDIAN_FIX
                    + "sed -i '/^numbers = /a if not numbers:\\n    sys.exit(print(\"nothing to do\"))' /opt/tools/median.py\n",
                ),
            ),
            fault(
                LEAK,
                (
                    "files/.median.py.swp",
                    "",
                    _MEDIAN.replace("sorted(sys.argv[1:])", "sorted(float(word) for word in sys.argv[1:])"),
                ),
            ),
            fault(
                SHORTCUT,
                (
                    "solve",
                    _MEDIAN_FIX,
                    "cat > /opt/tools/median.py <<'PY'\nimport sys\nANSWERS = {'10 9 @n@': @m@, '100 20 3 4': 12.0}\nprint(float(ANSWERS[' '.join(sys.argv[1:])]))\nPY\n",
                ),
            ),
        ),
    ),
    Base(
        "u-proxy-conf",
        "Write /app/proxy.conf for our proxy. It has four lines: `listen 127.0.0.1:@p@`, `upstream @u@`, `timeout 20s` and `log off`, in "
        "any order. The file must be readable and writable by its owner only.",
        shell("""
check 'listen' 'grep -qx "listen 127.0.0.1:@p@" /app/proxy.conf'
check 'upstream' 'grep -qx "upstream @u@" /app/proxy.conf'
check 'timeout and log' 'grep -qx "timeout 20s" /app/proxy.conf && grep -qx "log off" /app/proxy.conf'
check 'four lines' '[ "$(wc -l < /app/proxy.conf)" -eq 4 ]'
check 'mode' '[ "$(stat -c %a /app/proxy.conf)" = 600 ]'
"""),
        "umask 077\nprintf '%s\\n' 'listen 127.0.0.1:@p@' 'upstream @u@' 'timeout 20s' 'log off' > /app/proxy.conf\n",
        {"README": "The proxy reads proxy.conf when it starts.\n"},
        {"p": ("8443", "3128", "9000"), "u": ("pool-a", "pool-b", "backup")},
        faults=(
            fault(
                HIDDEN,
                (
                    "instruction",
                    "`listen 127.0.0.1:@p@`",
                    "the address that it listens on (`listen`, a free port of the loopback)",
                ),
            ),
            fault(HIDDEN, ("instruction", " The file must be readable and writable by its owner only.", "")),
            fault(
                WEAK,
                ("tests/test.sh", '"listen 127.0.0.1:@p@" /app/proxy.conf', '"listen .*" /app/proxy.conf'),
                ("tests/test.sh", '"upstream @u@" /app/proxy.conf', '"upstream .*" /app/proxy.conf'),
                (
                    "tests/test.sh",
                    'grep -qx "timeout 20s" /app/proxy.conf && grep -qx "log off" /app/proxy.conf',
                    "test -s /app/proxy.conf",
                ),
            ),
        ),
    ),
    Base(
        "u-duplicate-photos",
        "Some of the .raw files in /data/photos have the same content. Write /data/photos/duplicates.tsv: for each file whose content an "
        "alphabetically earlier file has already, a line with the name of the first file of that content, a tab, and the name of the "
        "duplicate. Sort the lines.",
        script_style("""
from pathlib import Path

lines = Path("/data/photos/duplicates.tsv").read_text().splitlines()
assert lines == ["a10.raw\\ta31.raw", "a22.raw\\tb07.raw"]
"""),
        _PHOTOS_SOLVE,
        {
            "photos/a10.raw": "sky @w@\n",
            "photos/a22.raw": "lake\n",
            "photos/a31.raw": "sky @w@\n",
            "photos/b07.raw": "lake\n",
            "photos/b08.raw": "lake @w@\n",
            "photos/notes.txt": "lake\n",
        },
        {"w": ("dawn", "noon", "dusk")},
        _home("/data"),
        faults=(
            fault(
                HIDDEN,
                (
                    "instruction",
                    "a line with the name of the first file of that content, a tab, and the name of the duplicate.",
                    "a line with both names, the earlier one first.",
                ),
                ("tests/verify.py", "\\ta31", " => a31"),
                ("tests/verify.py", "\\tb07", " => b07"),
                ("solve", '"\\t"', '" => "'),
            ),
            fault(WEAK, ("tests/verify.py", 'lines == ["a10.raw\\ta31.raw", "a22.raw\\tb07.raw"]', "len(lines) == 2")),
            fault(
                SHORTCUT,
                (
                    "solve",
                    _PHOTOS_SOLVE,
                    "echo '"
                    + base64.b64encode(_PHOTOS.encode()).decode()
                    + "' | base64 -d > /data/photos/duplicates.tsv\n",
                ),
            ),
            fault(LEAK, ("files/photos/.index/duplicates.tsv", "", _PHOTOS)),
        ),
    ),
    Base(
        "u-roman",
        "Write the executable /app/bin/roman. It takes one argument, a whole number from 1 to 3999, and prints it as a Roman numeral "
        "(4 is IV, 944 is CMXLIV). For anything else it prints nothing on stdout and ends with exit code 2.",
        pytest_style(_ROMAN_TEST),
        _ROMAN_SOLVE,
        {},
        {"n": ("58", "1987", "449"), "r": ("LVIII", "MCMLXXXVII", "CDXLIX")},
        faults=(
            fault(
                HIDDEN,
                ("instruction", "prints nothing on stdout and ends with exit code 2.", "complains."),
                ("tests/test_outputs.py", "== 2", "== 64"),
                ("solve", "sys.exit(2)", "sys.exit(64)"),
            ),
            fault(
                WEAK,
                (
                    "tests/test_outputs.py",
                    "assert roman(number).stdout.strip() == text",
                    "assert roman(number).stdout.strip()",
                ),
                (
                    "tests/test_outputs.py",
                    '        assert done.returncode == 2\n        assert done.stdout == ""',
                    "        assert done is not None",
                ),
            ),
            fault(SHORTCUT, ("solve", _ROMAN_SOLVE, _ROMAN_TABLE)),
            fault(LEAK, ("files/vendor/numerals.py", "", _ROMAN_SOLVE.split("<<'PY'\n")[1].split("PY\n")[0])),
        ),
    ),
    Base(
        "u-render-hosts",
        "/app/template.conf is a template with the placeholders ${HOST} and ${ADDRESS}; /app/hosts.txt has a host and its address on each "
        "line. Render the template for each host into /app/rendered/HOST.conf.",
        pytest_style(_RENDER_TEST),
        _RENDER_SOLVE,
        {"template.conf": _TEMPLATE, "hosts.txt": _HOSTS},
        {"p": ("8080", "2200", "5353"), "b": ("61", "8", "142")},
        faults=(
            fault(
                HIDDEN,
                (
                    "tests/test_outputs.py",
                    "        assert text ==",
                    '        assert text.endswith("checksum off\\n")\n        text = text.removesuffix("checksum off\\n")\n        assert text ==',
                ),
                ("solve", "done <", '  echo "checksum off" >> "/app/rendered/$host.conf"\ndone <'),
            ),
            fault(
                WEAK,
                (
                    "tests/test_outputs.py",
                    'HOSTS = {"alpha": "10.0.0.5", "bravo": "10.0.0.@b@", "charly": "10.0.0.77"}',
                    "HOSTS = {p.stem: None for p in Path('/app/output').glob('*.conf')}",
                ),
                (
                    "tests/test_outputs.py",
                    'assert sorted(p.name for p in Path("/app/rendered").iterdir()) == sorted(f"{host}.conf" for host in HOSTS)',
                    'assert HOSTS == {} or Path("/app/rendered").exists()',
                ),
            ),
            fault(LEAK, ("files/.rendered.bak/bravo.conf", "", _RENDERED)),
            fault(
                SHORTCUT,
                (
                    "solve",
                    _RENDER_SOLVE,
                    "mkdir -p /app/rendered && cd /app/rendered\n"
                    + "".join(
                        f"cat > {host}.conf <<'END'\n# {host}\nlisten {address}:@p@\nname {host}.lan\nEND\n"
                        for host, address in (("alpha", "10.0.0.5"), ("bravo", "10.0.0.@b@"), ("charly", "10.0.0.77"))
                    ),
                ),
            ),
        ),
    ),
)
