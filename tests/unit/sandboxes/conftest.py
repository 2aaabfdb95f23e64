"""A task, a provider and a sandbox for the tests of this folder; skipped where the host forbids namespaces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from t1.sandboxes import Confinement, NamespaceProvider, NamespaceSandbox, probe
from t1.types import Environment, Limits, Task, VerifierSpec


@pytest.fixture
def make_task(tmp_path: Path) -> Callable[..., Task]:
    """Writes a task directory; keyword arguments go to its Environment."""

    def make(dockerfile: str = "", *, test: str = "true\n", **environment: object) -> Task:
        (tmp_path / "environment").mkdir()
        (tmp_path / "tests").mkdir()
        (tmp_path / "tests" / "test.sh").write_text(test)
        if dockerfile:
            (tmp_path / "environment" / "Dockerfile").write_text(dockerfile)
        return Task(
            "example",
            "e" * 64,
            "Do it.",
            Environment(tmp_path / "environment", **environment),  # type: ignore[arg-type]
            VerifierSpec(tmp_path / "tests"),
            Limits(),
            tmp_path,
        )

    return make


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


@pytest.fixture
async def sandbox(provider: NamespaceProvider, make_task: Callable[..., Task]) -> NamespaceSandbox:
    return await provider.open(make_task())
