"""What reading a task shows, without running anything."""

from __future__ import annotations

import base64

import pytest

from t1.synthesis.audit import Kind, audit_texts
from t1.synthesis.audit.python_syntax import read_module
from t1.synthesis.audit.requirements import hidden_requirements
from t1.synthesis.audit.shell_syntax import read_script
from t1.synthesis.audit.sources import is_code, read_sources

PYTHON = "#!/bin/bash\npython3 /tests/test_outputs.py\n"


def test_a_sound_task_is_accepted_with_a_score(write):
    report = audit_texts(write())
    assert report.accepted and not report.rejects
    assert 0.5 < report.score <= 1


@pytest.mark.parametrize(
    ("asserted", "solved", "missing"),
    [
        ('assert open("/app/report_v2.txt").read()', "echo x > /app/report_v2.txt", "report_v2.txt"),
        ('assert data["grand_total"] == 3', """echo '{"grand_total": 3}' > /app/count.txt""", "grand_total"),
        ('assert text.startswith("## Summary:")', "echo '## Summary: 3' > /app/count.txt", "## Summary:"),
        ("assert port == 9443", "wc -l /app/names.txt; serve 9443", "9443"),
        ("from work import weighted_mean", "echo 'def weighted_mean(): 1' > work.py", "weighted_mean"),
        ('assert csv.reader(file, delimiter="|")', "tr '\\n' '|' < /app/names.txt", "separator"),
        ('assert re.fullmatch(r"\\d{4}/\\d{2}/\\d{2}", day)', "date +%Y/%m/%d", "format"),
        ('assert datetime.strptime(day, "%d~%m~%Y")', "date +%d~%m~%Y", "format"),
        ('assert f"{low}-{low + 9} {count}" in lines', """awk '{ printf "%d-%d %d", $1, $1 + 9, n }' x""", "'-'"),
    ],
    ids=["path", "key", "text", "port", "name", "separator", "pattern", "time", "shape"],
)
def test_what_only_verifier_and_solution_know_is_a_hidden_requirement(write, asserted, solved, missing):
    task = write(test=PYTHON, tests={"test_outputs.py": f"import re\n\n{asserted}\n"}, solve=solved)
    (reject,) = hidden_requirements(read_sources(task))
    assert missing in reject.reason
    assert (reject.file, reject.line) == ("tests/test_outputs.py", 3)


@pytest.mark.parametrize(
    ("asserted", "solved", "told"),
    [
        ('assert open("/app/report.txt").read()', "echo x > /app/report.txt", "Write it to report.txt."),
        ('assert re.fullmatch(r"\\d{4}-\\d{2}-\\d{2}", day)', "date +%Y-%m-%d", "Write it as YYYY-MM-DD."),
        ('assert csv.reader(file, delimiter=";")', "tr , ';' < x", "Separate the fields by semicolons."),
        ("assert mode == 600", "chmod 600 /app/x", "Only its owner may read it."),
        ("assert total == 12", "echo 12", "There are twelve of them."),
        ('assert name == "Bo"', "echo Bo", "Say who is second."),
        ('assert f"{low}-{high}" in lines', """awk '{ printf "%d-%d", $1, $2 }' x""", "Write `LOW-HIGH`."),
        ('assert f"{low}-{high}" in lines', """awk '{ printf "%d-%d", $1, $2 }' x""", "Put a hyphen between them."),
        ('assert get(f"http://{host}:{port}/")', "serve $host:$port", "Serve it."),
        ('assert number == 48151, "quux must be 48151"', "echo $((3 * 16050 + 1))", "Compute it."),
    ],
    ids=["named", "date", "separator", "mode", "number", "in the environment", "shape", "hyphen", "URL", "computed"],
)
def test_what_is_told_or_found_or_computed_is_no_hidden_requirement(write, asserted, solved, told):
    task = write(instruction=told, test=PYTHON, tests={"test_outputs.py": f"{asserted}\n"}, solve=solved)
    assert hidden_requirements(read_sources(task)) == []


