"""What a keeper costs a command: the same `true` in a namespace sandbox, and in one that a keeper lends.

    python bench/bench_keeper.py [--rounds 30]

Rounds are interleaved, so that a busy machine is equally busy for all. The last line is one JSON object of medians in
milliseconds: direct (NamespaceProvider), link (a call of the keeper that does nothing), kept (a keeper without Harbor,
its machine a namespace sandbox), harbor (a keeper under Harbor's Python, over our plug-in; null where there is none),
and for `harbor` or else `kept`: open, stop, pristine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from bench_sandbox import make_task

from t1.errors import UserError
from t1.protocols import Sandbox
from t1.sandboxes import HarborProvider, NamespaceProvider
from t1.sandboxes.harbor.pythons import find_python
from t1.testing.keepers import FAKE_KEEPER

PLUG_IN = "t1.harbor.environment:T1Environment"


async def timed(work: Awaitable[Any]) -> tuple[float, Any]:
    """Milliseconds, and what came of it."""
    started = time.perf_counter()
    found = await work
    return (time.perf_counter() - started) * 1e3, found


async def measure(folder: Path, rounds: int) -> dict[str, float | None]:
    """Every number, rounded."""
    task = make_task(folder)
    (folder / "task.toml").write_text('version = "1.0"\n')
    (folder / "instruction.md").write_text("Sort the names.\n")
    direct = NamespaceProvider(label="bench")
    kept = HarborProvider(python=Path(sys.executable), keeper=FAKE_KEEPER)
    providers: dict[str, Any] = {"direct": direct, "kept": kept}
    with contextlib.suppress(UserError):
        providers["harbor"] = HarborProvider(environment=PLUG_IN, python=find_python())
    last = providers.get("harbor", kept)
    times: dict[str, list[float]] = {name: [] for name in ("direct", "link", "kept", "harbor")}
    try:
        await (await last.open(task)).close()  # the keeper's own start is not a sandbox's
        sandboxes: dict[str, Sandbox] = {name: await made.open(task) for name, made in providers.items()}
        for _ in range(rounds):
            for name, sandbox in sandboxes.items():
                times[name].append((await timed(sandbox.run("true", timeout_s=60)))[0])
            times["link"].append((await timed(kept._keeper.call("close", session="nobody", bound_s=60)))[0])
        once: dict[str, list[float]] = {"open": [], "stop": [], "pristine": []}
        for _ in range(max(1, rounds // 5)):
            open_ms, sandbox = await timed(last.open(task))
            await sandbox.run("echo left > /app/left", timeout_s=60)
            stop_ms, changes = await timed(sandbox.stop())
            pristine_ms, pristine = await timed(last.open_pristine(task, changes))
            await pristine.close()
            await sandbox.close()
            for name, taken in zip(once, (open_ms, stop_ms, pristine_ms), strict=True):
                once[name].append(taken)
    finally:
        for made in providers.values():
            await made.close()
    return {name: round(statistics.median(found), 2) if found else None for name, found in {**times, **once}.items()}


def main() -> None:
    """Print the line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="t1-bench-") as folder:
        print(json.dumps(asyncio.run(measure(Path(folder), rounds))))


if __name__ == "__main__":
    main()
