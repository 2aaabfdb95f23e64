"""docs/laws.md names code and tests that exist: a promise whose guard was renamed or deleted is found."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from .pages import ROOT

PAGE = ROOT / "docs" / "laws.md"
_GUARD = re.compile(r"\[`(\w+)`\]\(\.\./([\w/.-]+\.py)\)")
ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and ".py" in line]


@cache
def defined(path: Path) -> set[str]:
    """Functions, classes and module constants of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {
        node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:60])
def test_a_promise_has_code_that_keeps_it_and_a_test_that_fails(row: str) -> None:
    promise, kept, fails = (cell for cell in row.strip("| ").split(" | "))
    for cell in (kept, fails):
        guards = _GUARD.findall(cell)
        assert guards, f"{promise}: nothing is named"
        for name, path in guards:
            assert (ROOT / path).is_file(), f"{promise}: {path} does not exist"
            assert name in defined(ROOT / path), f"{promise}: {path} defines no {name}"
    assert all(name.startswith("test_") and path.startswith("tests/") for name, path in _GUARD.findall(fails))


def test_no_promise_is_left_without_a_row_for_its_section() -> None:
    text = PAGE.read_text(encoding="utf-8")
    sections = re.findall(r"^## (.+)$", text, re.M)
    assert sections == ["Data flows one way", "Token in, token out", "Routing replay", "Reward", "Failures"]
    assert len(ROWS) > 30
