"""The container engine of this machine, where it has the small Debian that `make test-containers` builds."""

from __future__ import annotations

import subprocess
from functools import cache

from t1.errors import SandboxUnavailable
from t1.sandboxes.containers.engine import ContainerEngine, find_engine

BASE_IMAGE = "localhost/t1/base:bookworm"
LOOK_TIMEOUT_S = 60


@cache
def engine_with_image(image: str = BASE_IMAGE) -> ContainerEngine | None:
    """The engine, where it is installed and has the image."""
    try:
        found = find_engine()
    except SandboxUnavailable:
        return None
    look = found.words("image", "inspect", image)
    has = subprocess.run(look, capture_output=True, timeout=LOOK_TIMEOUT_S, check=False)
    return found if has.returncode == 0 else None
