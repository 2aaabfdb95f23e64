"""pytest and T1's two plug-ins as files of a task's tests/: a verifier's pytest must be its own, wherever it runs.

Compiled files lie beside the sources, since /tests is read-only and would be compiled anew at every start. Boundary:
reads the packages that are installed here, writes nothing.
"""

from __future__ import annotations

import importlib.util
import py_compile
import tempfile
from functools import lru_cache
from importlib import metadata, resources
from pathlib import Path

from t1.errors import UserError

PACKAGES = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
UNNEEDED = ("pygments/lexers/", "pygments/styles/", "packaging/licenses/")
NEEDED = ("__init__.py", "_mapping.py", "python.py", "diff.py", "default.py", "special.py", "_builtins.py")
"""Of the directories above."""
PLUGINS = {"t1_pytest.py": "pytest_plugin.py", "t1_guard.py": "pytest_guard.py"}


@lru_cache(maxsize=1)
def pytest_site() -> dict[str, bytes]:
    """Relative name → content. Raises UserError where pytest is not installed."""
    files: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory(prefix="t1-site-") as folder:
        for package in PACKAGES:
            for name, source in _sources(package):
                files |= _with_compiled(name, source, Path(folder))
        for package in ("pytest", "pluggy"):  # which ask for their own version
            about = metadata.distribution(package)
            files[f"{package}-{about.version}.dist-info/METADATA"] = (about.read_text("METADATA") or "").encode()
        for name, module in PLUGINS.items():
            with resources.as_file(resources.files("t1.verification").joinpath(module)) as source:
                files |= _with_compiled(name, source, Path(folder))
    return files


def _sources(package: str) -> list[tuple[str, Path]]:
    """(relative name, path) of a package's modules."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise UserError(f"the red team's verifiers need {package}: pip install pytest")
    root = Path(found.origin).parent
    if not found.submodule_search_locations:
        return [(f"{package}.py", Path(found.origin))]
    names = [(path.relative_to(root.parent).as_posix(), path) for path in sorted(root.rglob("*.py"))]
    return [(name, path) for name, path in names if not name.startswith(UNNEEDED) or path.name in NEEDED]


def _with_compiled(name: str, source: Path, folder: Path) -> dict[str, bytes]:
    """A module and its compiled form, which no date makes stale."""
    target = folder / "module.pyc"
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), cfile=str(target), dfile=name, doraise=True, invalidation_mode=mode)
    cached = Path(importlib.util.cache_from_source(name)).as_posix()
    return {name: source.read_bytes(), cached: target.read_bytes()}
