"""What the controller itself costs: a turn's overhead and a trial's memory with thousands of trials at once, and how
long the sampler idles while the trainer works.

Sampler, sandbox and verifier are fakes that answer at once, so that what is left is the controller: harness, turns,
collector, pool and ledger (what the fakes take is counted too). `ms_per_turn` is the wall's clock over turns,
`cpu_ms_per_turn` this process's CPU time over turns: the controller is one thread, so on a quiet machine they are the
same, and on a busy one the second is right. Memory is what the process has grown by at its peak, over the trials that
are under way, all of their tokens held until the batch is whole.

Flat means three things, each a ratio that should be about 1: `memory_by_size`, a trial's memory with all trials over
that with a sixteenth of them; `memory_by_step`, the third batch of a sixteenth over the first; `time_by_size`, a turn's
CPU time with all over that with a sixteenth. The last line is JSON.

    python bench/bench_scheduler.py [--trials 2000] [--turns 300]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
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


async def controller(num_trials: int, num_turns: int, folder: Path, *, num_steps: int = 1) -> dict[str, Any]:
    """All trials of a step under way at once, turn by turn, to the end; then the next step's."""
    renderer = CharacterRenderer()
    completion = [*renderer.encode("echo " + "x" * 20).tolist(), renderer.stop_ids[0]]
    config = TerminalConfig(max_turns=num_turns, max_sampled_tokens=1 << 30)
    provider = FakeSandboxProvider(lambda sandbox, command: None)
    collector = Collector(
        harness=TerminalHarness(renderer, config),
        provider=provider,
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
        watchdog_s=3600.0,
        ledger=ledger,
    )
    gc.collect()
    before, started, cpu = resident_mb(), time.perf_counter(), time.process_time()
    peaks, turns, tokens = [], 0, 0
    for step in range(num_steps):
        peaks.append(0.0)
        waiting = asyncio.create_task(pool.next(step))
        while not waiting.done():
            peaks[-1] = max(peaks[-1], resident_mb() - before)
            await asyncio.wait([waiting], timeout=0.2)
        rollouts = waiting.result()
        ledger.updated(step, len(rollouts))
        turns += sum(len(rollout.turns) for rollout in rollouts)
        tokens += sum(len(rollout.turns[-1].prompt) + len(rollout.turns[-1].completion) for rollout in rollouts)
        del rollouts, waiting
        provider.opened.clear()  # the fake's own memory of every command
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    ledger.close()
    return {
        "ms_per_turn": 1000 * wall_s / turns,
        "cpu_ms_per_turn": 1000 * cpu_s / turns,
        "peaks_mb_per_1000_trials": [peak / num_trials * 1000 for peak in peaks],
        "tokens_per_trial": tokens / num_trials / num_steps,
        "turns_per_trial": turns / num_trials / num_steps,
    }


def measured(num_trials: int, num_turns: int, *, num_steps: int = 1) -> dict[str, Any]:
    """The same in a process of its own, whose memory nobody has used before."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process,
    ):
        return process.submit(_run, num_trials, num_turns, Path(folder), num_steps).result()


def _run(num_trials: int, num_turns: int, folder: Path, num_steps: int) -> dict[str, Any]:
    (folder / "first").mkdir()
    asyncio.run(controller(4, num_turns, folder / "first"))  # what is imported and made once belongs to no trial
    return asyncio.run(controller(num_trials, num_turns, folder, num_steps=num_steps))


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
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--trials", type=int, default=2000)
    options.add_argument("--turns", type=int, default=300)
    chosen = options.parse_args()
    few = max(1, chosen.trials // 16)
    again = measured(few, chosen.turns, num_steps=3)
    print(f"{few} trials at once, three times: {again}", flush=True)
    found = measured(chosen.trials, chosen.turns)
    print(f"{chosen.trials} trials at once: {found}", flush=True)
    (peak,) = found.pop("peaks_mb_per_1000_trials")
    first, _, last = again["peaks_mb_per_1000_trials"]
    report = {name: round(value, 4) for name, value in found.items()} | {
        "peak_mb_per_1000_trials": round(peak, 1),
        "memory_by_size": round(peak / first, 3) if first else None,
        "memory_by_step": round(last / first, 3) if first else None,
        "time_by_size": round(found["cpu_ms_per_turn"] / again["cpu_ms_per_turn"], 3),
        "idle_share": {
            "lockstep_all": round(idle_share(ahead=0, admission=Admission.ALL, oversample=1.0), 3),
            "lockstep_carry": round(idle_share(ahead=0, admission=Admission.CARRY, oversample=1.5), 3),
            "lookahead_1": round(idle_share(ahead=1, admission=Admission.CARRY, oversample=1.0), 3),
            "lookahead_2": round(idle_share(ahead=2, admission=Admission.CARRY, oversample=1.0), 3),
        },
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
