"""What one trial leans on fails under it: its sandbox is killed, its verifier hangs, its engine's network is slow."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import httpx
import numpy as np
import pytest

from t1.inference.captures import ModelShape
from t1.inference.remote import EngineBounds
from t1.inference.vllm import VllmSampler
from t1.protocols import Sandbox
from t1.rollouts import Bounds, Collector
from t1.sandboxes import NamespaceProvider, probe
from t1.testing.dialects import FakeVllm
from t1.testing.engines import EngineTransport, FakeEngine
from t1.testing.harnesses import ScriptedHarness
from t1.testing.posts import full_score
from t1.testing.samplers import ScriptedSampler
from t1.testing.sandboxes import FakeSandboxProvider
from t1.testing.tasks import example_task
from t1.testing.verifiers import FakeVerifier
from t1.types import Environment, Limits, Task, Verdict, VerifierSpec

from .campaigns import Campaign

TASKS = [example_task(name) for name in "abcd"]
QUICK = Bounds(max_attempts=10, backoff_s=0.02, max_backoff_s=0.2, verify_s=0.5)


class Hanging(FakeVerifier):
    """Every third verification never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.hung = 0

    async def verify(self, task: Task, sandbox: Sandbox) -> Verdict:
        """See `protocols.Verifier.verify`."""
        if len(self.verified) % 3 == 2:
            self.verified.append(task.id)
            self.hung += 1
            await asyncio.Event().wait()
        return await super().verify(task, sandbox)


class SlowNetwork(httpx.AsyncBaseTransport):
    """Every second completion is held up for longer than a request may take."""

    def __init__(self, engine: FakeEngine) -> None:
        self._inside, self._count = EngineTransport(engine), 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Late, then as ever."""
        if "completions" in request.url.path or "generate" in request.url.path:
            self._count += 1
            if self._count % 2:
                await asyncio.sleep(30.0)
        return await self._inside.handle_async_request(request)


def scripted() -> ScriptedSampler:
    return ScriptedSampler(lambda prompt: [5, 1])


@pytest.mark.fault("verifier hangs, one in three", bound_s=60)
async def test_verifiers_hang(account, tmp_path: Path) -> None:
    """Cases F2, V6: an infrastructure failure within its bound, never a score."""
    tasks = [example_task(name, verifier_timeout_s=0.2) for name in "abcd"]
    verifier, provider, run = Hanging(), FakeSandboxProvider(), Campaign(tasks)
    collector = Collector(
        harness=ScriptedHarness(), provider=provider, verifier=verifier, sampler=scripted(), scorer=full_score,
        bounds=QUICK,
    )  # fmt: skip
    await run.run(collector, tmp_path / "ledger.sqlite")
    assert collector.failures["VerifierError"] == verifier.hung > 0 and not provider.live
    account.settle(run.expected, run.trained, relaunched=run.relaunched)


@pytest.mark.fault("slow network, every second request", bound_s=60)
async def test_the_network_is_slow(account, tmp_path: Path) -> None:
    engine = FakeVllm(scripted(), model=ModelShape(64, 0, 0, 0, 2, ()), read=lambda path: {})
    engine.label = "0"
    client = VllmSampler(
        "http://engine", model=engine.model, max_context=128, transport=SlowNetwork(engine),
        bounds=EngineBounds(request_s=0.3),
    )  # fmt: skip
    run = Campaign(TASKS)
    collector = Collector(
        harness=ScriptedHarness(), provider=FakeSandboxProvider(), verifier=FakeVerifier(), sampler=client,
        scorer=full_score, bounds=QUICK,
    )  # fmt: skip
    await run.run(collector, tmp_path / "ledger.sqlite")
    await client.aclose()
    assert collector.failures["EngineTimeout"] > 0
    assert all(np.isfinite(turn.logprobs).all() for rollout in run.rollouts for turn in rollout.turns)
    account.settle(run.expected, run.trained, relaunched=run.relaunched)


@pytest.mark.skipif(probe().confinement is None, reason="this host cannot open sandboxes")
@pytest.mark.fault("sandbox killed, one in every step", bound_s=60)
async def test_sandboxes_are_killed(account, tmp_path: Path) -> None:
    """Case F5: the outermost process of two sandboxes is killed in every step; no trial is lost to it."""
    killed: list[int] = []
    (tmp_path / "environment").mkdir()
    (tmp_path / "tests").mkdir()
    task = Task(
        "real", "e" * 64, "Wait.", Environment(tmp_path / "environment"), VerifierSpec(tmp_path / "tests"),
        Limits(30.0), tmp_path,
    )  # fmt: skip
    run, provider = Campaign([task]), NamespaceProvider()
    collector = Collector(
        harness=ScriptedHarness(("sleep 0.5", "true")), provider=provider, verifier=FakeVerifier(), sampler=scripted(),
        scorer=full_score, bounds=QUICK,
    )  # fmt: skip

    async def kill(step: int) -> None:
        await asyncio.sleep(0.3)
        shells = [pid for pid in _children() if _command(pid)]
        for pid in shells[:2]:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    await run.run(collector, tmp_path / "ledger.sqlite", during=kill)
    await provider.close()
    assert len(killed) == 2 * run.num_steps and not _children()
    account.settle(run.expected, run.trained, relaunched=run.relaunched)


def _children() -> list[int]:
    """Our child processes, whichever thread started them: sandboxes, and nothing else here."""
    return [int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
