"""Task directories on disk, whole or broken, and sandboxes to run them in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from t1.sandboxes import Confinement, NamespaceProvider, probe

WHOLE = {
    "task.toml": 'version = "1.0"\n',
    "instruction.md": "Make it so.\n",
    "environment/Dockerfile": "FROM debian:bookworm-slim\n",
    "tests/test.sh": "#!/bin/bash\n",
    "solution/solve.sh": "#!/bin/bash\ntrue\n",
}


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Writes a whole task directory, but for the files given: name → content, or None to leave it out."""

    def write(files: dict[str, str | bytes | None] | None = None, name: str = "example") -> Path:
        for path, content in (WHOLE | (files or {})).items():
            if content is not None:
                file = tmp_path / name / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / name

    return write


@pytest.fixture(scope="session")
def confined() -> Confinement:
    """How this host confines, probed once."""
    found = probe()
    if found.confinement is None:
        pytest.skip(str(found))
    return found.confinement


@pytest.fixture
async def provider(confined: Confinement) -> AsyncIterator[NamespaceProvider]:
    made = NamespaceProvider(confinement=confined)
    yield made
    await made.close()
