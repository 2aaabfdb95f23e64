"""A real gateway over a scripted policy or the small shipped model, and the check of what was recorded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["MSWEA_SILENT_STARTUP"] = "1"

import t1
from t1.gateway.app import Served, serve
from t1.gateway.config import GatewayConfig
from t1.gateway.rendering import renderer_for
from t1.gateway.sessions import Gateway, Opened
from t1.inference import TorchEngine, load_model
from t1.protocols import Sampler
from t1.sandboxes import NamespaceProvider, probe
from t1.testing.policies import ScriptedPolicy
from t1.testing.samplers import RoutingShape, ScriptedSampler
from t1.tito import AuditReport, assemble, audit
from t1.types import (
    Environment,
    Limits,
    Outcome,
    RewardSource,
    Rollout,
    RolloutId,
    StopReason,
    Task,
    Trajectory,
    VerifierSpec,
)

BASE = Path(t1.__file__).parent / "base" / "qwen3-moe-shell"


@pytest.fixture(scope="session")
def renderer():
    """Of the shipped model: a real BPE, ChatML, tools in Hermes' style."""
    return renderer_for(BASE)


@pytest.fixture
def check(renderer):
    """Assembles and audits recorded turns."""

    def check_(turns, stop=StopReason.SUBMITTED) -> tuple[tuple[Trajectory, ...], AuditReport]:
        outcome = Outcome(stop, None, 0.0, RewardSource.BINARY)
        rollout = Rollout(RolloutId("task", 0, 0), "d" * 64, tuple(turns), outcome)
        trajectories = assemble(rollout.id, turns, boundary_ids=renderer.boundary_ids, decode=renderer.decode)
        return trajectories, audit(rollout, trajectories, vocab_size=None, num_experts=8, decode=renderer.decode)

    return check_


@dataclass(frozen=True, slots=True)
class Ground:
    """A served gateway with one open session."""

    gateway: Gateway
    served: Served
    opened: Opened
    check: Callable

    @property
    def url(self) -> str:
        """What OpenAI's clients call a base URL."""
        return f"{self.served.base_url}/s/{self.opened.session}/v1"

    @property
    def key(self) -> str:
        return self.opened.key

    async def finish(self, stop: StopReason = StopReason.SUBMITTED) -> tuple[tuple[Trajectory, ...], AuditReport]:
        """Close the session; what it recorded, assembled and audited."""
        recorded = await self.gateway.close(self.opened.session)
        assert recorded.failure is None
        return self.check(recorded.turns, stop)


@pytest.fixture
def open_ground(renderer, check):
    """Opens a ground over a sampler, or over the lines of a scripted policy."""

    @contextlib.asynccontextmanager
    async def open_(sampler: Sampler | list, **config) -> AsyncIterator[Ground]:
        if isinstance(sampler, list):
            policy = ScriptedPolicy(renderer, sampler)
            sampler = ScriptedSampler(policy, max_context=1 << 20, routing=RoutingShape())
        async with (
            Gateway(sampler, renderer, GatewayConfig(models=("policy",), **config)) as gateway,
            await serve(gateway) as served,
        ):
            yield Ground(gateway, served, gateway.open("s1"), check)

    return open_


@pytest.fixture
async def engine():
    """The embedded engine with the shipped model."""
    made = TorchEngine(load_model(BASE), max_context=1024, num_threads=1)
    yield made
    await made.aclose()


@pytest.fixture
def task(tmp_path):
    """A word stands in one file and belongs into another."""
    (tmp_path / "environment").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "environment" / "Dockerfile").write_text("FROM scratch\nWORKDIR /app\nRUN echo pumpkin > secret.txt\n")
    environment, tests = Environment(tmp_path / "environment"), VerifierSpec(tmp_path / "tests")
    return Task(
        "secret", "d" * 64, "Write the word of secret.txt into answer.txt.", environment, tests, Limits(), tmp_path
    )


@pytest.fixture
async def sandbox(task):
    """A real sandbox of the task."""
    if probe().confinement is None:
        pytest.skip(str(probe()))
    provider = NamespaceProvider()
    opened = await provider.open(task)
    yield opened
    await opened.close()
    await provider.close()
