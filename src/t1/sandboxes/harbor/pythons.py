"""Which Python runs the parts that need a newer one than this process may have. Boundary: paths; nothing is started."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from t1.errors import UserError

PYTHON_VARIABLE = "T1_HARBOR_PYTHON"


def find_python() -> Path:
    """The interpreter that has harbor: `$T1_HARBOR_PYTHON`, this one, or `.venv-harbor` in the working directory."""
    named = os.environ.get(PYTHON_VARIABLE)
    local = Path(".venv-harbor/bin/python")
    if named:
        candidates = [Path(named)]
    elif importlib.util.find_spec("harbor") is not None:
        candidates = [Path(sys.executable)]
    else:
        candidates = [local.absolute()]
    for path in candidates:
        if path.is_file():
            return path
    raise UserError(
        f"{candidates[0]}: no Python with harbor. Install t1[harbor] under Python 3.12 or newer "
        f"(in the source tree: make test-harbor) and name its interpreter in {PYTHON_VARIABLE}"
    )
