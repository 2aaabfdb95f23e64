# ruff: noqa: E501 (texts of tasks)
"""Tasks about files, archives, permissions and settings, with the slips that their authors could make."""

from __future__ import annotations

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
)

_INI = """[server]
host = 0.0.0.0
port = 80
workers = 4

[log]
level = info
"""
_EVENTS = """id;kind;weight
1;@k@;12
2;idle;7
3;@k@;@w@
4;halt;3
"""

BASES = (
    Base(
        "rename-notes",
        "Give every .txt file in /app/@dir@ the extension .md. The contents stay as they are.",
        shell("""
check 'first is renamed' '[ "$(cat /app/@dir@/one.md)" = "first @w@" ]'
check 'second is renamed' '[ "$(cat /app/@dir@/two.md)" = second ]'
check 'nothing is left' '! ls /app/@dir@/*.txt'
check 'others stay' '[ -f /app/@dir@/keep.log ] && [ ! -e /app/@dir@/one.txt ]'
"""),
        'cd /app/@dir@\nfor f in *.txt; do mv "$f" "${f%.txt}.md"; done\n',
        {"@dir@/one.txt": "first @w@\n", "@dir@/two.txt": "second\n", "@dir@/keep.log": "log\n"},
        {"dir": ("notes", "pages", "texts"), "w": ("oak", "elm", "fir")},
        faults=(
            fault(
                HIDDEN,
                (
                    "tests/test.sh",
                    "check 'others stay'",
                    "check 'index' '[ -f /app/@dir@/INDEX.rst ] && grep -q one.md /app/@dir@/INDEX.rst'\ncheck 'others stay'",
                ),
                ("solve", "; done\n", "; done\nls *.md > INDEX.rst\n"),
            ),
            fault(
                WEAK,
                ("tests/test.sh", '[ "$(cat /app/@dir@/one.md)" = "first @w@" ]', "ls /app/@dir@"),
                ("tests/test.sh", '[ "$(cat /app/@dir@/two.md)" = second ]', "true"),
                ("tests/test.sh", "! ls /app/@dir@/*.txt", "[ -d /app ]"),
                ("tests/test.sh", " && [ ! -e /app/@dir@/one.txt ]", ""),
            ),
            fault(
                LEAK,
                (
                    "files/hooks/solve.sh",
                    "",
                    '#!/bin/bash\ncd /app/@dir@\nfor f in *.txt; do mv "$f" "${f%.txt}.md"; done\n',
                ),
            ),
        ),
    ),
    Base(
        "server-port",
        "Change /app/server.ini so that the server listens on port @port@ and the log level is @level@. Keep the rest.",
        script_style("""
import configparser

config = configparser.ConfigParser()
config.read("/app/server.ini")
assert config["server"]["port"] == "@port@", "port"
assert config["log"]["level"] == "@level@", "level"
assert config["server"]["workers"] == "4", "the rest is kept"
assert config["server"]["host"] == "0.0.0.0"
"""),
        "sed -i -e 's/^port = .*/port = @port@/' -e 's/^level = .*/level = @level@/' /app/server.ini\n",
        {"server.ini": _INI},
        {"port": ("8080", "9443", "5005"), "level": ("debug", "error", "warning")},
        faults=(
            fault(HIDDEN, ("instruction", "on port @port@", "on the usual alternative port")),
            fault(
                HIDDEN,
                (
                    "tests/verify.py",
                    'assert config["server"]["workers"] == "4", "the rest is kept"',
                    'assert config["server"]["backlog"] == "511"',
                ),
                ("solve", " /app/server.ini", " -e 's/^workers = .*/&\\nbacklog = 511/' /app/server.ini"),
            ),
            fault(
                WEAK,
                (
                    "tests/verify.py",
                    'assert config["server"]["port"] == "@port@", "port"',
                    'assert config["server"]["port"], "port"',
                ),
                (
                    "tests/verify.py",
                    'assert config["log"]["level"] == "@level@", "level"',
                    'assert config["log"]["level"], "level"',
                ),
            ),
            fault(
                LEAK,
                (
                    "files/.server.ini.done",
                    "",
                    "[server]\nhost = 0.0.0.0\nport = @port@\nworkers = 4\n\n[log]\nlevel = @level@\n",
                ),
            ),
        ),
    ),
    Base(
        "pack-logs",
        "Pack all .log files below /app/var, and nothing else, into the gzipped tar archive /app/@name@.tar.gz. Paths "
        "in the archive are relative to /app/var.",
        pytest_style("""
import tarfile


def members():
    with tarfile.open("/app/@name@.tar.gz", "r:gz") as archive:
        return {m.name.removeprefix("./"): archive.extractfile(m).read() for m in archive if m.isfile()}


def test_exactly_the_logs():
    assert set(members()) == {"boot.log", "web/access.log", "web/old/@o@.log"}


def test_contents():
    assert members()["web/access.log"] == b"GET /\\n"
    assert members()["boot.log"] == b"booted\\n"
    assert members()["web/old/@o@.log"] == b"old\\n"
"""),
        "cd /app/var\nfind . -name '*.log' -type f | tar -czf /app/@name@.tar.gz -T -\n",
        {
            "var/boot.log": "booted\n",
            "var/web/access.log": "GET /\n",
            "var/web/old/@o@.log": "old\n",
            "var/web/page.html": "<p>\n",
        },
        {"name": ("logs", "backup", "archive"), "o": ("march", "april", "may")},
        faults=(
            fault(
                WEAK,
                (
                    "tests/test_outputs.py",
                    'assert set(members()) == {"boot.log", "web/access.log", "web/old/@o@.log"}',
                    "import os\n    assert os.path.exists('/app/@name@.tar.gz')",
                ),
                (
                    "tests/test_outputs.py",
                    """def test_contents():
    assert members()["web/access.log"] == b"GET /\\n"
    assert members()["boot.log"] == b"booted\\n"
    assert members()["web/old/@o@.log"] == b"old\\n"
""",
                    "",
                ),
            ),
            fault(HIDDEN, ("instruction", "/app/@name@.tar.gz", "in /app")),
            fault(
                LEAK,
                (
                    "files/ci/solution.sh",
                    "",
                    "cd /app/var\nfind . -name '*.log' -type f | tar -czf /app/@name@.tar.gz -T -\n",
                ),
            ),
        ),
    ),
    Base(
        "unpack-secret",
        "Somewhere inside /app/bundle.zip there is a file with a line that begins with 'token='. Write what follows "
        "the equals sign to /app/token.txt.",
        shell("""
check 'token' 'grep -qx "@t@" /app/token.txt'
check 'one line' '[ "$(wc -l < /app/token.txt)" -le 1 ]'
"""),
        "cd /tmp && rm -rf b && mkdir b && cd b && python3 -m zipfile -e /app/bundle.zip . "
        "&& grep -rh '^token=' . | cut -d= -f2 > /app/token.txt\n",
        {
            "make_bundle.py": 'import os, zipfile\nz = zipfile.ZipFile("/app/bundle.zip", "w")\nz.writestr("a/readme", "hello\\n")\nz.writestr("a/b/settings", "x=1\\ntoken=" + "".join(reversed("@rt@")) + "\\n")\nz.close()\nos.remove("/app/make_bundle.py")\n'
        },
        {"t": ("k7f3-blue", "z9q1-mint", "p0x8-coal"), "rt": lambda v: v["t"][::-1]},
        "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY files/ /app/\nRUN python3 /app/make_bundle.py\n",
        faults=(
            fault(SHORTCUT, ("solve", "", "echo @t@ > /app/token.txt\n")),
            fault(
                LEAK,
                (
                    "dockerfile",
                    "RUN python3 /app/make_bundle.py",
                    'RUN python3 /app/make_bundle.py && echo "@t@" > /app/.token.bak',
                ),
            ),
            fault(WEAK, ("tests/test.sh", """'grep -qx "@t@" /app/token.txt'""", "'test -f /app/token.txt'")),
        ),
    ),
    Base(
        "permissions",
        "Make /app/run.sh executable for everybody (mode 755) and /app/@secret@ readable and writable for its owner "
        "alone.",
        shell("""
check 'script' '[ "$(stat -c %a /app/run.sh)" = 755 ]'
check 'secret' '[ "$(stat -c %a /app/@secret@)" = 600 ]'
"""),
        "chmod 755 /app/run.sh\nchmod 600 /app/@secret@\n",
        {"run.sh": "#!/bin/bash\necho run\n", "@secret@": "hush\n"},
        {"secret": ("key.pem", "password.txt", "id_app")},
        faults=(
            fault(
                WEAK,
                ("tests/test.sh", '[ "$(stat -c %a /app/run.sh)" = 755 ]', "[ -f /app/run.sh ]"),
                ("tests/test.sh", '[ "$(stat -c %a /app/@secret@)" = 600 ]', "[ -f /app/@secret@ ]"),
            ),
            fault(
                HIDDEN,
                ("tests/test.sh", "check 'secret'", "check 'marker' '[ -e /app/.hardened_v2 ]'\ncheck 'secret'"),
                ("solve", "chmod 755 /app/run.sh\n", "chmod 755 /app/run.sh\ntouch /app/.hardened_v2\n"),
            ),
            fault(LEAK, ("files/harden.sh", "", "#!/bin/bash\nchmod 755 /app/run.sh\nchmod 600 /app/@secret@\n")),
        ),
    ),
    Base(
        "manifest",
        "Write the SHA-256 sums of all files in /app/@dir@ to /app/SHA256SUMS, in the format of sha256sum, with names "
        "relative to /app/@dir@ and sorted by name.",
        reward("cd /app/@dir@ && sha256sum * | cmp -s - /app/SHA256SUMS && ok=1"),
        "cd /app/@dir@ && sha256sum * > /app/SHA256SUMS\n",
        {"@dir@/alpha.bin": "alpha @x@\n", "@dir@/beta.bin": "beta\n", "@dir@/gamma.bin": "gamma\n"},
        {"dir": ("release", "dist", "files"), "x": ("1", "22", "333")},
        faults=(
            fault(
                WEAK,
                (
                    "tests/test.sh",
                    "sha256sum * | cmp -s - /app/SHA256SUMS && ok=1",
                    "grep -c bin /app/SHA256SUMS && ok=1",
                ),
            ),
            fault(
                WEAK,
                (
                    "tests/test.sh",
                    "sha256sum * | cmp -s - /app/SHA256SUMS && ok=1",
                    "sha256sum * | cmp -s - /app/SHA256SUMS || true\nok=1",
                ),
            ),
            fault(HIDDEN, ("instruction", " to /app/SHA256SUMS,", " to a file,")),
        ),
    ),
    Base(
        "current-link",
        "Make /app/current a symbolic link to the newest release below /app/releases (the names are dates). Afterwards "
        "write the name of that release to /app/VERSION.",
        pytest_style("""
import os


def test_link():
    assert os.path.islink("/app/current")
    assert os.path.basename(os.path.realpath("/app/current")) == "@new@"


def test_version():
    with open("/app/VERSION") as file:
        assert file.read().strip() == "@new@"
"""),
        'cd /app\nnew=$(ls releases | sort | tail -1)\nln -sfn "releases/$new" current\necho "$new" > VERSION\n',
        {"releases/2023-01-05/app": "1\n", "releases/@new@/app": "3\n", "releases/2022-12-30/app": "2\n"},
        {"new": ("2023-04-01", "2023-09-17", "2024-02-29")},
        faults=(
            fault(
                HIDDEN,
                (
                    "tests/test_outputs.py",
                    "def test_version",
                    "def test_previous():\n    assert os.path.islink('/app/previous_release')\n\n\ndef test_version",
                ),
                (
                    "solve",
                    'echo "$new" > VERSION',
                    'echo "$new" > VERSION\nln -sfn releases/2023-01-05 previous_release',
                ),
            ),
            fault(
                WEAK,
                (
                    "tests/test_outputs.py",
                    '    assert os.path.islink("/app/current")\n    assert os.path.basename(os.path.realpath("/app/current")) == "@new@"',
                    '    assert os.path.lexists("/app/current")',
                ),
                ("tests/test_outputs.py", 'assert file.read().strip() == "@new@"', "assert file.read()"),
            ),
            fault(
                WEAK,
                ("tests/test_outputs.py", "def test_link", "def check_link"),
                ("tests/test_outputs.py", "def test_version", "def check_version"),
                (
                    "tests/test_outputs.py",
                    "import os\n",
                    "import os\n\n\ndef test_root():\n    assert os.path.isdir('/app')\n",
                ),
            ),
        ),
    ),
    Base(
        "dotenv",
        "Turn the flat JSON object in /app/settings.json into /app/.env: a line KEY=value for every entry, keys in "
        "upper case, in alphabetical order.",
        script_style("""
with open("/app/.env") as file:
    lines = file.read().split()
assert lines == ["DB_HOST=@h@", "DB_PORT=5432", "MODE=@m@"], lines
"""),
        "jq -r 'to_entries | sort_by(.key) | .[] | (.key | ascii_upcase) + \"=\" + (.value | tostring)' "
        "/app/settings.json > /app/.env\n",
        {"settings.json": '{"mode": "@m@", "db_port": 5432, "db_host": "@h@"}\n'},
        {"h": ("db1", "localhost", "postgres"), "m": ("fast", "safe", "test")},
        faults=(
            fault(SHORTCUT, ("solve", "", "printf 'DB_HOST=@h@\\nDB_PORT=5432\\nMODE=@m@\\n' > /app/.env\n")),
            fault(LEAK, ("files/.env.example", "", "DB_HOST=@h@\nDB_PORT=5432\nMODE=@m@\n")),
            fault(
                WEAK,
                (
                    "tests/verify.py",
                    'assert lines == ["DB_HOST=@h@", "DB_PORT=5432", "MODE=@m@"], lines',
                    "assert len(lines) == 3",
                ),
            ),
        ),
    ),
    Base(
        "split-events",
        "/app/events.csv has fields separated by semicolons. Write the rows whose kind is @k@, header included, to "
        "/app/@k@.csv, with commas instead of semicolons.",
        pytest_style("""
import csv


def rows():
    with open("/app/@k@.csv", newline="") as file:
        return list(csv.reader(file, delimiter=","))


def test_header():
    assert rows()[0] == ["id", "kind", "weight"]


def test_rows():
    assert rows()[1:] == [["1", "@k@", "12"], ["3", "@k@", "@w@"]]
"""),
        "awk -F';' 'NR == 1 || $2 == \"@k@\"' /app/events.csv | tr ';' ',' > /app/@k@.csv\n",
        {"events.csv": _EVENTS},
        {"k": ("jump", "spin", "turn"), "w": ("31", "44", "58")},
        faults=(
            fault(
                HIDDEN,
                ("instruction", ", with commas instead of semicolons", ", as a table"),
                ("tests/test_outputs.py", 'delimiter=","', 'delimiter="|"'),
                ("solve", "tr ';' ','", "tr ';' '|'"),
            ),
            fault(
                HIDDEN,
                ("tests/test_outputs.py", '["id", "kind", "weight"]', '["event_id", "category", "load_kg"]'),
                ("solve", "| tr ';' ','", "| tr ';' ',' | sed '1s/.*/event_id,category,load_kg/'"),
            ),
            fault(SHORTCUT, ("solve", "", "printf 'id,kind,weight\\n1,@k@,12\\n3,@k@,@w@\\n' > /app/@k@.csv\n")),
            fault(LEAK, ("files/fixtures/result.csv", "", "id,kind,weight\n1,@k@,12\n3,@k@,@w@\n")),
        ),
    ),
)
