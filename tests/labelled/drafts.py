"""How the labelled tasks are written: a draft is a task as its author has it, a fault is a slip of that author.

Texts hold `@name@`, which stands for one of three values, so that every base gives three sound tasks. Boundary: this
package was written before the audit's probes and knows nothing of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from t1.tasks import write_task
from t1.types import Task

HIDDEN, LEAK, SHORTCUT, WEAK = "hidden-requirement", "test-leakage", "solution-shortcut", "weak-verifier"
KINDS = (HIDDEN, LEAK, SHORTCUT, WEAK)
NUM_VARIANTS = 3
DOCKERFILE = "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY files/ /app/\n"

Value = Sequence[str] | Callable[[dict[str, str]], str]
Edit = tuple[str, str, str]
"""(file, old text, new text); with an empty old text the file is written anew."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One slip: what it is, and the edits that make it."""

    kind: str
    edits: tuple[Edit, ...]
    also: frozenset[str] = frozenset()
    """Kinds that an auditor may name beside it and be right."""


@dataclass(frozen=True, slots=True)
class Base:
    """A sound task with three settings of its values, and faults to plant."""

    name: str
    instruction: str
    tests: Mapping[str, str]
    solve: str
    files: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    dockerfile: str = DOCKERFILE
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class Labelled:
    """A written task and what is wrong with it."""

    task: Task
    base: Base
    kind: str
    """Empty for a sound task."""
    also: frozenset[str]


def fault(kind: str, *edits: Edit, also: Sequence[str] = ()) -> Fault:
    """A fault, in the order in which an author says it."""
    return Fault(kind, edits, frozenset(also))


def settle(base: Base, variant: int) -> dict[str, str]:
    """The values of one variant; a callable computes its value from those before it."""
    values: dict[str, str] = {}
    for name, value in base.values.items():
        values[name] = value(values) if callable(value) else value[variant % len(value)]
    return values


def plant(base: Base, slip: Fault) -> Base:
    """The base with the fault in it. Raises ValueError where the text to change is not there."""
    for file, old, new in slip.edits:
        folder, _, name = file.partition("/")
        if folder in ("files", "tests"):
            texts = dict(getattr(base, folder))
            texts[name] = _edited(base, texts.get(name, ""), old, new)
            base = replace(base, **{folder: texts})
        else:
            base = replace(base, **{file: _edited(base, getattr(base, file), old, new)})
    return base


def _edited(base: Base, text: str, old: str, new: str) -> str:
    if old and old not in text:
        raise ValueError(f"{base.name}: there is no {old!r} to change")
    return text.replace(old, new) if old else new


def write(base: Base, variant: int, path: Path) -> Task:
    """The task directory of one variant."""
    values = settle(base, variant)

    def fill(text: str) -> str:
        return re.sub(r"@(\w+)@", lambda match: values.get(match[1], match[0]), text)

    environment = {"Dockerfile": fill(base.dockerfile)}
    environment |= {f"files/{fill(name)}": fill(text) for name, text in base.files.items()} or {"files/.keep": ""}
    return write_task(
        path,
        config={
            "version": "1.0",
            "metadata": {"difficulty": "easy"},
            "verifier": {"timeout_sec": 30.0},
            "agent": {"timeout_sec": 60.0},
        },
        instruction=fill(base.instruction) + "\n",
        environment=environment,
        tests={name: fill(text) for name, text in base.tests.items()},
        solution={"solve.sh": "#!/bin/bash\n" + fill(base.solve)},
    )


def write_all(bases: Sequence[Base], root: Path) -> list[Labelled]:
    """Every sound variant and every fault, below `root`."""
    written = []
    for base in bases:
        for variant in range(NUM_VARIANTS):
            task = write(base, variant, root / f"{base.name}-sound-{variant}")
            written.append(Labelled(task, base, "", frozenset()))
        for index, slip in enumerate(base.faults):
            task = write(plant(base, slip), index, root / f"{base.name}-fault-{index}")
            written.append(Labelled(task, base, slip.kind, slip.also))
    return written


