"""What the controller itself costs: a turn's overhead and a trial's memory with thousands of trials at once, and how
long the sampler idles while the trainer works.

Sampler, sandbox and verifier are fakes that answer at once, so that what is left is the controller: harness, turns,
collector, pool and ledger. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t1.harness import TerminalConfig, TerminalHarness
from t1.rollouts import Admission, Collector, Ledger, Rule
from t1.rollouts.pool import Launch, Pool
from t1.testing.clocks import simulate
from t1.testing.collectors import Fate, TimedCollector
from t1.testing.renderers import CharacterRenderer
from t1.testing.sandboxes import FakeSandboxProvider
from t1.testing.tasks import example_task
from t1.testing.verifiers import FakeVerifier, verdict_of
from t1.types import FinishReason, IntArray, RewardSource, RolloutId, Sample, SamplingParams


def resident_mb() -> float:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


class InstantSampler:
    """Says the same at once, and hands the turn to the next trial as a real one does. Keeps nothing."""

    version = 0
    max_context = 1 << 30

    def __init__(self, completion: Sequence[int]) -> None:
        self._completion: IntArray = np.array(completion, dtype=np.int32)
        self._logprobs = np.full(len(completion), -0.5, dtype=np.float32)
        self._versions = np.zeros(len(completion), dtype=np.int32)

    async def sample(self, prompt: IntArray, params: SamplingParams, *, session: str, routing_start: int = 0) -> Sample:
        await asyncio.sleep(0)
        return Sample(prompt, self._completion, self._logprobs, self._versions, FinishReason.STOP, None)

    async def close_session(self, session: str) -> None:
        pass

    async def publish(self, weights: Mapping[str, Any], version: int) -> None:
        pass

    async def aclose(self) -> None:
        pass


async def controller(num_trials: int, num_turns: int, folder: Path) -> dict[str, float]:
    """All trials under way at once, turn by turn, to the end."""
    renderer = CharacterRenderer()
    completion = [*renderer.encode("echo " + "x" * 20).tolist(), renderer.stop_ids[0]]
    config = TerminalConfig(max_turns=num_turns, max_sampled_tokens=1 << 30)
    peak = 0.0

    collector = Collector(
        harness=TerminalHarness(renderer, config),
        provider=FakeSandboxProvider(lambda sandbox, command: None),
        verifier=FakeVerifier(verdict_of(True)),
        sampler=InstantSampler(completion),
        scorer=lambda verdict: (1.0, RewardSource.ASSERTIONS),
    )
    task = example_task(agent_timeout_s=1e6)
    ledger = Ledger(folder / "ledger.sqlite")
    pool = Pool(
        collector,
        lambda position: Launch(task, RolloutId(task.id, position, 0), position),
        Rule(Admission.ALL, num_trials, 0),
        version=lambda: 0,
        max_concurrent=num_trials,
        watchdog_s=600.0,
        ledger=ledger,
    )
    gc.collect()
    before, started = resident_mb(), time.perf_counter()
    waiting = asyncio.create_task(pool.next(0))
    while not waiting.done():
        peak = max(peak, resident_mb())
        await asyncio.wait([waiting], timeout=0.2)
    rollouts = waiting.result()
    seconds = time.perf_counter() - started
    ledger.close()
    turns = sum(len(rollout.turns) for rollout in rollouts)
    return {
        "ms_per_turn": 1000 * seconds / turns,
        "peak_mb_per_1000_trials": (peak - before) / num_trials * 1000,
        "tokens_per_trial": float(np.mean([len(r.turns[-1].prompt) + len(r.turns[-1].completion) for r in rollouts])),
        "turns_per_trial": turns / len(rollouts),
    }


def idle_share(*, ahead: int, admission: Admission, oversample: float) -> float:
    """Share of the sampler's places that stand empty, in simulated time, with a trainer that takes a third of it."""
    capacity, busy = 32, 0.0

    def fate_of(rollout: RolloutId) -> Fate:
        nonlocal busy
        seconds = float(np.random.default_rng(rollout.group).gamma(2.0, 10.0))
        busy += seconds
        return Fate(seconds)

    version = 0

    async def run() -> None:
        nonlocal version
        task = example_task()
        pool = Pool(
            TimedCollector(fate_of),
            lambda position: Launch(task, RolloutId(task.id, position, 0), None),
            Rule(admission, capacity, max(1, ahead), oversample),
            version=lambda: version,
            ahead=ahead,
            max_concurrent=capacity,
            watchdog_s=1e9,
            clock=asyncio.get_running_loop().time,
        )
        for step in range(50):
            await pool.next(step)
            await asyncio.sleep(20.0)
            version = step + 1
        await pool.close()

    _, seconds = simulate(run())
    return max(0.0, 1 - busy / (capacity * seconds))


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--trials", type=int, default=2000)
    options.add_argument("--turns", type=int, default=300)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(controller(chosen.trials, chosen.turns, Path(folder)))
    found["idle_share"] = {
        "lockstep_all": idle_share(ahead=0, admission=Admission.ALL, oversample=1.0),
        "lockstep_carry": idle_share(ahead=0, admission=Admission.CARRY, oversample=1.5),
        "lookahead_1": idle_share(ahead=1, admission=Admission.CARRY, oversample=1.0),
        "lookahead_2": idle_share(ahead=2, admission=Admission.CARRY, oversample=1.0),
    }  # type: ignore[assignment]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
