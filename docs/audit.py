"""Writes docs/audit.md from the auditor's own table of rules: `python docs/audit.py`."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from t1.tito.audit_rules import RULES, Rule
from t1.types import Severity

HEAD = """# Audit

Every rollout is audited before it is trained on, and `t1 audit RUN` does it again from what the run stored. The auditor
shares no code with what made the trajectories: from the raw turns it works out anew what must be true of them.

    t1 audit runs/quickstart            a table; exit code 1 when something unsound was trained
    t1 audit runs/quickstart --json     one JSON object

An **error** keeps the whole rollout out of training (half of an episode's credit would be wrong) and is counted; a
**warning** is only counted. Nothing is repaired. What the policy's `config.json` and tokenizer say (vocabulary,
experts, text, boundary tokens) is read from the run's checkpoints; where they are missing, the rules that need them are
silent.

What the table counts:

- *turns by case*: how each turn joined its stream. `open` is a rollout's first turn. `strict`: the prompt begins with
  the stream. `normalized`: up to boundary tokens around the last completion. `retokenized`: the same text through other
  ids. `split`: anything else; the turn opened a segment. Several segments may grow side by side.
- *completions in next prompt*: where a completion was found again by a search of the auditor's own. After the last turn
  of a stream it looks into the prompt that opens the next one. `unverified`: not there exactly, and without a tokenizer
  nobody can say more.
- *drift inside loss region*: trained tokens that are not what was sampled, or not exactly once. Must be 0.
- *drift outside loss region*: the residual. Context tokens of the streams that differ from what the sampler saw,
  because a harness sent its own copy of a completion. 0 where `on_residual = "split"`.
- *routing disagreements*: rows that a later prefill of the same tokens captured otherwise. The first capture counts.

Not audited: what a turn carries for people (action, observation, timings). Checksums in the stored files guard those.

This page is written by `make docs` from the rules in the code.
"""


def section(group: str, rules: list[Rule]) -> list[str]:
    """The rules of one group as a table."""
    lines = [f"\n## {group}\n", "| rule | | what it means | what to do |", "|---|---|---|---|"]
    marks = {Severity.ERROR: "error", Severity.WARNING: "warning"}
    return lines + [f"| `{rule.name}` | {marks[rule.severity]} | {rule.meaning} | {rule.remedy} |" for rule in rules]


def page() -> str:
    """The whole page."""
    lines = [HEAD.strip()]
    for group, rules in groupby(RULES.values(), key=lambda rule: rule.group):
        lines += section(group, list(rules))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "audit.md").write_text(page(), encoding="utf-8")
