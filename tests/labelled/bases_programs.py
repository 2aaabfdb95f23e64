# ruff: noqa: E501 (texts of tasks)
"""Tasks about git, programs, databases and services, with the slips that their authors could make."""

from __future__ import annotations

from tests.labelled.drafts import HIDDEN, LEAK, SHORTCUT, WEAK, Base, fault, pytest_style, reward, shell, unittest_style

_GIT = "git config --global user.email a@example.org && git config --global user.name A"
_REPOSITORY = f"""FROM debian:bookworm-slim
WORKDIR /app/repo
COPY files/ /app/repo/
RUN {_GIT} && git init -q -b main . && git add -A && git commit -qm 'first @w@'
RUN echo two >> a.txt && git commit -qam 'second' --author='Bea <bea@example.org>'
RUN echo three >> a.txt && git commit -qam 'third' --author='Bea <bea@example.org>'
"""
_SERVER = """cat > /app/server.py <<'PY'
import http.server


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"@word@" if self.path == "/health" else b"none"
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", @port@), Handler).serve_forever()
PY
"""
_SERVICE_TEST = """
import subprocess
import time
import urllib.request


def ask(path):
    server = subprocess.Popen(["python3", "/app/server.py"])
    try:
        for _ in range(100):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:@port@{path}", timeout=2) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, ""
            except OSError:
                time.sleep(0.03)
        return 0, ""
    finally:
        server.kill()
        server.wait()


def test_health():
    status, body = ask("/health")
    assert status == 200
    assert body == "@word@"


def test_other_paths():
    status, _ = ask("/nothing")
    assert status == 404
"""
_CALC = '''def median(numbers):
    """The middle one; of an even number, the mean of the two in the middle."""
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle]
'''
_FIXED = _CALC.replace(
    "    return ordered[middle]\n",
    "    if len(ordered) % 2:\n        return ordered[middle]\n    return (ordered[middle - 1] + ordered[middle]) / 2\n",
)
_ORDERS = """import os, sqlite3
db = sqlite3.connect("/app/shop.db")
db.execute("create table orders (customer text, cents integer)")
db.executemany("insert into orders values (?, ?)",
               [("@top@", 700), ("Mona", 450), ("@top@", @x@), ("Nils", 900), ("Mona", 20)])
db.commit()
os.remove("/app/seed.py")
"""

