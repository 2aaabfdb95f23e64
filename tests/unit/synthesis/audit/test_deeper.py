"""Databases, tables of the verifier's own cases, marks and modes that nobody states, and attacks that pay."""

from __future__ import annotations

import contextlib
import sqlite3

from t1.synthesis.audit import Kind, audit_task, audit_texts
from t1.synthesis.audit.databases import is_database, rows_of, with_other_values
from t1.synthesis.audit.mutations import mutants


def database(*rows: tuple[str, int | None]) -> bytes:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE items (name TEXT, count INTEGER)")
        db.executemany("INSERT INTO items VALUES (?, ?)", rows)
        db.commit()
        return db.serialize()


def test_a_database_with_other_values_keeps_its_tables_and_says_nothing_of_the_old():
    content = database(("bolt", 3), ("nut", None))
    changed = with_other_values(content)
    assert is_database(changed) and rows_of(content) == "bolt 3\nnut None"
    assert rows_of(changed) == "boltq 1000004\nnutq None"
    assert [mutant.name for mutant in mutants("/app/a.db", content)] == ["other values"]


def test_a_database_that_is_none_or_a_view_that_never_ends_is_left_alone():
    assert rows_of(b"SQLite format 3\0 but no more") == ""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE a (n)")
        db.execute("INSERT INTO a VALUES (1)")
        db.execute(
            "CREATE TRIGGER t AFTER UPDATE ON a BEGIN INSERT INTO a WITH RECURSIVE c(x) AS "
            "(SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c; END"
        )
        db.commit()
        content = db.serialize()
    assert with_other_values(content) == content


def test_words_that_the_instruction_states_stay_and_the_others_are_mutated():
    made = {mutant.name: mutant.content for mutant in mutants("/app/a.md", b"# Fixes\n- leak\n", "Begin with # Fixes")}
    assert made["other words where the instruction has none"] == b"# Fixes\n- yrnx\n"


PROGRAM_TEST = """
import subprocess


def say(word):
    return subprocess.run(["/app/turn", word], capture_output=True, text=True).stdout.strip()


def test_words():
    for word, answer in [("harbor", "robrah"), ("lamp", "pmal"), ("stone", "enots")]:
        assert say(word) == answer
"""


def test_a_program_that_is_a_table_of_the_verifiers_cases_is_a_shortcut_and_nothing_else(write):
    table = "cat > /app/turn <<'E'\ncase $1 in harbor) echo robrah;; lamp) echo pmal;; stone) echo enots;; esac\nE\n"
    honest = "printf '#!/bin/bash\\necho \"$1\" | rev\\n' > /app/turn\n"
    instruction = "Write the program /app/turn, which prints its argument from its last letter to its first."
    tests = {"test_turn.py": PROGRAM_TEST}
    found = audit_texts(write("table", instruction=instruction, solve=table, tests=tests, test="python3 /tests/run"))
    assert found.kinds == {Kind.SOLUTION_SHORTCUT}
    assert found.rejects[0].file == "solution/solve.sh" and "test_turn.py" in found.rejects[0].reason
    clean = audit_texts(write("honest", instruction=instruction, solve=honest, tests=tests, test="python3 /tests/run"))
    assert clean.kinds == frozenset()


def test_a_mode_or_an_expected_line_that_nobody_states_is_a_hidden_requirement(write):
    test = '[ "$(stat -c %a /app/count.txt)" = 640 ] && cmp /tests/expected.txt /app/count.txt\n'
    solve = "(echo 'total of names'; wc -l < /app/names.txt) > /app/count.txt; chmod u=rw,g=r,o= /app/count.txt\n"
    tests = {"expected.txt": "total of names\n3\n"}
    found = audit_texts(write("hidden", test=test, solve=solve, tests=tests))
    reasons = " ".join(reject.reason for reject in found.rejects)
    assert "the mode 640" in reasons and "'total of names'" in reasons
    stated = (
        "Write 'total of names' and then the number of lines of /app/names.txt to /app/count.txt, with the mode 640."
    )
    assert audit_texts(write("stated", instruction=stated, test=test, solve=solve, tests=tests)).kinds == frozenset()


async def test_an_attack_that_earns_everything_is_a_weak_verifier(write, provider):
    instruction = (
        "Write the word names, in capital letters and once for each line of /app/names.txt, to /app/count.txt."
    )
    test = """mkdir -p /logs/verifier
if grep -qi names /app/count.txt && [ "$(wc -l < /app/count.txt)" -lt 9 ]; then r=1; else r=0; fi
echo $r > /logs/verifier/reward.txt
"""
    task = write(
        "paying", instruction=instruction, test=test, solve="sed s/.*/NAMES/ /app/names.txt > /app/count.txt\n"
    )
    report = await audit_task(task, provider=provider)
    assert any("stuffed-outputs earns the full reward" in reject.reason for reject in report.rejects), report
    assert {c.name: c.score for c in report.criteria}["attacks earn nothing"] == 0.0