SOLUTION = "sort -u /app/names.txt | wc -l > /app/count.txt\ncp /app/count.txt /app/count.bak\n"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("files/help/solve.sh", SOLUTION),
        ("files/blob", base64.b64encode(SOLUTION.encode()).decode()),
        ("files/old/expected.txt", "Ana\nBo\nCy\n"),
        ("files/ci/test_it.py", "x = 1\nassert len(names) == 3\nassert names[0] == 'Ana'\n"),
    ],
    ids=["solution", "solution in base64", "expected values", "assertions"],
)
def test_copies_of_tests_and_solution_in_the_environment_are_leaks(write, file, text):
    """Case V5."""
    tests = {
        "expected.txt": "Ana\nBo\nCy\n",
        "test_it.py": "assert len(names) == 3\nassert names[0] == 'Ana'\nassert names[-1] == 'Cy'\n",
    }
    report = audit_texts(
        write(environment={file: text, "files/names.txt": "Cy\nBo\nAna\n"}, tests=tests, solve=SOLUTION)
    )
    assert [r.file for r in report.rejects if r.kind is Kind.TEST_LEAKAGE] == [f"environment/{file}"]


def test_a_dockerfile_that_copies_the_tests_is_a_leak(write):
    """Case V5."""
    dockerfile = "FROM x\nCOPY files/ /app/\nCOPY tests/ /app/checks/\n"
    (reject,) = audit_texts(write(dockerfile=dockerfile)).rejects
    assert (reject.kind, reject.file, reject.line) == (Kind.TEST_LEAKAGE, "environment/Dockerfile", 3)


def test_a_file_that_the_solution_mends_is_no_leak(write):
    code = "".join(f"def number_{i}():\n    return {i}\n" for i in range(9))
    mended = code.replace("return 8", "return 80")
    task = write(
        instruction="Mend /app/code.py.", environment={"files/code.py": code}, solve=f"cat > code.py <<'E'\n{mended}E\n"
    )
    assert Kind.TEST_LEAKAGE not in audit_texts(task).kinds


@pytest.mark.parametrize(
    "solve",
    ["cp /tests/expected.txt /app/count.txt\n", "echo 1 > /logs/verifier/reward.txt\n", "echo 3 > /app/count.txt\n"],
)
def test_a_solution_without_work_is_a_shortcut(write, solve):
    (reject,) = audit_texts(write(solve=solve)).rejects
    assert (reject.kind, reject.file, reject.line) == (Kind.SOLUTION_SHORTCUT, "solution/solve.sh", 2)


@pytest.mark.parametrize(
    "body",
    [
        "def test_a():\n    pass\n",
        "def test_a():\n    assert True\n",
        "import pytest\n@pytest.mark.skip\ndef test_a():\n    assert a\n",
    ],
    ids=["nothing", "a constant", "skipped"],
)
def test_a_verifier_that_cannot_fail_is_weak(write, body):
    """Case V3."""
    task = write(test="#!/bin/bash\npytest /tests/test_outputs.py\n", tests={"test_outputs.py": body})
    assert audit_texts(task).kinds == {Kind.WEAK_VERIFIER}


def test_a_test_module_that_does_not_parse_is_named(write):
    report = audit_texts(write(tests={"test_outputs.py": "def broken(:\n"}))
    assert "is not Python" in next(r.reason for r in report.rejects if r.kind is Kind.WEAK_VERIFIER)


def test_shell_inside_an_argument_is_read_as_shell_and_keeps_its_line():
    script = read_script(
        "check() { eval \"$2\"; }\n\ncheck 'the name' '[ \"$(cat /app/x)\" = oak ] && grep -q elm /app/y'\n"
    )
    assert {(word.text, word.line) for word in script.literals} >= {
        ("oak", 3),
        ("elm", 3),
        ("/app/x", 3),
        ("/app/y", 3),
    }
    assert "the name" not in {word.text for word in script.literals}


def test_broken_shell_is_read_as_far_as_it_goes():
    script = read_script("cat > /app/out <<'E'\nhello\nE\nif [ a = b; then\n")
    assert "hello\n" in {word.text for word in script.literals}


def test_messages_and_docstrings_are_no_demands():
    module = read_module('"""Doc."""\ndef test_a():\n    "More."\n    assert x == "want", "message"\n')
    assert [constant.value for constant in module.constants] == ["want"]


def test_programs_are_told_from_material():
    assert is_code("a/Makefile") and is_code("x.py") and is_code("run", "#!/bin/sh\n")
    assert not is_code("notes.txt") and not is_code("py")