def shell(checks: str) -> dict[str, str]:
    """A shell verifier that reports each `check NAME TEST` line as CTRF."""
    return {"test.sh": _SHELL_HEAD + checks.strip("\n") + "\n" + _SHELL_TAIL}


def reward(body: str, **others: str) -> dict[str, str]:
    """A shell verifier that ends with a reward of 0 or 1: `ok` is what the body sets."""
    tail = 'mkdir -p /logs/verifier\nif [ "$ok" = 1 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n'
    return {"test.sh": f"#!/bin/bash\nok=0\n{body.strip()}\n{tail}"} | others


def pytest_style(body: str, **others: str) -> dict[str, str]:
    """Test functions, and a runner of a few lines that reports them as pytest-json-ctrf does."""
    return {
        "test.sh": "#!/bin/bash\npython3 /tests/run.py\n",
        "run.py": _RUNNER,
        "test_outputs.py": body.lstrip(),
    } | others


def unittest_style(body: str) -> dict[str, str]:
    """A unittest module; the reward is its exit code."""
    script = (
        "#!/bin/bash\nmkdir -p /logs/verifier\ncd /tests\nif python3 -B -m unittest test_outputs 2>&1; then\n"
        "  echo 1 > /logs/verifier/reward.txt\nelse\n  echo 0 > /logs/verifier/reward.txt\nfi\n"
    )
    return {"test.sh": script, "test_outputs.py": body.lstrip()}


def script_style(body: str) -> dict[str, str]:
    """A Python script with bare asserts; it writes its own reward."""
    report = "/logs/verifier/reward.txt"
    script = f"#!/bin/bash\npython3 /tests/verify.py && echo 1 > {report} || echo 0 > {report}\n"
    return {"test.sh": script, "verify.py": body.lstrip()}


_SHELL_HEAD = r"""#!/bin/bash
cd /
tests= passed=0 failed=0
check() {
  local status=failed
  if eval "$2" >/dev/null 2>&1; then status=passed; passed=$((passed + 1)); else failed=$((failed + 1)); fi
  tests+="${tests:+,}{\"name\":\"$1\",\"status\":\"$status\",\"duration\":0}"
}
"""
_SHELL_TAIL = r"""summary="\"tests\":$((passed + failed)),\"passed\":$passed,\"failed\":$failed"
summary+=',"pending":0,"skipped":0,"other":0,"start":0,"stop":0'
mkdir -p /logs/verifier
report="{\"results\":{\"tool\":{\"name\":\"shell\"},\"summary\":{$summary},\"tests\":[$tests]}}"
echo "$report" > /logs/verifier/ctrf.json
if [ "$failed" -eq 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
_RUNNER = '''"""Runs the test functions of test_outputs.py and writes the report."""
import json, os, sys, unittest
sys.dont_write_bytecode = True
sys.path.insert(0, "/tests")
results = []
try:
    import test_outputs
    tests = [(n, f) for n, f in vars(test_outputs).items() if n.startswith("test_") and callable(f)]
except Exception as error:
    tests, results = [], [{"name": "import", "status": "failed", "duration": 0, "message": repr(error)}]
for name, function in tests:
    status, message = "passed", ""
    try:
        function()
    except unittest.SkipTest as reason:
        status, message = "skipped", str(reason)
    except BaseException as error:
        status, message = "failed", repr(error)
    results.append({"name": name, "status": status, "duration": 0, "message": message})
count = lambda s: sum(r["status"] == s for r in results)
summary = {"tests": len(results), "passed": count("passed"), "failed": count("failed"), "skipped": count("skipped"),
           "pending": 0, "other": 0, "start": 0, "stop": 0}
os.makedirs("/logs/verifier", exist_ok=True)
with open("/logs/verifier/ctrf.json", "w") as file:
    json.dump({"results": {"tool": {"name": "pytest"}, "summary": summary, "tests": results}}, file)
with open("/logs/verifier/reward.txt", "w") as file:
    file.write("0" if summary["failed"] else "1")
'''
