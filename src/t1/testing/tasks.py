"""A task that lives in memory, for tests of whatever takes a Task and never reads its directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from t1.types import Environment, Limits, Task, VerifierSpec

NOWHERE = Path("/nonexistent")


def example_task(
    name: str = "example",
    *,
    instruction: str = "Do it.",
    agent_timeout_s: float = 60.0,
    build_timeout_s: float = 60.0,
    verifier_timeout_s: float = 60.0,
    solution: Path | None = None,
    **metadata: Any,
) -> Task:
    """A task whose directory does not exist; keyword arguments beyond the named ones are its metadata."""
    return Task(
        id=name,
        digest=name.encode().hex().ljust(64, "0")[:64],
        instruction=instruction,
        environment=Environment(NOWHERE / "environment", build_timeout_s=build_timeout_s),
        verifier=VerifierSpec(NOWHERE / "tests", timeout_s=verifier_timeout_s),
        limits=Limits(agent_timeout_s),
        path=NOWHERE,
        solution=solution,
        metadata=metadata,
    )
