"""Solution shortcuts and weak verifiers, as far as texts show them. The probes show the rest by running.

Boundary: reads texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from t1.synthesis.audit.python_syntax import Check, read_module
from t1.synthesis.audit.report import Kind, Reject
from t1.synthesis.audit.shell_syntax import read_script
from t1.synthesis.audit.sources import Source, Sources, is_code

_VERIFIERS_PLACE = re.compile(r"(?<![\w./-])/(?:tests(?=[/\s'\"]|$)|logs/verifier)")
_ALWAYS = re.compile(r"^(true|:|exit 0|\[ 1 (-eq|=) 1 \])$")
_RUNNER = re.compile(r"^(?:python3?|pytest|node)\b.*(?:pytest|unittest|/tests/)")
"""Starts a module of tests, which is counted by itself."""
_MERELY_THERE = re.compile(r"^(?:\[\[?|test)\s+!?\s*-[efdsrLwx]\s|^(ls|stat|cat|wc)\b")


def copied_answers(sources: Sources) -> list[Reject]:
    """Lines of the solution that take from the verifier, or write its report."""
    found = []
    for source in sources.solution:
        for number, line in enumerate(source.text.splitlines(), 1):
            if _VERIFIERS_PLACE.search(line) and not line.lstrip().startswith("#"):
                reason = "the solution uses the verifier's own files, which no agent has"
                found.append(Reject(Kind.SOLUTION_SHORTCUT, source.path, number, reason))
                break
    return found


def unread_inputs(sources: Sources) -> list[Reject]:
    """A solution that writes a fixed text and looks at none of the inputs that the instruction names."""
    inputs = [f for f in sources.environment if not is_code(f.name, f.text) and f.path != "environment/Dockerfile"]
    named = [file for file in inputs if sources.names(file.path) and file.name != ".keep"]
    if not named or not sources.solution:
        return []
    text = sources.solution_text
    folders = {part for file in named for part in file.path.split("/")[2:-1]}
    if any(
        word in text
        for word in {
            *(file.name for file in named),
            *(file.name.rpartition(".")[0] or "\0" for file in named),
            *folders,
        }
    ):
        return []
    words = read_script(text)
    reads = {"find", "ls", "git", "sqlite3", "tar", "unzip", "for", "cp", "mv", "make", "sed", "awk", "chmod", "chown"}
    if reads & {name for name, _ in words.commands} or re.search(r"\*|glob|listdir|walk|iterdir", text):
        return []
    targets = [word for word in words.literals if word.role == "target" and not is_code(word.text)]
    if not targets:
        return []
    source = sources.solution[-1]
    reason = f"the solution writes {targets[0].text} without reading {named[0].name}"
    return [Reject(Kind.SOLUTION_SHORTCUT, source.path, targets[0].line, reason)]


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a verifier asserts."""

    num_content: int = 0
    """Assertions about what is in something."""
    num_existence: int = 0
    num_vacuous: int = 0
    num_tests: int = 0
    num_skipped: int = 0
    first: tuple[str, int] = ("tests/test.sh", 1)
    """Where a reason for doubt stands."""
    error: tuple[str, int, str] | None = None
    """A module that does not parse."""

    @property
    def total(self) -> int:
        """All assertions."""
        return self.num_content + self.num_existence + self.num_vacuous


def take_inventory(sources: Sources) -> Inventory:
    """Count the assertions of scripts and modules. Other languages count as one assertion about content."""
    content = existence = vacuous = tests = skipped = 0
    first, error = None, None
    for source in sources.tests:
        if source.path.endswith(".py"):
            module = read_module(source.text)
            tests, skipped = tests + module.num_tests, skipped + module.num_skipped
            checks: list[Check] = module.checks
            if module.error:
                error = (source.path, 1, module.error)
        elif source.path.endswith((".sh", ".bash", ".bats")):
            checks = _shell_checks(source)
        else:
            continue
        for check in checks:
            vacuous, existence = vacuous + check.vacuous, existence + (check.existence and not check.vacuous)
            content += not check.vacuous and not check.existence
            if first is None and (check.vacuous or check.existence):
                first = (source.path, check.line)
    others = [
        f for f in sources.tests if is_code(f.name, f.text) and not f.path.endswith((".py", ".sh", ".bash", ".bats"))
    ]
    return Inventory(content + len(others), existence, vacuous, tests, skipped, first or ("tests/test.sh", 1), error)


def _shell_checks(source: Source) -> list[Check]:
    checks = []
    for text, line in read_script(source.text).tests:
        if "/logs/" in text or _RUNNER.match(text) or re.search(r"\$\{?(failed|passed|ok|status|\?)", text):
            continue
        checks.append(Check(line, text, bool(_ALWAYS.match(text)), bool(_MERELY_THERE.match(text))))
    return checks


def empty_verifier(sources: Sources, inventory: Inventory) -> list[Reject]:
    """A verifier that cannot fail: it asserts nothing, or skips all that it has."""
    file, line = inventory.first
    if inventory.error is not None:
        file, line, message = inventory.error
        return [Reject(Kind.WEAK_VERIFIER, file, line, f"is not Python: {message}")]
    if inventory.num_tests and inventory.num_skipped == inventory.num_tests:
        source = next(s for s in sources.tests if s.path.endswith(".py") and "skip" in s.text)
        return [Reject(Kind.WEAK_VERIFIER, source.path, source.line_of("skip"), "every test is skipped")]
    if inventory.total == inventory.num_vacuous:
        return [Reject(Kind.WEAK_VERIFIER, file, line, "the verifier asserts nothing that could be wrong")]
    return []
