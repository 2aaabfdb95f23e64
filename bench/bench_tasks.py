"""How fast tasks are made and audited: the offline factory, the audit that only reads, and the one with all probes.

The audit's numbers are medians of several rounds over the same generated tasks, beside `t1 tasks check` of the same.
The factory's is one run of the command with all five stages, the audit's probes included: accepted tasks by
wall-clock, with start-up and datasheet. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from t1.protocols import SandboxProvider
from t1.sandboxes import NamespaceProvider
from t1.synthesis.audit import audit_directory
from t1.tasks import check_task
from t1.tasks.shell_basics import generate

ROUNDS = 3
SYNTH_S = 3600.0


async def rate(count: int, work: Callable[[], Awaitable[object]]) -> float:
    """Tasks a second: the median of the rounds."""
    rates = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        await work()
        rates.append(count / (time.perf_counter() - started))
    return statistics.median(rates)


async def audit_rates(folder: Path, *, num_static: int, num_probed: int) -> dict[str, float]:
    """The audit's two speeds, and what one plain check a task costs in the same run."""
    cores = len(os.sched_getaffinity(0))
    everything = await generate(folder / "static", seed=1, num_train=num_static, num_heldout=0, provider=None)
    some = await generate(folder / "probed", seed=2, num_train=num_probed, num_heldout=0, provider=None)

    async def audit(path: Path, provider: SandboxProvider | None) -> None:
        async for report in audit_directory(path, provider=provider, at_once=2 * cores):
            if report.problem:
                raise RuntimeError(report.problem)

    async def check(provider: SandboxProvider) -> None:
        gate = asyncio.Semaphore(2 * cores)

        async def one(index: int) -> None:
            async with gate:
                await check_task(some.train[index], provider)

        await asyncio.gather(*(one(index) for index in range(num_probed)))

    static = await rate(num_static, lambda: audit(everything.path, None))
    provider = NamespaceProvider()
    try:
        probed = await rate(num_probed, lambda: audit(some.path, provider))
        checked = await rate(num_probed, lambda: check(provider))
    finally:
        await provider.close()
    return {
        "static_tasks_per_s": round(static, 1),
        "probe_tasks_per_s": round(probed, 2),
        "check_tasks_per_s": round(checked, 2),
        "probes_over_check": round(checked / probed, 2),
    }


def synthesis_rate(folder: Path, seeds: int) -> dict[str, float]:
    """Run the factory as a person does, and count what it accepted."""
    words = ["configs/tasks/synth.toml", f"run.num_seeds={seeds}", f"run.out={folder}/out"]
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "t1", "tasks", "synth", *words], check=True, timeout=SYNTH_S)
    wall_s = time.monotonic() - started
    made = json.loads((folder / "out" / "datasheet.json").read_text())["accepted"]["tasks"]
    rate = round(made * 3600 / wall_s)
    return {"synth_tasks_per_hour": rate, "synth_seeds": seeds, "synth_accepted": made, "synth_s": round(wall_s, 1)}


def main() -> None:
    """Print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--static", type=int, default=400, help="tasks that are only read")
    parser.add_argument("--probed", type=int, default=24, help="tasks that are probed")
    parser.add_argument("--seeds", type=int, default=64, help="lineages of the factory; 0: only the audit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="t1-bench-") as folder:
        results = asyncio.run(audit_rates(Path(folder), num_static=options.static, num_probed=options.probed))
        if options.seeds:
            results |= synthesis_rate(Path(folder), options.seeds)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
