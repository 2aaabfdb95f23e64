"""`t1 tasks audit` and what `t1 tasks check` reads."""

from __future__ import annotations

import json

from t1.cli import main


def test_every_task_is_a_json_object_and_the_last_line_counts(write, capsys):
    write("good")
    root = write("poor", solve="cp /tests/answer /app/count.txt\n").path.parent
    assert main(["tasks", "audit", str(root), "--static", "--json"]) == 1
    *reports, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert [(report["task"], report["accepted"]) for report in reports] == [("good", True), ("poor", False)]
    assert summary["tasks"] == 2 and summary["accepted"] == 1 and summary["solution-shortcut"] == 1


def test_a_person_reads_file_line_and_reason(write, capsys):
    task = write(solve="cp /tests/answer /app/count.txt\n")
    assert main(["tasks", "audit", str(task.path), "--static"]) == 1
    assert "solution-shortcut: solution/solve.sh:2: the solution uses" in capsys.readouterr().out


def test_a_judge_without_a_model_is_refused(write, capsys):
    assert main(["tasks", "audit", str(write().path), "--judge", "http://127.0.0.1:1/v1"]) == 2
    assert "--judge-model" in capsys.readouterr().err


def test_check_reads_a_task_and_goes_on_after_a_broken_one(write, capsys, provider):
    root = write("good").path.parent
    write("poor", solve="grep -c . /app/names.txt > /app/count.txt\n: /tests/answer\n")
    (root / "broken").mkdir()
    (root / "broken" / "task.toml").write_text("version = [")
    assert main(["tasks", "check", str(root)]) == 1
    said = capsys.readouterr().out
    assert "✗ broken" in said and "is not TOML" in said and "✓ good" in said
    assert (
        "solution/solve.sh:3: the solution uses the verifier's own files" in said and "1 of 3 tasks are sound" in said
    )


def test_labels_beside_the_tasks_give_precision_and_recall(write, capsys):
    write("good")
    root = write("poor", solve="cp /tests/answer /app/count.txt\n").path.parent
    assert main(["tasks", "audit", str(root), "--static", "--labelled"]) == 2
    assert "labels.json" in capsys.readouterr().err
    (root / "labels.json").write_text(
        '{"good": {"planted": "weak-verifier"}, "poor": {"planted": "solution-shortcut"}}'
    )
    assert main(["tasks", "audit", str(root), "--static", "--labelled", "--json"]) == 0
    table = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert table["solution-shortcut"] == {"precision": 1.0, "recall": 1.0, "planted": 1}
    assert table["weak-verifier"] == {"precision": 1.0, "recall": 0.0, "planted": 1}