BASES = (
    Base(
        "feature-branch",
        "In the git repository /app/repo make a branch called @branch@ from main, add there a file CHANGES with the "
        "line 'added @w@', and commit it with the message 'Add changes'. Leave main as it is.",
        shell("""
check 'branch' 'git -C /app/repo rev-parse --verify @branch@'
check 'content' '[ "$(git -C /app/repo show @branch@:CHANGES)" = "added @w@" ]'
check 'message' '[ "$(git -C /app/repo log -1 --format=%s @branch@)" = "Add changes" ]'
check 'main is left' '! git -C /app/repo cat-file -e main:CHANGES && git -C /app/repo rev-parse --verify @branch@'
"""),
        "cd /app/repo\nexport GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A "
        "GIT_COMMITTER_EMAIL=a@example.org\ngit checkout -q -b @branch@ main\necho 'added @w@' > CHANGES\n"
        "git add CHANGES\ngit commit -qm 'Add changes'\n",
        {"a.txt": "one\n"},
        {"branch": ("feature", "topic", "next"), "w": ("alder", "beech", "cypress")},
        _REPOSITORY,
        faults=(
            fault(HIDDEN, ("instruction", ", and commit it with the message 'Add changes'", ", and commit it")),
            fault(HIDDEN, ("instruction", "a branch called @branch@", "a new branch"), also=()),
            fault(
                WEAK,
                (
                    "tests/test.sh",
                    "check 'branch' 'git -C /app/repo rev-parse --verify @branch@'",
                    "check 'repo' 'git -C /app/repo status'",
                ),
                (
                    "tests/test.sh",
                    """'[ "$(git -C /app/repo show @branch@:CHANGES)" = "added @w@" ]'""",
                    "'git -C /app/repo log'",
                ),
                (
                    "tests/test.sh",
                    """'[ "$(git -C /app/repo log -1 --format=%s @branch@)" = "Add changes" ]'""",
                    "'[ -d /app/repo/.git ]'",
                ),
                ("tests/test.sh", " && git -C /app/repo rev-parse --verify @branch@", ""),
            ),
            fault(
                LEAK,
                (
                    "files/tools/solve.sh",
                    "",
                    "cd /app/repo\ngit checkout -q -b @branch@ main\necho 'added @w@' > CHANGES\ngit add CHANGES\ngit commit -qm 'Add changes'\n",
                ),
            ),
        ),
    ),
    Base(
        "commits-by-author",
        "Count the commits of each author in /app/repo and write lines of the form NAME COUNT to /app/authors.txt, the "
        "author with the most commits first.",
        reward("""
expected=$'Bea 2\\nA 1'
[ "$(cat /app/authors.txt)" = "$expected" ] && ok=1
"""),
        "git -C /app/repo log --format=%an | sort | uniq -c | sort -rn | awk '{print $2, $1}' > /app/authors.txt\n",
        {"a.txt": "one @w@\n"},
        {"w": ("rye", "oat", "spelt")},
        _REPOSITORY,
        faults=(
            fault(SHORTCUT, ("solve", "", "printf 'Bea 2\\nA 1\\n' > /app/authors.txt\n")),
            fault(
                WEAK,
                (
                    "tests/test.sh",
                    '[ "$(cat /app/authors.txt)" = "$expected" ] && ok=1',
                    '[ -n "$expected" ] && ls /app/authors.txt && ok=1',
                ),
            ),
            fault(
                LEAK,
                (
                    "dockerfile",
                    "WORKDIR /app/repo\n",
                    "WORKDIR /app/repo\nRUN printf 'Bea 2\\nA 1\\n' > /app/authors.ref\n",
                ),
            ),
        ),
    ),
    Base(
        "mean-script",
        "Write a Python program /app/mean.py that takes the name of a file with one number per line and prints the mean "
        "with two decimals, such as 3.50.",
        pytest_style("""
import subprocess


def run(numbers):
    with open("/tmp/numbers.txt", "w") as file:
        file.write("".join(f"{n}\\n" for n in numbers))
    done = subprocess.run(["python3", "/app/mean.py", "/tmp/numbers.txt"], capture_output=True, text=True)
    return done.stdout.strip()


def test_whole_numbers():
    assert run([1, 2, 3, @n@]) == "@m@"


def test_one_number():
    assert run([7]) == "7.00"


def test_fractions():
    assert run([0.25, 0.5]) == "0.38" or run([0.25, 0.5]) == "0.37"
"""),
        """cat > /app/mean.py <<'PY'
import sys

with open(sys.argv[1]) as file:
    numbers = [float(line) for line in file if line.strip()]
print(f"{sum(numbers) / len(numbers):.2f}")
PY
""",
        {},
        {"n": ("6", "10", "14"), "m": ("3.00", "4.00", "5.00")},
        faults=(
            fault(
                HIDDEN,
                (
                    "tests/test_outputs.py",
                    "def test_fractions",
                    'def test_help():\n    done = subprocess.run(["python3", "/app/mean.py", "--version-string"], capture_output=True, text=True)\n    assert done.stdout.strip() == "meantool 4.2"\n\n\ndef test_fractions',
                ),
                (
                    "solve",
                    "import sys\n",
                    "import sys\n\nif sys.argv[1] == '--version-string':\n    print('meantool 4.2')\n    sys.exit()\n",
                ),
            ),
            fault(
                WEAK,
                ("tests/test_outputs.py", '== "@m@"', "is not None"),
                ("tests/test_outputs.py", 'run([7]) == "7.00"', "run([7]) is not None"),
                (
                    "tests/test_outputs.py",
                    'assert run([0.25, 0.5]) == "0.38" or run([0.25, 0.5]) == "0.37"',
                    'import os\n    assert os.path.exists("/app/mean.py")',
                ),
            ),
            fault(
                LEAK,
                (
                    "files/examples/mean_reference.py",
                    "",
                    'import sys\n\nwith open(sys.argv[1]) as file:\n    numbers = [float(line) for line in file if line.strip()]\nprint(f"{sum(numbers) / len(numbers):.2f}")\n',
                ),
            ),
            fault(
                HIDDEN,
                ("instruction", " /app/mean.py", ""),
            ),
        ),
    ),
    Base(
        "fix-median",
        "The function median in /app/calc.py is wrong for an even number of values. Repair it; its docstring says what "
        "it should do.",
        unittest_style("""
import sys
import unittest

sys.path.insert(0, "/app")
from calc import median


class TestMedian(unittest.TestCase):
    def test_odd(self):
        self.assertEqual(median([5, 1, @o@]), 5)

    def test_even(self):
        self.assertEqual(median([1, 2, 3, 10]), 2.5)
        self.assertEqual(median([@e@, 0]), @h@)
"""),
        f"cat > /app/calc.py <<'PY'\n{_FIXED}PY\n",
        {"calc.py": _CALC, "README": "calc: small sums for the @o@ people of the office\n"},
        {"o": ("9", "30", "71"), "e": ("4", "8", "12"), "h": ("2", "4", "6")},
        faults=(
            fault(LEAK, ("files/calc.py.fixed", "", _FIXED)),
            fault(
                WEAK,
                ("tests/test_outputs.py", "self.assertEqual(median([1, 2, 3, 10]), 2.5)", "pass"),
                ("tests/test_outputs.py", "        self.assertEqual(median([@e@, 0]), @h@)\n", ""),
            ),
            fault(
                HIDDEN,
                ("tests/test_outputs.py", "from calc import median", "from calc import median, weighted_quantile"),
                (
                    "tests/test_outputs.py",
                    "    def test_even",
                    "    def test_quantile(self):\n        self.assertEqual(weighted_quantile([1], [1]), 1)\n\n    def test_even",
                ),
                ("solve", "PY\n", "\n\ndef weighted_quantile(values, weights):\n    return values[0]\nPY\n"),
            ),
        ),
    ),
    Base(
        "health-service",
        "Write /app/server.py: an HTTP server on 127.0.0.1, port @port@, that answers GET /health with status 200 and "
        "the body @word@, and every other path with status 404.",
        pytest_style(_SERVICE_TEST),
        _SERVER,
        {},
        {"port": ("8123", "9091", "7654"), "word": ("healthy", "alive", "fine")},
        faults=(
            fault(HIDDEN, ("instruction", ", port @port@,", "")),
            fault(
                HIDDEN,
                (
                    "instruction",
                    "GET /health with status 200 and the body @word@",
                    "a request about its health suitably",
                ),
            ),
            fault(
                WEAK,
                (
                    "tests/test_outputs.py",
                    '    assert status == 200\n    assert body == "@word@"',
                    "    assert status is not None",
                ),
                ("tests/test_outputs.py", "assert status == 404", "assert status in (0, 200, 404, 500)"),
            ),
            fault(LEAK, ("files/lib/old_server.py", "", _SERVER.split("\n", 1)[1].rsplit("PY\n", 1)[0])),
        ),
    ),
    Base(
        "hello-make",
        "Write /app/Makefile so that `make` in /app builds the program /app/@bin@ from main.c and `make clean` removes "
        "it again.",
        reward("""
rm -rf /tmp/build && cp -r /app /tmp/build && cd /tmp/build || exit 1
rm -f @bin@
make -s && [ "$(./@bin@)" = "hello @w@" ] && make -s clean && [ ! -e @bin@ ] && ok=1
"""),
        "cat > /app/Makefile <<'M'\n@bin@: main.c\n\tgcc -o @bin@ main.c\n\nclean:\n\trm -f @bin@\n\n.PHONY: clean\nM\n",
        {"main.c": '#include <stdio.h>\nint main(void) { puts("hello @w@"); return 0; }\n'},
        {"bin": ("hello", "greet", "salute"), "w": ("world", "moon", "mars")},
        faults=(
            fault(
                HIDDEN,
                ("instruction", " and `make clean` removes it again", ""),
                ("tests/test.sh", "make -s clean", "make -s mrproper"),
                ("solve", "clean", "mrproper"),
            ),
            fault(
                WEAK,
                (
                    "tests/test.sh",
                    'make -s && [ "$(./@bin@)" = "hello @w@" ] && make -s clean && [ ! -e @bin@ ] && ok=1',
                    "make -s || true\n[ -f /app/Makefile ] && ok=1",
                ),
            ),
            fault(
                LEAK,
                (
                    "files/.Makefile.swp.txt",
                    "",
                    "@bin@: main.c\n\tgcc -o @bin@ main.c\n\nclean:\n\trm -f @bin@\n\n.PHONY: clean\n",
                ),
            ),
        ),
    ),
    Base(
        "top-customer",
        "The SQLite database /app/shop.db has a table orders. Find the customer who spent the most in total and write "
        "a line CUSTOMER,CENTS to /app/top.csv.",
        pytest_style("""
def test_top_customer():
    with open("/app/top.csv") as file:
        customer, cents = file.read().strip().split(",")
    assert customer == "@top@"
    assert int(cents) == @sum@
"""),
        "sqlite3 -csv /app/shop.db 'select customer, sum(cents) as s from orders group by customer order by s desc "
        "limit 1' > /app/top.csv\n",
        {"seed.py": _ORDERS},
        {"top": ("Olga", "Pia", "Ruth"), "x": ("650", "811", "1340"), "sum": lambda v: str(700 + int(v["x"]))},
        "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY files/ /app/\nRUN python3 /app/seed.py\n",
        faults=(
            fault(SHORTCUT, ("solve", "", "echo '@top@,@sum@' > /app/top.csv\n")),
            fault(
                WEAK,
                ("tests/test_outputs.py", 'assert customer == "@top@"', "assert customer"),
                ("tests/test_outputs.py", "assert int(cents) == @sum@", "assert int(cents) > 0"),
            ),
            fault(
                LEAK, ("dockerfile", "RUN python3 /app/seed.py\n", "RUN python3 /app/seed.py\nENV ANSWER=@top@,@sum@\n")
            ),
        ),
    ),
    Base(
        "node-slug",
        "Write a Node program /app/slug.js that turns its first argument into a slug: lower case, every run of other "
        "characters than letters and digits becomes one hyphen, none at the ends. It prints the slug.",
        pytest_style("""
import subprocess


def slug(text):
    return subprocess.run(["node", "/app/slug.js", text], capture_output=True, text=True).stdout.strip()


def test_words():
    assert slug("@A@ Day") == "@a@-day"


def test_runs_and_ends():
    assert slug("  One -- two!! ") == "one-two"
    assert slug("v1.2.3") == "v1-2-3"
"""),
        """cat > /app/slug.js <<'JS'
const text = process.argv[2] || "";
console.log(text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, ""));
JS
""",
        {},
        {"A": ("Sunny", "Rainy", "Windy"), "a": ("sunny", "rainy", "windy")},
        faults=(
            fault(
                WEAK,
                ("tests/test_outputs.py", 'assert slug("@A@ Day") == "@a@-day"', 'slug("@A@ Day") == "@a@-day"'),
                ("tests/test_outputs.py", 'assert slug("  One -- two!! ") == "one-two"', 'slug("  One -- two!! ")'),
                ("tests/test_outputs.py", 'assert slug("v1.2.3") == "v1-2-3"', "assert slug is not None"),
            ),
            fault(
                LEAK,
                (
                    "files/node_modules/.slug/index.js",
                    "",
                    'const text = process.argv[2] || "";\nconsole.log(text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, ""));\n',
                ),
            ),
            fault(HIDDEN, ("instruction", "/app/slug.js", "in /app")),
        ),
    ),
)
