"""What a Python test asks for and asserts, read with `ast`. Boundary: syntax only; nothing is imported or run."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

PROGRAM_CALLS = frozenset(
    """compile match search fullmatch findall finditer sub execute executemany executescript xpath select
    strptime""".split()
)
"""Calls whose first string is a program or a pattern."""
EXISTENCE = frozenset("exists is_file is_dir isfile isdir lexists islink is_symlink access assertIsNotNone".split())
VALUE = "\0"
"""Stands for a computed value in the shape of an f-string."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant that a test uses."""

    value: str
    line: int
    role: str
    """text, number, pattern, time (a format of strptime), delimiter, name (imported from the work), shape (an f-string
    with VALUE for what is computed).
    """


@dataclass(frozen=True, slots=True)
class Check:
    """One assertion."""

    line: int
    text: str
    vacuous: bool
    """Holds whatever was done: no name in it, or a constant."""
    existence: bool
    """Looks only at whether something is there."""


@dataclass(slots=True)
class Module:
    """A test module as it was read."""

    constants: list[Constant] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    num_tests: int = 0
    num_skipped: int = 0
    writes: set[str] = field(default_factory=set)
    uses_json: int = 0
    """The line of json.load(s), 0 without."""
    error: str = ""
    is_runner: bool = False
    """Writes the report itself: its constants are no demands."""


def read_module(text: str) -> Module:
    """Read a module. A syntax error is noted, not raised."""
    module = Module(is_runner=("/logs/verifier" in text and "import_module" in text) or "ctrf.json" in text)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        module.error = str(error)
        return module
    if not module.is_runner:
        _Reader(module, text).visit(tree)
    return module


class _Reader(ast.NodeVisitor):
    """Folds a tree into a Module."""

    def __init__(self, module: Module, text: str) -> None:
        self.module, self._lines = module, text.splitlines()

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring is no demand
            self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        self._check(node.test, node.lineno)
        self.visit(node.test)  # never the message

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name.startswith("test"):
            self.module.num_tests += 1
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            self.module.num_skipped += any("skip" in mark and "skipif" not in mark.lower() for mark in marks)
        for part in node.body:
            self.visit(part)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self.module.constants.append(Constant(alias.name, node.lineno, "name"))

    def visit_Compare(self, node: ast.Compare) -> None:
        for side in (node.left, *node.comparators):
            self._numbers(side)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _name(node.func)
        if name.startswith("assert") and name != "assert_":
            self._check(node, node.lineno)
            for argument in node.args:
                self._numbers(argument)
            messages = 2 if name in ("assertEqual", "assertIn", "assertNotEqual") else 1
            node = ast.Call(
                node.func, node.args[: messages if len(node.args) > messages else None], [], lineno=node.lineno
            )
        if name in ("load", "loads") and ast.unparse(node.func).startswith("json."):
            self.module.uses_json = self.module.uses_json or node.lineno
        if name in ("skip", "SkipTest", "fail", "encode", "decode"):
            return
        for keyword in node.keywords:
            value = keyword.value
            if keyword.arg in ("delimiter", "sep") and isinstance(value, ast.Constant):
                self.module.constants.append(Constant(str(value.value), node.lineno, "delimiter"))
            elif keyword.arg not in ("encoding", "mode", "newline", "errors", "reason", "match"):
                self.visit(value)
        self.visit(node.func)
        for index, argument in enumerate(node.args):
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                self._string(name, index, argument, node)
            else:
                self.visit(argument)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("utf-8", "replace")
            self.module.constants.append(Constant(text, node.lineno, "text"))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        parts = [str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values]
        self.module.constants.append(Constant("".join(parts), node.lineno, "shape"))
        self.generic_visit(node)

    def _string(self, name: str, index: int, node: ast.Constant, call: ast.Call) -> None:
        """A string that is handed to a call."""
        text = str(node.value)
        if name == "open" and index == 0 and any(m in ast.unparse(call) for m in ("'w'", "'a'", "'wb'")):
            self.module.writes.add(text)
        if index == 1 and name in ("open", "strptime"):
            role = "time" if name == "strptime" else ""
        else:
            role = "pattern" if index == 0 and name in PROGRAM_CALLS else "text"
        if role:
            self.module.constants.append(Constant(text, node.lineno, role))

    def _numbers(self, node: ast.AST) -> None:
        """Numbers that are compared with."""
        for below in ast.walk(node):
            if isinstance(below, ast.Constant) and isinstance(below.value, int | float) and below.value is not True:
                self.module.constants.append(Constant(str(below.value), getattr(below, "lineno", 1), "number"))

    def _check(self, test: ast.AST, line: int) -> None:
        text = self._lines[line - 1].strip() if line <= len(self._lines) else ""
        names = [below for below in ast.walk(test) if isinstance(below, ast.Name | ast.Attribute)]
        vacuous = isinstance(test, ast.Constant) or not names
        compares = any(isinstance(below, ast.Compare) for below in ast.walk(test))
        calls = {_name(below.func) for below in ast.walk(test) if isinstance(below, ast.Call)}
        self.module.checks.append(Check(line, text, vacuous, not compares and bool(calls & EXISTENCE)))


def _name(node: ast.AST) -> str:
    """The last name of what is called."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
