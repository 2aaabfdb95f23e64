"""The table of rules: complete, readable, and the page that is written from it current."""

import ast
import runpy
from pathlib import Path

import t1.tito
from t1.tito.audit_rules import RULES

ROOT = Path(__file__).parents[3]
SOURCE = Path(t1.tito.__file__).parent


def names_in_code():
    """Rules that the auditor's code names, as string constants."""
    trees = [ast.parse(path.read_text()) for path in SOURCE.glob("audit*.py") if path.name != "audit_rules.py"]
    constants = {n.value for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    return {constant for constant in constants if constant in RULES}


def test_every_rule_is_checked_somewhere():
    assert set(RULES) - names_in_code() == {"routing-join"}  # what the assembler refuses: t1.training.experience


def test_every_rule_says_what_it_means_and_what_to_do():
    assert all(rule.meaning.endswith(".") and rule.remedy.endswith(".") for rule in RULES.values())
    assert all(name == rule.name == name.lower() and " " not in name for name, rule in RULES.items())


def test_the_page_of_rules_is_current():
    page = runpy.run_path(str(ROOT / "docs" / "audit.py"))["page"]()
    assert page == (ROOT / "docs" / "audit.md").read_text(encoding="utf-8"), "run `make docs`"
    assert all(page.count(f"| `{name}` |") == 1 for name in RULES)
