"""How fast trials are without a model: open, four commands, verify in a fresh sandbox, close.

    python bench/bench_sandbox.py

The last line is one JSON object of medians: trial_ms (alone), trials_per_s_16 (16 at once), open_ms, command_ms.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

from t1.sandboxes import NamespaceProvider
from t1.types import Environment, Limits, Task, VerifierSpec
from t1.verification import PristineVerifier

COMMANDS = (
    "cat /app/names.txt",
    "sort /app/names.txt > /app/sorted.txt",
    "mkdir -p /app/out && cp /app/sorted.txt /app/out/result.txt",
    "cd /app/out && wc -l < result.txt",
)
TEST = r"""set -u
check() { if eval "$2"; then status=passed; else status=failed; fi
  tests="${tests:+$tests,}{\"name\":\"$1\",\"status\":\"$status\",\"duration\":0}"; }
check "sorted" '[ "$(head -n 1 /app/sorted.txt)" = alice ]'
check "copied" '[ -f /app/out/result.txt ]'
check "complete" '[ "$(wc -l < /app/out/result.txt)" = 3 ]'
printf '{"results":{"tool":{"name":"shell"},"tests":[%s]}}' "$tests" > /logs/verifier/ctrf.json
"""


def make_task(path: Path) -> Task:
    """A small task with a shell verifier."""
    (path / "environment").mkdir()
    (path / "tests").mkdir()
    (path / "environment" / "Dockerfile").write_text("FROM debian\nWORKDIR /app\nCOPY names.txt /app/\n")
    (path / "environment" / "names.txt").write_text("carol\nalice\nbob\n")
    (path / "tests" / "test.sh").write_text(TEST)
    environment, verifier = Environment(path / "environment"), VerifierSpec(path / "tests")
    return Task("bench", "0" * 64, "Sort the names.", environment, verifier, Limits(), path)


async def trial(task: Task, provider: NamespaceProvider, verifier: PristineVerifier) -> dict[str, float]:
    """One trial; milliseconds by part."""
    started = time.perf_counter()
    sandbox = await provider.open(task)
    opened = time.perf_counter()
    for command in COMMANDS:
        await sandbox.run(command, timeout_s=10)
    commanded = time.perf_counter()
    verdict = await verifier.verify(task, sandbox)
    await sandbox.close()
    assert verdict.solved, verdict
    ended = time.perf_counter()
    return {
        "trial": 1e3 * (ended - started),
        "open": 1e3 * (opened - started),
        "command": 1e3 * (commanded - opened) / len(COMMANDS),
    }


async def together(task: Task, provider: NamespaceProvider, verifier: PristineVerifier, num: int, width: int) -> float:
    """Trials per second with `width` at once."""
    gate = asyncio.Semaphore(width)

    async def one() -> None:
        async with gate:
            await trial(task, provider, verifier)

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(num)))
    return num / (time.perf_counter() - started)


async def main() -> None:
    """Measure, print, leave nothing."""
    with tempfile.TemporaryDirectory(prefix="t1-bench-") as folder:
        task = make_task(Path(folder))
        provider = NamespaceProvider()
        verifier = PristineVerifier(provider)
        try:
            await together(task, provider, verifier, 16, 4)
            alone = [await trial(task, provider, verifier) for _ in range(50)]
            rates = [await together(task, provider, verifier, 96, 16) for _ in range(5)]
        finally:
            await provider.close()
    medians = {part: statistics.median(times[part] for times in alone) for part in ("trial", "open", "command")}
    print(f"16 at once, trials per second: {', '.join(f'{rate:.1f}' for rate in rates)}")
    line = {f"{part}_ms": round(value, 2) for part, value in medians.items()}
    line["trials_per_s_16"] = round(statistics.median(rates), 1)
    print(json.dumps(line))


if __name__ == "__main__":
    asyncio.run(main())
