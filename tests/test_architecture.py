"""The import law of the design: data flows one way, and torch stays where tensors are."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "t1"
LAYERS = (
    {"types", "errors"},
    {"protocols"},
    {"tasks", "sandboxes", "verification", "inference", "progress", "tracking"},
    {"harness"},
    {"gateway", "harbor"},
    {"rollouts", "redteam"},
    {"tito", "routing", "ppo"},
    {"training"},
    {"base"},
    {"config", "rundir"},
    {"evaluation", "synthesis", "viewer"},
    {"loop"},
    {"agents"},
    {"cluster"},
    {"workshop"},
    {"stages"},
    {"quickstart"},
    {"ablate"},
    {"cli", "__main__"},
)
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
PURE = {"tito", "routing", "ppo"}
TORCH = ("inference/", "routing/replay", "ppo/", "training/", "testing/", "base/")
FOREIGN = {"harbor": "harbor/", "ray": "cluster/", "vllm": "inference/", "sglang": "inference/"}
FILES = sorted(SRC.rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Dotted names that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def part_of(path: Path) -> str:
    """The folder or module under t1 that a file belongs to."""
    return path.relative_to(SRC).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_imports_point_one_way(path):
    part = part_of(path)
    others = {name.split(".")[1] for name in imports(path) if name.startswith("t1.")} - {part, "__version__"}
    if part in ("__init__", "testing"):
        return
    assert part in RANK, f"{part} has no place in the order of imports"
    assert not (late := {other for other in others if RANK.get(other, len(LAYERS)) > RANK[part]}), late
    if part in PURE:
        assert others <= {"types", "errors"} | PURE
    assert "testing" not in others or part == "testing"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_torch_stays_where_tensors_are(path):
    tensors = {name.split(".")[0] for name in imports(path)} & {"torch", "transformers", "safetensors"}
    assert not tensors or str(path.relative_to(SRC)).startswith(TORCH)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_foreign_packages_stay_where_they_are_spoken_to(path):
    spoken = {name.split(".")[0] for name in imports(path)} & set(FOREIGN)
    assert all(str(path.relative_to(SRC)).startswith(FOREIGN[package]) for package in spoken), spoken


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["train", "--help"], ["train", "no.key=1"], ["audit", "no-such-run"], ["gateway", "--help"]],
    ids=" ".join,
)
def test_light_commands_start_without_torch(arguments):
    script = f"import sys; from t1.cli import main; main({arguments!r}); sys.exit(17 if 'torch' in sys.modules else 0)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_one_file_turns_exceptions_into_failures():
    def makes_failures(path: Path) -> bool:
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        return any(isinstance(call.func, ast.Name) and call.func.id == "Failure" for call in calls)

    found = {str(path.relative_to(SRC)) for path in FILES if makes_failures(path) and part_of(path) != "testing"}
    assert found == {"rollouts/collect.py"}
