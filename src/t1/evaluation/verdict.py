"""One verdict on a run: can these numbers be trusted?

Boundary: runs the rules over the evidence and shows what came out, as JSON and as a table. Needs no torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from t1.errors import ConfigError
from t1.evaluation.evidence import Evidence, gather
from t1.evaluation.rules import RULES, Check, Grade

SENTENCES = {
    Grade.PASS: "these numbers can be trusted",
    Grade.WARN: "these numbers can be trusted with the reservations above",
    Grade.FAIL: "these numbers cannot be trusted",
}
_STYLES = {Grade.PASS: "green", Grade.WARN: "yellow", Grade.FAIL: "bold red"}


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """What all rules that apply to a run said."""

    run: Path
    checks: tuple[Check, ...]

    @property
    def grade(self) -> Grade:
        """The worst of its checks."""
        return max((check.grade for check in self.checks), key=list(Grade).index, default=Grade.WARN)

    @property
    def exit_code(self) -> int:
        """0: nothing failed. 1: at least one rule failed."""
        return int(self.grade is Grade.FAIL)

    def as_dict(self) -> dict[str, Any]:
        """The verdict as JSON has it."""
        checks = [asdict(check) | {"grade": str(check.grade), "details": list(check.details)} for check in self.checks]
        return {"run": str(self.run), "grade": str(self.grade), "says": SENTENCES[self.grade], "checks": checks}


def judge(run: Path, *, rule: str | None = None) -> RunVerdict:
    """The verdict on the run directory `run`, or on one rule of it."""
    if rule is not None and rule not in RULES:
        raise ConfigError(f"rule {rule!r} is none of {', '.join(RULES)}")
    return judge_evidence(gather(run), rule=rule)


def judge_evidence(evidence: Evidence, *, rule: str | None = None) -> RunVerdict:
    """The verdict on evidence that was gathered already."""
    chosen = RULES if rule is None else {rule: RULES[rule]}
    checks = [check for apply in chosen.values() if (check := apply(evidence)) is not None]
    return RunVerdict(evidence.run, tuple(checks))


def write_verdict(verdict: RunVerdict) -> Path:
    """Keep the verdict in the run, as `verdict.json`."""
    path = verdict.run / "verdict.json"
    path.write_text(json.dumps(verdict.as_dict(), indent=2) + "\n", encoding="utf-8")
    return path


def verdict_table(verdict: Mapping[str, Any], *, details: bool = False) -> Table:
    """The checks of a verdict (`as_dict`) for the terminal; what did not pass says where to go on."""
    table = Table(title=Text(f"Can the numbers of {verdict['run']} be trusted?"), title_justify="left")
    for column in ("rule", "", "number"):
        table.add_column(column, justify="right" if column == "number" else "left", no_wrap=True)
    table.add_column("what it says", overflow="fold")
    for check in verdict["checks"]:
        grade = Grade(check["grade"])
        lines = [check["says"]]
        if grade is not Grade.PASS or details:
            lines += [f"$ {check['command']}", f"→ {check['look']}"]
        lines += check["details"] if details else []
        number = "–" if check["number"] is None else f"{check['number']:.4g}"
        # Text, never markup: paths and messages come from tasks and agents.
        table.add_row(check["rule"], Text(grade, style=_STYLES[grade]), number, Text("\n".join(lines)))
    table.caption = Text(f"{verdict['grade']}: {verdict['says']}")
    table.caption_justify = "left"
    return table
