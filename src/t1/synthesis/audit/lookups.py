"""Solutions that are a table of the verifier's own cases: question and answer of the tests stand in the program.

Boundary: reads texts; only tests that run a program which the solution writes are asked.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from t1.synthesis.audit.report import Kind, Reject
from t1.synthesis.audit.sources import Source, Sources

MIN_CASES = 2
_RUNS = re.compile(r"\bsubprocess\b|\bos\.popen\b|\bpopen\b")
_WRITES = re.compile(r"<<|printf .*>|\.write\(|write_text\(")


@dataclass(frozen=True, slots=True)
class Case:
    """What a test asks a program, and what it expects: the constants of one comparison or row."""

    line: int
    constants: tuple[str, ...]


def looked_up_answers(sources: Sources) -> tuple[list[Reject], str]:
    """Rejects, and the constants that they explain."""
    solution = sources.solution_text
    if not _WRITES.search(solution):
        return [], ""
    for source in sources.tests:
        if not source.path.endswith(".py") or not _RUNS.search(source.text):
            continue
        known = [case for case in _cases(source) if all(_stands(word, solution) for word in case.constants)]
        untold = [case for case in known if not _stands(case.constants[-1], sources.stated)]
        if len(known) >= MIN_CASES and untold:
            words = " → ".join(untold[0].constants[-2:])
            reason = f"the solution holds the verifier's own cases ({source.path}:{untold[0].line}: {words})"
            file = sources.solution[-1]
            reject = Reject(Kind.SOLUTION_SHORTCUT, file.path, file.line_of(untold[0].constants[-1]), reason)
            return [reject], "\n".join(word for case in known for word in case.constants)
    return [], ""


def _cases(source: Source) -> Iterator[Case]:
    """Comparisons, assertions and rows of a table with a question and an answer in them."""
    try:
        tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        is_case = (
            isinstance(node, ast.Compare)
            or (isinstance(node, ast.Tuple) and all(isinstance(item, ast.Constant) for item in node.elts))
            or (isinstance(node, ast.Call) and getattr(node.func, "attr", "").startswith("assertEqual"))
        )
        if is_case and isinstance(node, ast.expr):
            words = tuple(str(n.value) for n in ast.walk(node) if isinstance(n, ast.Constant) and _is_value(n.value))
            # Questions and answers of a character or two stand in any program.
            if len(words) > 1 and sum(map(len, words)) >= 4:
                yield Case(node.lineno, _answer_last(node, words))


def _answer_last(node: ast.expr, words: tuple[str, ...]) -> tuple[str, ...]:
    """The constants with what is expected at the end, as far as the syntax says which it is."""
    answers = [node.args[1]] if isinstance(node, ast.Call) and len(node.args) > 1 else []
    answers += [node.comparators[-1]] if isinstance(node, ast.Compare) else []
    answers += [node.elts[-1]] if isinstance(node, ast.Tuple) else []
    last = [str(answer.value) for answer in answers if isinstance(answer, ast.Constant)]
    return (*(word for word in words if word not in last), *last) if last else words


def _is_value(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool) and str(value).strip() != ""


def _stands(word: str, text: str) -> bool:
    """Whether a text has this word by itself."""
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(word.strip())}(?![A-Za-z0-9])", text) is not None
